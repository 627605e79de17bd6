package cli

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// terminationSignals are the signals that end what runs, without those that
// paddock was started to ignore (nohup, a shell's background).
func terminationSignals() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
}

// outlastSignals keeps a second signal from ending paddock while it ends a program, so
// that neither the program's session nor an open record of the audit log is left. The
// third ends paddock at once. What is given lets go of the signals; until then it is to
// be the last that is done.
func (cl *cli) outlastSignals() (release func()) {
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
				cl.say("notice", "paddock is ending the program; a third Ctrl-C ends paddock at once and leaves the session")
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
