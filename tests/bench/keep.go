package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/session"
)

// fill makes bytes that cannot be made smaller.
func fill(b []byte) { rand.NewChaCha8([32]byte{1}).Read(b) }

// benchSessions is what keeping sessions on a disk costs, and what it gives
// back. dir lies on the disk.
func benchSessions(ctx context.Context, cache, binary, dir string, t *table, n int) error {
	p, err := openPlace(cache, filepath.Join(dir, "sessions"), nil)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context, *place, *table, int) error{benchKeep, benchLargeKeeps, benchFork, benchWake} {
		if err := part(ctx, p, t, n); err != nil {
			p.close()
			return err
		}
	}
	if err := p.close(); err != nil {
		return err
	}
	for _, part := range []func(ctx context.Context, cache, dir string, t *table, n int) error{benchSyncs, benchMany, benchWakeAmongMany, benchKeepLater, benchFifty, benchSleepers} {
		if err := part(ctx, cache, dir, t, n); err != nil {
			return err
		}
	}
	return benchProcess(ctx, cache, binary, dir, t, n)
}

// first is the first program of a session whose next ones are "x += 1".
var first = map[string]string{"python": "x = 0", "javascript": "globalThis.x = 0"}

// small measures a run that does next to nothing, in a session of its own.
func (p *place) small(ctx context.Context, settings session.Settings, n int) (session.ID, sample, error) {
	id, err := p.open(ctx, settings, first[settings.Language])
	if err != nil {
		return "", nil, err
	}
	s, err := measure(n, func() error {
		_, err := p.run(ctx, id, settings.Language, "x += 1")
		return err
	}, func() error { return p.settled(id) })
	return id, s, err
}

// benchKeep is a small run of which nothing is kept, and one that is.
func benchKeep(ctx context.Context, p *place, t *table, n int) error {
	for _, l := range languages {
		_, alone, err := p.small(ctx, session.Settings{Language: l.runtime, Ephemeral: true}, n)
		if err != nil {
			return err
		}
		id, kept, err := p.small(ctx, session.Settings{Language: l.runtime}, n)
		if err != nil {
			return err
		}
		c, err := p.newest(id)
		if err != nil {
			return err
		}
		base, err := synced(p.dir, c.Bytes, n)
		if err != nil {
			return err
		}
		t.add(l.runtime+": x += 1, kept on disk (p50)", kept.at(0.5), alone.at(0.5), "the same, not kept (p50)", "")
		t.add(l.runtime+": what keeping it adds (p50)", kept.at(0.5)-alone.at(0.5), base, fmt.Sprintf("writing and syncing its %d bytes", c.Bytes), "<= 0.9 ms, <= 2x")
	}
	return nil
}

// benchKeepLater is a small run that is answered before it is kept.
func benchKeepLater(ctx context.Context, cache, dir string, t *table, n int) error {
	p, err := openPlace(cache, filepath.Join(dir, "later"), func(c *session.Config) { c.AsyncCheckpoint = true })
	if err != nil {
		return err
	}
	defer p.close()
	for _, l := range languages {
		_, alone, err := p.small(ctx, session.Settings{Language: l.runtime, Ephemeral: true}, n)
		if err != nil {
			return err
		}
		_, later, err := p.small(ctx, session.Settings{Language: l.runtime}, n)
		if err != nil {
			return err
		}
		t.add(l.runtime+": x += 1, kept after the answer (p50)", later.at(0.5), alone.at(0.5), "the same, not kept (p50)", "")
	}
	return nil
}

func benchLargeKeeps(ctx context.Context, p *place, t *table, n int) error {
	for _, kind := range touches {
		for _, mib := range sizes {
			if err := benchLargeKeep(ctx, p, t, kind, mib, max(n/20, 5)); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchLargeKeep is a call that changes so much memory, and taking it back, with
// all of it on disk.
func benchLargeKeep(ctx context.Context, p *place, t *table, kind touching, mib, n int) error {
	id, err := p.open(ctx, session.Settings{Language: "python"}, kind.begin(mib))
	if err != nil {
		return err
	}
	var beyond sample
	again := func() error {
		begin := time.Now()
		r, err := p.run(ctx, id, "python", "touch(b)")
		beyond = append(beyond, time.Since(begin)-r.Wall)
		return err
	}
	if err := again(); err != nil {
		return err
	}
	c, err := p.newest(id)
	if err != nil {
		return err
	}
	beyond = nil
	undone, err := measure(n, func() error { _, err := p.Undo(ctx, session.Local, id); return err }, again)
	if err != nil {
		return err
	}
	base, err := synced(p.dir, c.Bytes, n)
	if err != nil {
		return err
	}
	if err := p.Destroy(ctx, session.Local, id); err != nil {
		return err
	}
	name, target := fmt.Sprintf("%d MiB of %s touched, on disk: ", mib, kind.name), ""
	if mib == 64 && kind.name == "text" {
		target = "<= 80 ms"
	}
	t.add(name+"checkpoint (p50)", beyond.sorted().at(0.5), base, fmt.Sprintf("writing and syncing its %.1f MiB", float64(c.Bytes)/(1<<20)), target)
	t.add(name+"undo (p50)", undone.at(0.5), copying(mib, n), fmt.Sprintf("copying %d MiB (p50)", mib), "")
	return p.tidy(ctx)
}

// tidy removes what earlier measurements left, so that they do not slow the
// next ones down.
func (p *place) tidy(ctx context.Context) error {
	_, err := p.Collect(ctx)
	return err
}

// folder makes a folder that guests, who may be other users, can open.
func folder(parent, pattern string) (string, error) {
	dir, err := os.MkdirTemp(parent, pattern)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	return dir, err
}
