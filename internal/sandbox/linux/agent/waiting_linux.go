package agent

import (
	"time"

	"paddock/internal/sandbox/wire/serve"
)

// A program that does nothing but wait for answers to its calls is left where it is, on
// the kernel's stack or in its loop: the kernel answers the request that ran it, and
// waits for the next one in the midst of it.

// giveUpTime is how long a program that was left may take to clean up when it is given
// up.
const giveUpTime = 2 * time.Second

// giveUp ends the program that was left waiting, as an interrupt would; what it does to
// clean up can call nothing. Where it does not
// end in time, the kernel does.
func (k *interpreter) giveUp(long time.Duration, hard <-chan struct{}) {
	if c := k.channel.caller; c != nil {
		c.refuses.Store(true)
		defer c.refuses.Store(false)
	}
	late, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(late)
		t := time.NewTimer(long)
		defer t.Stop()
		select {
		case <-t.C:
		case <-hard:
		case <-done:
		}
	}()
	_, err := k.ask(request{Op: opInterrupt}, late)
	close(done)
	<-late
	if err != nil {
		k.kill()
	}
	k.drain() // what it said is no other run's
}

// runToCompletion has the kernel do what is asked, and looks after it. waits are the calls for
// which a program waits that was left; nil: it has ended. told says whether it was
// interrupted.
func (in *instance) runToCompletion(k *interpreter, m *measure, r request, begun <-chan struct{}) (o outcome, waits []uint32, told bool, err error) {
	soft, hard := in.ends.Control.Stops()
	for {
		interrupted, leave := in.watchRun(k, m, begun)
		o, err = k.ask(r, hard)
		leave()
		told = told || interrupted.Load()
		if err != nil || o.Status != serve.StatusWaiting {
			return o, nil, told, err
		}
		if !isClosed(in.ends.Control.Suspended()) {
			return o, nil, told, errBroken // it is the program that says so
		}
		k.waits, told = true, isClosed(soft)
		if told {
			r = request{Op: opInterrupt}
		} else if waits = in.ends.Calls.Leave(); len(waits) > 0 {
			return o, waits, false, nil
		} else {
			r = request{Op: opResume} // all answers came meanwhile
		}
		begun = k.channel.expect()
	}
}
