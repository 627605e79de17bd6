package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

// What of a program was not changed in memory is read from its file: it has to be the
// same one.
func TestAProgramThatWasChangedMeanwhileIsNotGoneOnWith(t *testing.T) {
	a := newAgent(new(wiretest.Recorder))
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs := a.programs()
	if _, ok := programs[own]; !ok || len(programs) == 0 {
		t.Fatalf("of its own program it says nothing: %v", programs)
	}
	library := filepath.Join(t.TempDir(), "lib.so")
	write := func(text string) {
		if err := os.WriteFile(library, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	if programs[library], err = markOf(library); err != nil {
		t.Fatal(err)
	}
	says := func(version int) string {
		body, err := json.Marshal(wire.RestoredBody{Version: version})
		if err != nil {
			t.Fatal(err)
		}
		var answer wire.SurvivedBody
		err = a.restored(wire.Frame{Kind: wire.KindRestored, Body: body}, programs, func(kind wire.Kind, _ uint32, v any) error {
			if kind != wire.KindSurvived {
				t.Errorf("it answers with a frame of kind %d", kind)
			}
			answer = v.(wire.SurvivedBody)
			return nil
		})
		if err != nil || answer.Version != wire.Version {
			t.Errorf("it answers %+v, %v", answer, err)
		}
		return answer.Error
	}
	if got := says(wire.Version); got != "" {
		t.Errorf("nothing was changed, and it says %q", got)
	}
	if got := says(wire.Version + 1); !strings.Contains(got, "version") {
		t.Errorf("to another version it says %q", got)
	}
	write("another one")
	if got := says(wire.Version); !strings.Contains(got, library) {
		t.Errorf("a library was changed, and it says %q", got)
	}
	if err := os.Remove(library); err != nil {
		t.Fatal(err)
	}
	if got := says(wire.Version); !strings.Contains(got, library) {
		t.Errorf("a library is gone, and it says %q", got)
	}
}
