//go:build unix

package upstream

import (
	"os"
	"strings"
	"testing"
)

// It may have closed its input before it ends, and is still asked for the reason.
func TestAProgramThatDoesNotReadSaysHowItEnded(t *testing.T) {
	for range 5 {
		_, err := Dial(t.Context(), Server{Name: "none", Command: "sh", Args: []string{"-c", "exec <&-; exec sleep 0.1"}}, Options{Environ: os.Environ()})
		if ReasonOf(err) != Closed {
			t.Errorf("got an error of the reason %q, want %q: %v", ReasonOf(err), Closed, err)
		} else if !strings.Contains(err.Error(), "its program ended (exit status 0)") {
			t.Errorf(`got error %q, want "its program ended (exit status 0)" in it`, err.Error())
		}
	}
}
