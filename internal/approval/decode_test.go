package approval

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// FuzzDecode: whatever is in a file, what is read of it is the approval that its name
// says, and covers what its digest says.
func FuzzDecode(f *testing.F) {
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	id := "ap-" + strings.Repeat("a", 26)
	a := Approval{
		ID: id, Key: Key{"local", "s-1", "x-1", 1}, Call: Call{"github", "d", "delete", json.RawMessage(`{"a":"<\u0000"}`)},
		State: Pending, Created: now, Expires: now.Add(time.Hour),
	}
	a.ArgumentsDigest = a.Digest()
	for _, state := range []State{Pending, Granted, Used, Denied, Withdrawn, Expired, ""} {
		if a.State = state; state == Granted {
			a.Decided, a.By = now, "boss"
		}
		data, err := a.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"owner":"local","arguments":null}`))
	place := a.place()
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode(data, "local", place, id)
		if err != nil {
			return
		}
		switch {
		case got.ID != id:
			t.Errorf("got.ID = %v, want %v: %+v", got.ID, id, got)
		case got.Key != a.Key:
			t.Errorf("got.Key = %v, want %v: %+v", got.Key, a.Key, got)
		case got.ArgumentsDigest != got.Digest():
			t.Errorf("got.ArgumentsDigest = %v, want %v: %+v", got.ArgumentsDigest, got.Digest(), got)
		case !json.Valid(got.Arguments):
			t.Errorf("json.Valid(got.Arguments) = false, want true: %+v", got)
		case got.State == Expired:
			t.Errorf("got.State = %v, want other than %v: %+v", got.State, Expired, got)
		}
		data, err = got.encode()
		if err != nil {
			t.Fatal(err)
		}
		switch again, err := decode(data, "local", place, id); {
		case err != nil:
			t.Errorf("it does not survive: %v", err)
		case !again.Call.same(got.Call):
			t.Errorf("it does not survive: again.Call.same(got.Call) = false, want true: %+v", again)
		case again.State != got.State:
			t.Errorf("it does not survive: again.State = %v, want %v: %+v", again.State, got.State, again)
		}
	})
}
