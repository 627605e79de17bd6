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
		if got.ID != id || got.Key != a.Key || got.ArgumentsDigest != got.Digest() || !json.Valid(got.Arguments) || got.State == Expired {
			t.Errorf("it reads %+v", got)
		}
		data, err = got.encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decode(data, "local", place, id); err != nil || !again.Call.same(got.Call) || again.State != got.State {
			t.Errorf("it does not survive: %+v, %v", again, err)
		}
	})
}
