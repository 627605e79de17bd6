package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/blob"
	"paddock/internal/session"
)

// callers is how many sessions call at once, where it is more than one.
const callers = 32

// benchMany is how many small calls a second many sessions make together, of which all is
// kept, beside what one session makes alone, and beside calls of which nothing is kept.
func benchMany(ctx context.Context, cache, dir string, t *table, n int) error {
	files := counted{blob.OS, new(atomic.Int64)}
	p, err := openPlace(cache, filepath.Join(dir, "many"), func(c *session.Config) {
		c.Files = files
		c.MemoryBytes = 64 << 20
	})
	if err != nil {
		return err
	}
	defer p.close()
	type figures struct{ rate, syncs float64 }
	rates := map[string]figures{}
	for _, ephemeral := range []bool{true, false} {
		for _, sessions := range []int{1, callers} {
			rate, syncs, err := p.together(ctx, sessions, max(2*n/sessions, 10), ephemeral, files.syncs)
			if err != nil {
				return err
			}
			rates[fmt.Sprint(ephemeral, sessions)] = figures{rate, syncs}
		}
	}
	for _, ephemeral := range []bool{true, false} {
		kind := "kept"
		if ephemeral {
			kind = "not kept"
		}
		target := ">= 8x, <= 0.2 syncs"
		if ephemeral {
			target = ""
		}
		one, many := rates[fmt.Sprint(ephemeral, 1)], rates[fmt.Sprint(ephemeral, callers)]
		t.rows = append(t.rows, []string{t.engine, fmt.Sprintf("calls a second of %d sessions, %s", callers, kind),
			fmt.Sprintf("%.0f (%.2f syncs each)", many.rate, many.syncs), "of one session", fmt.Sprintf("%.0f (%.2f)", one.rate, one.syncs), fmt.Sprintf("%.2fx", many.rate/one.rate), target})
	}
	return nil
}

// together has so many sessions make n calls each, and gives the calls a second of all and
// the syncs of each.
func (p *place) together(ctx context.Context, sessions, n int, ephemeral bool, syncs *atomic.Int64) (rate, synced float64, err error) {
	settings := session.Settings{Language: "python", Ephemeral: ephemeral}
	ids := make([]session.ID, sessions)
	for k := range ids {
		if ids[k], err = p.open(ctx, settings, first["python"]); err != nil {
			return 0, 0, err
		}
	}
	var (
		group  sync.WaitGroup
		failed atomic.Pointer[error]
		before = syncs.Load()
		begin  = time.Now()
	)
	for _, id := range ids {
		group.Go(func() {
			for range n {
				if _, err := p.run(ctx, id, "python", "x += 1"); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(begin)
	synced = float64(syncs.Load()-before) / float64(sessions*n)
	if e := failed.Load(); e != nil {
		return 0, 0, *e
	}
	for _, id := range ids {
		if err := p.Destroy(ctx, session.Local, id); err != nil {
			return 0, 0, err
		}
	}
	return float64(sessions*n) / took.Seconds(), synced, nil
}
