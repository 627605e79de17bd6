//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"os"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

func TestSpike(t *testing.T) {
	b := newBackend(t)
	b.launcher.debug = nil
	if os.Getenv("PADDOCK_TEST_DEBUG") != "" {
		b.launcher.debug = os.Stderr
	}
	dir := folderFor(t, "w")
	spec := sandbox.Spec{Owner: "alice", Runtime: "python", Box: "one", Mounts: []sandbox.Mount{{Guest: "/workspace", Host: dir, DiskBytes: 1 << 30}}, Dir: "/workspace"}
	if os.Getenv("RO") != "" {
		spec.Mounts, spec.Dir = nil, "/tmp"
	}
	in := start(t, b, spec)
	exit, err := in.Run(t.Context(), sandbox.Command{Code: "x = 41; import os, subprocess; f = open('a','w') if os.access('.', os.W_OK) else None\nf and f.write('hello')\np = subprocess.Popen(['sleep','100'])"})
	t.Log(exit, err)
	f, err := os.CreateTemp(t.TempDir(), "state")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.Truncate(0)
		f.Seek(0, 0)
		began := time.Now()
		if err := in.machine.client.Hold(t.Context(), func() error { return in.machine.box.save(t.Context(), f) }); err != nil {
			t.Fatal(err)
		}
		info, _ := f.Stat()
		t.Log("saved", time.Since(began), info.Size())
		exit, err = in.Run(t.Context(), sandbox.Command{Code: "x += 1; x"})
		t.Log(exit.Result, exit.Error, err)
	}
	in.Close()
	for range 3 {
		began := time.Now()
		p, err := b.plan(t.Context(), in.machine.spec)
		if err != nil {
			t.Fatal(err)
		}
		f.Seek(0, 0)
		p.state = f
		box, err := b.launcher.boot(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log("restored", time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		c, all, err := wire.NewRestoredClient(ctx, box.stream, wire.RestoredBody{Anew: true})
		cancel()
		if err != nil {
			t.Fatal(err, box.close())
		}
		t.Log(all, time.Since(began))
		again, err := c.Adopt(all[0])
		if err != nil {
			t.Fatal(err)
		}
		exit, err = again.Run(t.Context(), sandbox.Command{Code: "f and f.write('more') and f.flush(); import uuid; (x, p.poll(), __import__('random').random(), uuid.uuid4())"})
		t.Log(exit.Result, exit.Error, err, time.Since(began))
		c.Close()
		box.close()
	}
}
