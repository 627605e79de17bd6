package worker

import (
	"bytes"
	"encoding/json"
	"math"
	"time"

	"paddock/internal/sandbox/wire/serve"
)

// calls are what a program asks of the host, as the guest's driver takes it.
type calls struct {
	*serve.Ends
	// behind are the bytes that came behind the JSON of the replies that the driver was
	// given last, by the calls' numbers: until it takes them, or is given the next ones.
	behind map[uint32][]byte
}

// call has the host answer a call while the guest waits in it. Without an answer
// nobody answers, or the program has to end: then it is told so as well.
func (in *instance) call(body []byte) []byte {
	answer, ok := in.ends.Calls.Ask(body, in.mustEnd())
	if !ok {
		in.interruptHere()
	}
	return answer
}

// await waits while the guest waits in it: for so many seconds (nil: for ever), or
// until there are replies to what was begun.
func (in *instance) await(seconds *float64) []json.RawMessage {
	select {
	case <-after(seconds):
	case <-in.ends.Calls.News():
	case <-in.mustEnd():
		in.interruptHere()
	}
	return in.calls.replies()
}

// after is a timer of so many seconds; nil: none, which never fires.
func after(seconds *float64) <-chan time.Time {
	if seconds == nil {
		return nil
	}
	return time.After(time.Duration(min(math.Ceil(max(*seconds, 0)*1e9), 1e18)))
}

// mustEnd is closed when what waits in the guest has to return: at the interrupt, or,
// where the program has seen that and waits in its clean-up, when it is stopped by
// force.
func (in *instance) mustEnd() <-chan struct{} {
	soft, hard := in.ends.Control.Stops()
	in.nudge.Lock()
	defer in.nudge.Unlock()
	if in.nudge.done && in.vm.seen(in.words) {
		return hard
	}
	return soft
}

// interruptHere does in the guest, before a call of the host returns, what the run
// was told meanwhile.
func (in *instance) interruptHere() {
	if in.ends.Control.Level() != serve.Going {
		in.poll()
	}
}

// replies are those that came, as the driver takes them: a call's number and its answer,
// which is null where nothing answered. Where bytes lie behind the answer, how many these
// are comes third: then take gives them.
func (c *calls) replies() []json.RawMessage {
	clear(c.behind)
	var all []json.RawMessage
	for _, r := range c.Calls.Take() {
		body, behind, isRaw := bytes.Cut(r.Body, []byte{'\n'})
		if isRaw && !json.Valid(body) {
			body, isRaw = r.Body, false
		}
		if len(body) == 0 {
			body = []byte("null")
		}
		reply := []any{r.Number, json.RawMessage(body)}
		if isRaw {
			reply = append(reply, len(behind))
		}
		text, err := json.Marshal(reply)
		if err != nil { // what is not JSON is not an answer
			text, _ = json.Marshal([]any{r.Number, nil})
		} else if len(behind) > 0 && isRaw {
			c.keep(r.Number, behind)
		}
		all = append(all, text)
	}
	return all
}

func (c *calls) keep(number uint32, behind []byte) {
	if c.behind == nil {
		c.behind = map[uint32][]byte{}
	}
	c.behind[number] = behind
}

// take gives, once, the bytes that came behind the answer to a call; none, where there
// are none.
func (c *calls) take(number uint32) []byte {
	b := c.behind[number]
	delete(c.behind, number)
	return b
}

// suspended reports whether the run may be left as it waits now.
func (c *calls) suspended() bool {
	select {
	case <-c.quiet():
		return true
	default:
		return false
	}
}

// quiet is closed when the run may be left as it waits now, for calls; nil: it waits
// for none.
func (c *calls) quiet() <-chan struct{} {
	if len(c.Calls.Waits()) == 0 {
		return nil
	}
	return c.Control.Suspended()
}
