package serve

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

func newCalling() (*Calls, *wiretest.Recorder) {
	p := &wiretest.Recorder{}
	return NewCalls(wire.NewConn(p), 7), p
}

func reply(t *testing.T, c *Calls, number byte, text string) {
	t.Helper()
	if err := c.Push(append([]byte{number, 0, 0, 0}, text...)); err != nil {
		t.Error(err)
	}
}

func TestWhatIsBegunIsTakenInTheOrderOfItsReplies(t *testing.T) {
	c, p := newCalling()
	c.Open(nil)
	for want := range uint32(3) {
		if n, ok := c.Begin([]byte("x")); !ok || n != want+1 {
			t.Errorf("it has the number %d, %v", n, ok)
		}
	}
	if frames := p.Frames(t); len(frames) != 3 || frames[1].Kind != wire.KindCall || string(frames[1].Body) != "\x02\x00\x00\x00x" {
		t.Errorf("the server was sent %v", frames)
	}
	if isNews(c) {
		t.Error("there is news before any reply")
	}
	reply(t, c, 3, "third")
	reply(t, c, 1, "")
	reply(t, c, 99, "nobody's")
	if !isNews(c) {
		t.Error("there is no news")
	}
	if all := c.Take(); len(all) != 2 || all[0].Number != 3 || string(all[0].Body) != "third" || all[1].Number != 1 || len(all[1].Body) != 0 {
		t.Errorf("the replies are %v", all)
	}
	if len(c.Take()) != 0 {
		t.Error("they come again")
	}
	if c.Push([]byte{1}) == nil {
		t.Error("a reply without a number is taken")
	}
}

func isNews(c *Calls) bool {
	select {
	case <-c.News():
		return true
	default:
		return false
	}
}

func TestAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCalling()
		type answer struct {
			body string
			ok   bool
		}
		answers := make(chan answer, 1)
		ask := func(stop <-chan struct{}) {
			go func() {
				body, ok := c.Ask([]byte("x"), stop)
				answers <- answer{string(body), ok}
			}()
			synctest.Wait()
		}
		want := func(what string, want answer) {
			t.Helper()
			if got := <-answers; got != want {
				t.Errorf("%s: %v", what, got)
			}
		}
		ask(nil)
		want("without a run", answer{})
		c.Open(nil)
		ask(nil)
		reply(t, c, 1, "yes")
		want("with a reply", answer{"yes", true})
		stop := make(chan struct{})
		ask(stop)
		close(stop)
		want("stopped", answer{})
		frames := p.Frames(t)
		if last := frames[len(frames)-1]; last.Kind != wire.KindGiveUp || string(last.Body) != "\x02\x00\x00\x00" {
			t.Errorf("the server was told %v at last", last)
		}
		reply(t, c, 2, "late")
		ask(nil)
		c.Open(nil)
		want("as another run begins", answer{})
		reply(t, c, 3, "of the last run")
		ask(nil)
		reply(t, c, 4, "of this one")
		want("in the next run", answer{"of this one", true})
		if isNews(c) || len(c.Take()) != 0 {
			t.Error("there is something to take")
		}
		p.Fail(errors.New("gone"))
		ask(nil)
		want("without a server", answer{})
	})
}

func TestCallsUnderWayAreBounded(t *testing.T) {
	c, _ := newCalling()
	c.Open(nil)
	for range sandbox.CallsAtOnce {
		if _, ok := c.Begin(nil); !ok {
			t.Fatal("there is no room")
		}
	}
	if _, ok := c.Begin(nil); ok {
		t.Error("there is room for one too many")
	}
	c.GiveUp(5)
	if _, ok := c.Begin(nil); ok {
		t.Error("what was given up leaves room before it is answered")
	}
	reply(t, c, 5, "")
	large := make([]byte, sandbox.MaxCalls)
	if _, ok := c.Begin(append(large, 0)); ok {
		t.Error("a byte too many is sent")
	}
	if _, ok := c.Begin(large); !ok {
		t.Error("so many bytes may be under way")
	}
	reply(t, c, 1, "")
	if _, ok := c.Begin([]byte("x")); ok {
		t.Error("there is room for one more byte")
	}
	c.Open(nil)
	if _, ok := c.Begin(large); !ok {
		t.Error("the next run has less room")
	}
}

func TestARunThatIsLeftGoesOnWithItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCalling()
		c.Open(nil)
		answers := make(chan string, 4)
		ask := func(stop <-chan struct{}) {
			wait := c.Start([]byte("x"), stop)
			go func() {
				body, ok := wait()
				answers <- string(body) + map[bool]string{false: "nothing"}[ok]
			}()
			synctest.Wait()
		}
		want := func(what, want string) {
			t.Helper()
			if got := <-answers; got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		quiet := func(what string) {
			t.Helper()
			synctest.Wait()
			if len(answers) > 0 {
				t.Errorf("%s: %q", what, <-answers)
			}
		}
		if waits := c.Leave(); waits != nil {
			t.Errorf("it waits for %v", waits)
		}
		stop := make(chan struct{})
		ask(nil)
		ask(nil)
		ask(stop)
		reply(t, c, 1, "in time")
		if waits := c.Leave(); !slices.Equal(waits, []uint32{2, 3}) {
			t.Errorf("it waits for %v", waits)
		}
		want("what came before", "in time")
		reply(t, c, 2, "too late") // it will be told again
		ask(nil)                   // from now on nothing is sent
		close(stop)
		want("what is given up meanwhile", "nothing")
		quiet("while it is left")
		if frames := p.Frames(t); len(frames) != 3 {
			t.Errorf("the server was sent %v", frames)
		}
		c.Open([]uint32{2, 3})
		synctest.Wait()
		if frames := p.Frames(t); len(frames) != 2 || frames[0].Kind != wire.KindGiveUp || string(frames[0].Body) != "\x03\x00\x00\x00" || string(frames[1].Body) != "\x04\x00\x00\x00x" {
			t.Errorf("the server was sent %v", frames)
		}
		reply(t, c, 2, "again")
		want("when it goes on", "again")
		reply(t, c, 4, "at last")
		want("what was asked meanwhile", "at last")
		reply(t, c, 3, "")
		ask(nil)
		if waits := c.Leave(); !slices.Equal(waits, []uint32{5}) {
			t.Errorf("it waits for %v", waits)
		}
		c.Open(nil)
		want("when another one runs", "nothing")
	})
}
