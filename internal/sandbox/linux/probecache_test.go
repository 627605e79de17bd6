//go:build linux && (amd64 || arm64)

package linux

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

func TestWhatACanaryFoundOutIsRememberedForAWhile(t *testing.T) {
	b := &Backend{config: Config{Image: HostImage, CacheDir: t.TempDir()}}
	_, path, ok := b.remembered(t.Context())
	if ok || path == "" {
		t.Fatalf("%q, %v", path, ok)
	}
	good := sandbox.Probe{Available: true, Engine: Engine, Runtimes: []sandbox.Runtime{{Name: "python", Languages: []string{"python"}}}}
	for _, test := range []struct {
		name      string
		found     sandbox.Probe
		age, took time.Duration
		want      bool
	}{
		{"what works", good, time.Hour, 0, true},
		{"what worked long ago", good, 25 * time.Hour, 0, false},
		{"what did not work just now", sandbox.Probe{Reason: "no"}, time.Second, time.Second, true},
		{"what did not work a while ago", sandbox.Probe{Reason: "no"}, time.Minute, time.Second, false},
		{"what took half a minute to fail", sandbox.Probe{Reason: "no"}, time.Minute, 30 * time.Second, true},
		{"what took half a minute to fail, some minutes ago", sandbox.Probe{Reason: "no"}, 3 * time.Minute, 30 * time.Second, false},
		{"what is from a clock that went wrong", good, -time.Hour, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.remember(path, findings{At: time.Now().Add(-test.age), Took: test.took, Probe: test.found})
			f, _, ok := b.remembered(t.Context())
			if ok != test.want || f.Probe.Available != test.found.Available {
				t.Errorf("%+v, %v", f, ok)
			}
		})
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := b.remembered(t.Context()); ok {
		t.Error("half a file is believed")
	}
}

func TestOtherSettingsAreFoundOutAnew(t *testing.T) {
	dir := t.TempDir()
	paths := map[string]bool{}
	for _, c := range []Config{{Image: HostImage}, {Image: HostImage, CPUs: 1}, {Image: HostImage, RootBytes: 1}, {Image: HostImage, UID: 5}} {
		c.CacheDir = dir
		path := (&Backend{config: c}).probePath(t.Context())
		if paths[path] || filepath.Dir(path) != dir {
			t.Errorf("%+v: %s", c, path)
		}
		paths[path] = true
	}
	if path := (&Backend{config: Config{Image: HostImage}}).probePath(t.Context()); path != "" {
		t.Errorf("without a folder: %s", path)
	}
}
