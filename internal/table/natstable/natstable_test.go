package natstable_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/natstable"
	"paddock/internal/table/tabletest"
)

func TestTables(t *testing.T) {
	tabletest.Suite(t, func(t *testing.T) (one, again table.Table) {
		conn := tabletest.Server(t)
		open := func() table.Table {
			in, err := natstable.Open(t.Context(), conn, natstable.Config{Bucket: "b", Replicas: 1})
			if err != nil {
				t.Fatal(err)
			}
			return in
		}
		return open(), open()
	})
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	_, err := tabletest.Open(t).Put(t.Context(), "a", make([]byte, 1<<20), table.Any)
	if fault.KindOf(err) != fault.Exhausted {
		t.Errorf("it gives %v", err)
	}
}

func TestWithoutAServerAFaultSaysWhatToDo(t *testing.T) {
	conn := tabletest.Server(t)
	in, err := natstable.Open(t.Context(), conn, natstable.Config{Bucket: "b", Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	_, errGet := in.Get(t.Context(), "a", table.None)
	_, errPut := in.Put(t.Context(), "a", nil, table.Any)
	_, errNames := in.Names(t.Context(), "")
	errWatch := in.Watch(t.Context(), "", func(string) {})
	for _, err := range []error{errGet, errPut, errNames, errWatch} {
		if fault.KindOf(err) != fault.Unavailable || fault.Of(err).Hint == "" || errors.Is(err, table.ErrChanged) {
			t.Errorf("it gives %v", err)
		}
	}
}

func TestADamagedDocumentIsRefused(t *testing.T) {
	conn := tabletest.Server(t)
	in, err := natstable.Open(t.Context(), conn, natstable.Config{Bucket: "b", Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Put(t.Context(), "a/b.json", []byte("{}"), table.None); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := js.KeyValue(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Put(t.Context(), "a.b=2Ejson", []byte("{\"admin\":true}")); err != nil {
		t.Fatal(err)
	}
	if d, err := in.Get(t.Context(), "a/b.json", table.None); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("it is %q (%v)", d.Data, err)
	}
	if _, err := in.Put(t.Context(), "a/b.json", []byte("{}"), table.Any); err != nil {
		t.Errorf("it cannot be put right: %v", err)
	}
	if d, err := in.Get(t.Context(), "a/b.json", table.None); err != nil || string(d.Data) != "{}" {
		t.Errorf("then it is %q (%v)", d.Data, err)
	}
}
