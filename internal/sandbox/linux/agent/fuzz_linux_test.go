package agent

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// feedTo has a kernel say something to a channel, and gives what ended it.
func feedTo(t *testing.T, read func(c *channel, s *os.File) error, said []byte) (answer []byte, failed error) {
	t.Helper()
	c, theirs, err := newChannel(1, codec{
		encode: encodeFrame, read: read,
		message: func(body []byte, stop <-chan struct{}) []byte { return body[:min(len(body), 10)] },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.expect()
	ask, err := c.ask(request{Op: "exec"}, false)
	if err != nil {
		t.Fatal(err)
	}
	kernel := theirs[0]
	go func() { // it reads what it is told
		_, _ = bytes.NewBuffer(nil).ReadFrom(kernel)
	}()
	_, _ = kernel.Write(said)
	_ = unix.Shutdown(int(kernel.Fd()), unix.SHUT_WR)
	select {
	case <-c.gone:
	case <-time.After(time.Minute):
		t.Fatal("the connection did not end")
	}
	c.work.Wait()
	kernel.Close()
	select {
	case answer = <-ask:
	default:
	}
	return answer, c.failed
}

func FuzzWhatAKernelSaysInFrames(f *testing.F) {
	f.Add([]byte{})
	f.Add(frame(frameAnswer, 1, []byte(`{"status":"done"}`)))
	f.Add(append(frame(frameBegun, 1, nil), frame(frameMessage, 7, []byte("{\"op\":\"display\"}\nbytes"))...))
	f.Add(frame(frameRequest, 1, nil))
	f.Add([]byte{'a', 1, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, said []byte) {
		answer, failed := feedTo(t, readFrames, said)
		if failed == nil {
			t.Error("it ended without a reason")
		}
		if len(answer) > len(said) {
			t.Errorf("of %d bytes it made an answer of %d", len(said), len(answer))
		}
		checkOutcome(t, answer)
	})
}

func FuzzWhatAKernelSaysInLines(f *testing.F) {
	f.Add([]byte("b 1\nv 1 x - 42\na 1 0 77 exit\n"))
	f.Add([]byte("a 1 99999999999999999999 1 x\n"))
	f.Add([]byte("v 1 m A \\(1\\ elements\\)\na 1 0 1 inspected\n"))
	f.Add(bytes.Repeat([]byte("x"), maxLine+1))
	f.Fuzz(func(t *testing.T, said []byte) {
		answer, failed := feedTo(t, readLines, said)
		if failed == nil {
			t.Error("it ended without a reason")
		}
		checkOutcome(t, answer)
	})
}

func checkOutcome(t *testing.T, answer []byte) {
	t.Helper()
	if answer == nil {
		return
	}
	o, err := outcomeOf(answer)
	if err != nil {
		return
	}
	if o.Error != nil {
		shellError(&o, string(answer))
	}
	if o.ExitCode < 0 || o.ExitCode > 255 || len(o.Result) > maxResult || o.Error != nil && o.Error.Line < 0 {
		t.Errorf("it makes %+v", o)
	}
}

func TestARingKeepsTheNewest(t *testing.T) {
	var r ring
	r.write([]byte("one "))
	r.write([]byte("two"))
	if p := r.read(0); string(p.Data) != "one two" || p.From != 0 {
		t.Errorf("it has %+v", p)
	}
	if p := r.read(4); string(p.Data) != "two" || p.From != 4 {
		t.Errorf("from 4 on it has %+v", p)
	}
	for range 1000 {
		r.write(bytes.Repeat([]byte("x"), 1000))
	}
	r.write([]byte("end"))
	p := r.read(0)
	if len(p.Data) != 256<<10 || p.From+int64(len(p.Data)) != 1000*1000+10 || !bytes.HasSuffix(p.Data, []byte("xend")) {
		t.Errorf("it has %d bytes from %d on", len(p.Data), p.From)
	}
	for _, from := range []int64{-5, 1 << 40} {
		if p := r.read(from); p.From < 0 || p.From > 1000*1000+10 {
			t.Errorf("from %d on it has %d bytes from %d on", from, len(p.Data), p.From)
		}
	}
}
