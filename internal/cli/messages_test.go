package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
)

func TestWarningsOfTheLogAreMessages(t *testing.T) {
	var stderr bytes.Buffer
	log := slog.New(&messages{cl: &cli{stderr: &stderr}}).With("session", "s-1")
	log.Info("what users need not know")
	log.Warn("a session cannot be read", "cause", errors.New("it is \x1b[2Jdamaged"))
	log.Error("the disk is full")
	want := "paddock: warning: a session cannot be read: it is \\u001b[2Jdamaged (session s-1)\n" +
		"paddock: error: the disk is full (session s-1)\n"
	if stderr.String() != want {
		t.Errorf("it says\n%q, want\n%q", stderr.String(), want)
	}
}
