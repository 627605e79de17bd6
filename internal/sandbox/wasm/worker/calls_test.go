package worker

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// replyTo has the server answer a call.
func (in *instance) replyTo(t *testing.T, number uint32, answer string) {
	t.Helper()
	if err := in.ends.Calls.Push(append(binary.LittleEndian.AppendUint32(nil, number), answer...)); err != nil {
		t.Fatal(err)
	}
}

// begins makes calls, and gives the number of the last.
func (in *instance) begins(t *testing.T, n int) (number string) {
	t.Helper()
	for range n {
		answer, err := in.message([]byte("{\"op\":\"begin\"}\n{}"))
		if err != nil {
			t.Fatal(err)
		}
		number = string(answer)
	}
	return number
}

// taken is what the guest is given when it asks for the bytes behind a reply.
func (in *instance) taken(t *testing.T, reply string) string {
	t.Helper()
	answer, err := in.message([]byte(`{"op":"bytes","reply":` + reply + `}`))
	if err != nil {
		return "refused"
	}
	return string(answer)
}

func TestBytesLieBehindTheRepliesThatHaveSome(t *testing.T) {
	in, _ := newScripted(t, nil)
	in.ends.Calls.Open(nil)
	if last := in.begins(t, 8); last != "8" {
		t.Fatalf("the last call has the number %s, want 8", last)
	}
	in.replyTo(t, 3, "{\"value\":{}}\nthree\nlines\x00\xff")
	in.replyTo(t, 1, `{"value":"one"}`)
	in.replyTo(t, 2, "")
	in.replyTo(t, 4, "{\"value\":{}}\n")
	in.replyTo(t, 5, "no JSON\n5")
	in.replyTo(t, 6, "{\n\"value\":\n6}\n") // JSON on several lines is JSON
	in.replyTo(t, 7, "\n")
	in.replyTo(t, 8, "{\"value\":{}}\neight")
	in.nudge = &interruptFlag{} // as in a run
	answer, err := in.message([]byte(`{"op":"await","timeout":null}`))
	want := `[[3,{"value":{}},13],[1,{"value":"one"}],[2,null],[4,{"value":{}},0],[5,null],[6,{"value":6}],[7,null],[8,{"value":{}},5]]`
	if string(answer) != want || err != nil {
		t.Errorf("the driver is told %s (%v), want %s", answer, err, want)
	}
	for _, c := range []struct{ reply, want string }{
		{"8", "eight"}, {"8", ""}, {"1", ""}, {"2", ""}, {"4", ""}, {"5", ""}, {"6", ""}, {"7", ""}, {"0", ""}, {"99", ""}, {"4294967295", ""},
		{"4294967296", "refused"}, {"-1", "refused"}, {"-4294967293", "refused"}, {"3.5", "refused"}, {`"3"`, "refused"}, {"1e99", "refused"},
		{"null", ""}, {"3", "three\nlines\x00\xff"}, {"3", ""},
	} {
		if got := in.taken(t, c.reply); got != c.want {
			t.Errorf("the bytes behind reply %s: %q, want %q", c.reply, got, c.want)
		}
	}
}

func TestBytesThatAreNotTakenAreNotKept(t *testing.T) {
	in, s := newScripted(t, nil)
	in.ends.Calls.Open(nil)
	in.begins(t, 3)
	const answer = "{\"value\":{}}\nbytes"
	in.replyTo(t, 1, answer)
	in.calls.replies()
	in.replyTo(t, 2, answer)
	in.calls.replies()
	if got := in.taken(t, "1"); got != "" {
		t.Errorf("after the next replies: %q, want nothing", got)
	}
	if n := len(in.calls.behind); n != 1 {
		t.Errorf("the bytes of %d replies are kept, want those of one", n)
	}
	s.answer = func(*instance, map[string]any) (string, error) { return `{"status":"done"}`, nil }
	in.ends.Control.Begin(0)
	if _, _, err := in.runCode("x"); err != nil {
		t.Fatal(err)
	}
	if n := len(in.calls.behind); n != 0 {
		t.Errorf("the bytes of %d replies are kept after the run, want none", n)
	}
}

// A driver that names replies as it likes gets what lies behind them, and nothing else.
func FuzzBytesBehindReplies(f *testing.F) {
	f.Add(`{"op":"bytes","reply":1}`, "{\"value\":{}}\nx")
	f.Add("{\"op\":\"bytes\",\"reply\":-1}\n{\"op\":\"bytes\",\"reply\":1}", "{}")
	f.Add(`{"op":"bytes","reply":1,"reply":2}`, "{\n}\n\n")
	f.Fuzz(func(t *testing.T, message, answer string) {
		var asked struct{ Op string }
		line, _, _ := strings.Cut(message, "\n")
		if json.Unmarshal([]byte(line), &asked) != nil || asked.Op != "bytes" {
			t.Skip("another message")
		}
		in, _ := newScripted(t, nil)
		in.ends.Calls.Open(nil)
		in.begins(t, 2)
		in.replyTo(t, 1, answer)
		in.replyTo(t, 2, "{\"value\":{}}\nsecond")
		told, err := json.Marshal(in.calls.replies())
		if err != nil {
			t.Fatal(err)
		}
		var replies [][]json.RawMessage
		if err := json.Unmarshal(told, &replies); err != nil || len(replies) != 2 || len(replies[1]) != 3 {
			t.Fatalf("the driver is told %s (%v), want two replies", told, err)
		}
		got, err := in.message([]byte(message))
		if text := string(got); err == nil && text != "" && text != "second" && !(len(replies[0]) == 3 && strings.HasSuffix(answer, text) && fmt.Sprint(len(text)) == string(replies[0][2])) {
			t.Errorf("%q gives %q", message, got)
		}
	})
}
