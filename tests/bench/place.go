package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/session"
)

// place is a state folder with sessions in it, as a server has it: a manager
// with a backend.
type place struct {
	*session.Manager
	dir     string
	backend *wasm.Backend  // nil: boxes
	boxes   *linux.Backend // nil: backend
}

// openPlace opens a state folder, which is made where it is not there.
func openPlace(cache, dir string, change func(*session.Config)) (*place, error) {
	b, err := wasm.New(wasm.Config{CacheDir: cache, OwnersDir: filepath.Join(dir, "owners")})
	if err != nil {
		return nil, err
	}
	c := session.Config{Dir: dir, Backends: []sandbox.Backend{b}, MemoryBytes: 512 << 20, OwnerDiskBytes: 64 << 30}
	if change != nil {
		change(&c)
	}
	m, err := session.New(c)
	if err != nil {
		b.Close()
		return nil, err
	}
	return &place{Manager: m, dir: dir, backend: b}, nil
}

func (p *place) close() error {
	err := p.Manager.Close()
	if p.boxes != nil {
		return errors.Join(err, p.boxes.Close())
	}
	return errors.Join(err, p.backend.Close())
}

// open makes a session and runs code in it.
func (p *place) open(ctx context.Context, settings session.Settings, code string) (session.ID, error) {
	i, err := p.Create(ctx, session.Local, "", settings)
	if err == nil {
		_, err = p.run(ctx, i.ID, settings.Language, code)
	}
	return i.ID, err
}

// run runs code that has to end well and to be kept.
func (p *place) run(ctx context.Context, id session.ID, language, code string) (session.Result, error) {
	r, err := p.Execute(ctx, session.Local, id, session.Request{Code: code, Language: language})
	switch {
	case err != nil:
	case r.Exit.Error != nil:
		err = fmt.Errorf("%s: %s", r.Exit.Error.Type, r.Exit.Error.Message)
	case r.Notice != "":
		err = fmt.Errorf("a notice: %s", r.Notice)
	}
	return r, err
}

// settled waits until nothing is done in a session any more.
func (p *place) settled(id session.ID) error {
	for {
		i, err := p.Info(session.Local, id)
		if err != nil || i.State != session.Running && i.State != session.Queued {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// newest is the checkpoint that a session is at.
func (p *place) newest(id session.ID) (session.Checkpoint, error) {
	all, err := p.Checkpoints(session.Local, id)
	if err != nil {
		return session.Checkpoint{}, err
	}
	for _, c := range all {
		if c.Current {
			return c, nil
		}
	}
	return session.Checkpoint{}, fmt.Errorf("the session %s is at no checkpoint", id)
}

// synced is how long it takes to write so many bytes, which cannot be made
// smaller, to one file, and to sync it.
func synced(dir string, bytes int64, n int) (time.Duration, error) {
	content := make([]byte, bytes)
	fill(content)
	name := filepath.Join(dir, "baseline")
	s, err := measure(n, func() error {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if _, err = f.Write(content); err == nil {
			err = f.Sync()
		}
		if e := f.Close(); err == nil {
			err = e
		}
		return err
	}, func() error { return os.Remove(name) })
	if err != nil {
		return 0, err
	}
	return s.at(0.5), nil
}

// onDisk is what lies below a folder, each file and folder in blocks of 4 KiB as
// disks have them.
func onDisk(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		const block = 4 << 10
		bytes += (info.Size() + block - 1) / block * block
		return nil
	})
	return bytes, err
}
