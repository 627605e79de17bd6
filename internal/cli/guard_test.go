package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/app"
)

func TestServeSaysAtTheStartWhatNobodyCouldUse(t *testing.T) {
	for _, test := range []struct {
		name, file, content, want string
	}{
		{"damaged tokens", "tokens.json", "{", "paddock: error: the file tokens.json in the state folder is damaged\npaddock: hint: "},
		{"an audit log that cannot be written", "audit", "", "paddock: error: the audit log cannot be written in "},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			state := filepath.Join(dir, "state")
			t.Setenv("PADDOCK_STATE_DIR", state)
			t.Setenv("PADDOCK_CACHE_DIR", filepath.Join(dir, "cache"))
			t.Setenv("XDG_CONFIG_HOME", dir)
			t.Setenv("GOMEMLIMIT", "off") // and this process keeps its own
			t.Setenv("GOGC", "100")
			if err := errors.Join(os.MkdirAll(state, 0o700), os.WriteFile(filepath.Join(state, test.file), []byte(test.content), 0o600)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of a server that starts all the same
			defer cancel()
			var stdout, stderr bytes.Buffer
			p := &cli{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, Env: app.Env{NewBackends: newFake}}
			if code := p.main(ctx, []string{"serve", "--port", "0"}); code != exitFailed {
				t.Errorf(`p.main(ctx, []string{"serve", "--port", "0"}): got %v, want %v: %s`, code, exitFailed, &stderr)
			} else if !strings.HasPrefix(stderr.String(), test.want) {
				t.Errorf("stderr.String(): got %q, want it to begin with %q", stderr.String(), test.want)
			} else if !strings.Contains(stderr.String(), "paddock: hint: ") {
				t.Errorf("stderr.String(): got %q, want %q in it", stderr.String(), "paddock: hint: ")
			}
		})
	}
}
