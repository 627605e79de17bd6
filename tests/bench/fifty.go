package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/session"
)

//go:embed calls.py
var callsPython string

const (
	fiftyCalls = 50
	fiftyFail  = 3 // of the calls
)

// calls are those of calls.py.
func calls() ([]string, error) {
	all := strings.Split(callsPython, "\n#%%\n")[1:]
	if len(all) != fiftyCalls {
		return nil, fmt.Errorf("calls.py has %d calls, not %d", len(all), fiftyCalls)
	}
	return all, nil
}

// benchFifty is what a realistic session writes to the disk, and what it takes
// at the end.
func benchFifty(ctx context.Context, cache, dir string, t *table, _ int) error {
	p, err := openPlace(cache, filepath.Join(dir, "fifty"), nil)
	if err != nil {
		return err
	}
	defer p.close()
	all, err := calls()
	if err != nil {
		return err
	}
	i, err := p.Create(ctx, session.Local, "", session.Settings{Language: "python"})
	if err != nil {
		return err
	}
	failed := 0
	var beyond sample
	for n, code := range all {
		begin := time.Now()
		r, err := p.Execute(ctx, session.Local, i.ID, session.Request{Code: code, Language: "python"})
		if err != nil {
			return fmt.Errorf("call %d: %w", n+1, err)
		}
		beyond = append(beyond, time.Since(begin)-r.Wall)
		if r.Exit.Error != nil {
			failed++
		}
	}
	if failed != fiftyFail {
		return fmt.Errorf("%d of the calls failed, not %d", failed, fiftyFail)
	}
	list, err := p.Checkpoints(session.Local, i.ID)
	if err != nil {
		return err
	}
	var written, large int64
	for _, c := range list {
		written, large = written+c.Bytes, max(large, c.Bytes)
	}
	taken, err := onDisk(p.dir)
	if err != nil {
		return err
	}
	beyond = beyond.sorted()
	whole, packed, err := fiftyWhole(ctx, p.backend, p.dir, all)
	if err != nil {
		return err
	}
	mib := func(n int64) string { return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20)) }
	row := func(what, value, base, baseValue string, ratio float64) {
		t.rows = append(t.rows, []string{t.engine, what, value, base, baseValue, fmt.Sprintf("%.3fx", ratio), ""})
	}
	row("50 calls: bytes of all checkpoints", mib(written), "whole images, compressed", mib(packed), float64(written)/float64(packed))
	row("50 calls: bytes of all checkpoints", mib(written), "whole images as they are", mib(whole), float64(written)/float64(whole))
	row("50 calls: bytes of a checkpoint (mean)", kib(float64(written)/fiftyCalls), "the largest", kib(float64(large)), float64(written)/fiftyCalls/float64(large))
	row("50 calls: the state folder in blocks, files included", mib(taken), "the checkpoints' bytes", mib(written), float64(taken)/float64(written))
	t.add("50 calls: a call beyond its run (p50)", beyond.at(0.5), beyond.at(0.9), "p90", "")
	return nil
}

// sized is a writer that counts.
type sized int64

func (s *sized) Write(p []byte) (int, error) {
	*s += sized(len(p))
	return len(p), nil
}

// fiftyWhole is what whole images would take after each call: as they are but
// for pages of zeros, and compressed.
func fiftyWhole(ctx context.Context, b *wasm.Backend, dir string, all []string) (plain, packed int64, err error) {
	host := filepath.Join(dir, "owners", "bench", "files")
	if err := os.MkdirAll(host, 0o777); err != nil {
		return 0, 0, err
	}
	in, err := b.Start(ctx, sandbox.Spec{
		Owner: "bench", Runtime: "python", Dir: "/workspace", Limits: sandbox.Limits{MemoryBytes: 512 << 20}, Snapshots: true,
		Mounts: []sandbox.Mount{{Guest: "/workspace", Host: host, DiskBytes: 256 << 20}},
	})
	if err != nil {
		return 0, 0, err
	}
	defer in.Close()
	var size sized
	for _, code := range all {
		if _, err := in.Run(ctx, sandbox.Command{Code: code}); err != nil {
			return 0, 0, err
		}
		s, err := in.(sandbox.Snapshotter).Snapshot(ctx, &size, sandbox.SnapshotOptions{Portable: true})
		if err != nil {
			return 0, 0, err
		}
		plain += s.Bytes
	}
	return plain, int64(size), nil
}
