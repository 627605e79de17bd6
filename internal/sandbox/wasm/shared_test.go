package wasm_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm"
)

// An owner's instances are shown one folder beside their own, which is found as it is
// now, and which none of them can change.
func TestInstancesOfAnOwnerAreShownOneFolder(t *testing.T) {
	root := t.TempDir()
	owners, shared := filepath.Join(root, "owners"), filepath.Join(root, "shared")
	c := wasm.Config{CacheDir: sandboxtest.PreparedCache(t), OwnersDir: owners, SharedDir: shared, Engine: *engine, Log: slog.New(slog.DiscardHandler)}
	b, err := wasm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	found := b.Probe(t.Context())
	sandboxtest.Require(t, "wasm", found.Available, found.Reason)
	dir, ann, bob := folder(t, owners, "o/work"), folder(t, shared, "o/skills"), folder(t, shared, "p/skills")
	if err := os.WriteFile(filepath.Join(ann, "a.txt"), []byte("as it was"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := func(mounts ...sandbox.Mount) sandbox.Spec {
		return sandbox.Spec{Owner: "o", Runtime: "python", Dir: "/workspace", Mounts: append(workspace(dir), mounts...)}
	}
	skills := sandbox.Mount{Guest: "/skills", Host: ann, ReadOnly: true}
	one, err := b.Start(t.Context(), spec(skills))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close() })
	two, err := b.Start(t.Context(), spec(skills))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { two.Close() })
	look := func(in sandbox.Instance, want string) {
		t.Helper()
		var out bytes.Buffer
		_, err := in.Run(t.Context(), sandbox.Command{Stdout: &out, Stderr: &out, Code: `
import os
print(open("/skills/a.txt").read())
for f in [lambda: open("/skills/a.txt", "a"), lambda: open("/skills/b.txt", "w"), lambda: os.remove("/skills/a.txt"), lambda: os.rename("/skills/a.txt", "/workspace/a.txt"), lambda: os.mkdir("/skills/d")]:
    try:
        f()
        print("it can")
    except OSError:
        pass`})
		if err != nil || out.String() != want+"\n" {
			t.Errorf("it printed %q, want %q (%v)", out.String(), want, err)
		}
	}
	look(one, "as it was")
	look(two, "as it was")
	next := filepath.Join(ann, "next")
	if err := os.WriteFile(next, []byte("as it is"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(ann, "a.txt")); err != nil {
		t.Fatal(err)
	}
	look(one, "as it is")
	look(two, "as it is")

	for name, m := range map[string]sandbox.Mount{
		"to be written":       {Guest: "/skills", Host: ann, DiskBytes: 1 << 20},
		"another owner's":     {Guest: "/skills", Host: bob, ReadOnly: true},
		"the owner's as such": {Guest: "/skills", Host: filepath.Dir(ann), ReadOnly: true},
		"beside it":           {Guest: "/skills", Host: filepath.Join(root, "else", "o"), ReadOnly: true},
		"above it":            {Guest: "/skills", Host: root, ReadOnly: true},
	} {
		if in, err := b.Start(t.Context(), spec(m)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("one %s gives %v", name, err)
			if in != nil {
				in.Close()
			}
		}
	}
	c.SharedDir = ""
	none, err := wasm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { none.Close() })
	if in, err := none.Start(t.Context(), spec(skills)); fault.KindOf(err) != fault.Invalid {
		t.Errorf("where there are none it gives %v", err)
		if in != nil {
			in.Close()
		}
	}
}
