package streams

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"paddock/internal/egress/proxy"
)

func TestAGuestThatWasBroughtBackGetsNoAnswerToAnotherRequest(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{})
	n := table.openLocal(t)
	write := func(at int, text string) said {
		return table.ask(t, fmt.Sprintf(`{"op":"net.write","stream":%d,"at":%d}`, n, at), text)
	}
	request := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: local.test\r\n\r\n" }
	write(0, request("/one"))
	if s := table.ask(t, fmt.Sprintf(`{"op":"net.read","stream":%d,"at":0}`, n)); !strings.HasSuffix(string(s.Value.Bytes), "/one") {
		t.Fatalf("%+v", s)
	}
	if s := write(0, request("/one")); s.Value.Written != len(request("/one")) {
		t.Errorf("the same again, as its answer got lost: %+v", s)
	}
	for _, other := range []string{request("/two"), request("/longer"), request("/")[:9], "x"} {
		if s := write(0, other); s.Error.Kind != kindReset {
			t.Errorf("instead %q: %+v", other, s)
		}
	}
	if s := write(4, request("/one")[4:]); s.Error.Kind != kindReset {
		t.Errorf("from within: %+v", s)
	}
}

func TestAClosedTableTakesNoStream(t *testing.T) {
	table := tableOf(t, Config{}, proxy.Config{})
	if f := table.reserve(); f != nil {
		t.Fatal(f)
	}
	table.Close()
	s, ended := table.newStream("local.test", 80), false
	s.end = func() { ended = true }
	if table.add(s) {
		t.Error("it takes one: got true, want false")
	} else if !ended {
		t.Error("it keeps its connection: it has not ended")
	}
}

func TestABodyThatIsGivenUpDoesNotLookWhole(t *testing.T) {
	s := New(Config{}).newStream("", 0)
	s.cancel, s.began = func() {}, true // somebody reads its other end yet
	if _, err := s.near.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	s.close()
	if got, err := io.ReadAll(s.far); string(got) != "half" {
		t.Errorf(`got %q, want "half"`, string(got))
	} else if err != io.ErrUnexpectedEOF {
		t.Errorf("err = %v, want %v", err, io.ErrUnexpectedEOF)
	}
}
