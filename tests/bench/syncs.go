package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"

	"paddock/internal/blob"
	"paddock/internal/session"
)

// counted are the system's files, and how often something was synced.
type counted struct {
	blob.Files
	syncs *atomic.Int64
}

func (c counted) Create(name string) (blob.File, error) { return c.opened(c.Files.Create(name)) }
func (c counted) Append(name string) (blob.File, error) { return c.opened(c.Files.Append(name)) }

func (c counted) opened(f blob.File, err error) (blob.File, error) {
	if err != nil {
		return nil, err
	}
	return countedFile{f, c.syncs}, nil
}

func (c counted) SyncDir(name string) error {
	c.syncs.Add(1)
	return c.Files.SyncDir(name)
}

func (c counted) SyncAll(dir string) error {
	c.syncs.Add(1)
	return c.Files.(interface{ SyncAll(string) error }).SyncAll(dir)
}

func (c counted) SyncFile(name string) error {
	c.syncs.Add(1)
	return c.Files.SyncFile(name)
}

type countedFile struct {
	blob.File
	syncs *atomic.Int64
}

func (f countedFile) Datasync() error {
	f.syncs.Add(1)
	return f.File.Datasync()
}

func (f countedFile) Sync() error {
	f.syncs.Add(1)
	return f.File.Sync()
}

// benchSyncs is how often the disk is waited for: what that takes depends on it
// alone.
func benchSyncs(ctx context.Context, cache, dir string, t *table, _ int) error {
	files := counted{blob.OS, new(atomic.Int64)}
	p, err := openPlace(cache, filepath.Join(dir, "syncs"), func(c *session.Config) { c.Files = files })
	if err != nil {
		return err
	}
	defer p.close()
	var id, fork session.ID
	run := func(id session.ID, code string) error {
		_, err := p.run(ctx, id, "python", code)
		return err
	}
	for _, step := range []struct {
		name  string
		do    func() error
		times int
	}{
		{"", func() error { _, err := p.open(ctx, session.Settings{Language: "python"}, "x = 0"); return err }, 1}, // the owner's folders
		{"a new session", func() error {
			i, err := p.Create(ctx, session.Local, "", session.Settings{Language: "python"})
			id = i.ID
			return err
		}, 1},
		{"its first call", func() error { return run(id, "x = 0") }, 1},
		{"a call (x += 1)", func() error { return run(id, "x += 1") }, 20},
		{"a call that changes nothing", func() error { return run(id, "None") }, 20},
		{"a call that writes three files", func() error { return run(id, "x += 1\nfor n in '123': open(n, 'w').write(f'{n} {x}')") }, 20},
		{"undo", func() error { _, err := p.Undo(ctx, session.Local, id); return err }, 10},
		{"a fork", func() error {
			made, err := p.Fork(ctx, session.Local, id, "", 1)
			if err == nil {
				fork = made[0].ID
			}
			return err
		}, 1},
		{"its first call, x += 1", func() error { return run(fork, "x += 1") }, 1},
		{"sleep", func() error { return p.Sleep(session.Local, id) }, 1},
		{"wake, with x += 1", func() error { return run(id, "x += 1") }, 1},
	} {
		before := files.syncs.Load()
		for range step.times {
			if err := step.do(); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
		}
		if step.name != "" {
			target := ""
			if step.times > 1 && strings.HasPrefix(step.name, "a call") {
				target = "<= 1.2"
			}
			each := float64(files.syncs.Load()-before) / float64(step.times)
			t.rows = append(t.rows, []string{t.engine, "syncs of the disk: " + step.name, fmt.Sprintf("%.1f", each), "", "", "", target})
		}
	}
	return nil
}
