package cli

import (
	"os"
	"os/signal"
)

// outlastSignals keeps a second signal from ending paddock while it ends a program, so
// that neither the program's session nor an open record of the audit log is left. The
// third ends paddock at once. What is given lets go of the signals; until then it is to
// be the last that is done.
func (p *program) outlastSignals() (release func()) {
	signals, done := make(chan os.Signal, 8), make(chan struct{})
	signal.Notify(signals, terminationSignals()...)
	go func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-signals:
			}
			switch n {
			case 1: // main's context has ended with it
			case 2:
				p.say("notice", "paddock is ending the program; a third Ctrl-C ends paddock at once and leaves the session")
			default:
				os.Exit(exitCancelled)
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}
