package table

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"
)

const (
	// soon and seldom bound how long it takes to see what another process changed.
	soon   = 50 * time.Millisecond
	seldom = 2 * time.Second
	// grain is how exactly a file system knows when a folder was changed.
	grain = 3 * time.Second
)

// Watch implements [Table]. It looks at the folders now and then, and reads none in which
// nothing has changed.
func (f *Folder) Watch(ctx context.Context, folder string, told func(name string)) error {
	if folder != "" {
		if err := Check(folder); err != nil {
			return err
		}
	}
	w := watching{table: f, told: told, dirs: map[string]*watchedDir{}}
	for pause := soon; ; pause = min(pause*3/2, seldom) {
		changed := f.change()
		if err := w.look(folder); err != nil {
			return f.failed(err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// watching is what one Watch knows.
type watching struct {
	table *Folder
	told  func(string)
	dirs  map[string]*watchedDir
}

type watchedDir struct {
	settled time.Time // when the folder was changed last, where that is long enough ago
	files   map[string]fs.FileInfo
	subs    []string
}

// look tells what has changed below a folder.
func (w *watching) look(folder string) error {
	info, err := w.table.config.Files.Stat(w.table.path(folder))
	if errors.Is(err, fs.ErrNotExist) {
		w.gone(folder)
		return nil
	}
	if err != nil {
		return err
	}
	d := w.dirs[folder]
	if d == nil {
		d = &watchedDir{}
		w.dirs[folder] = d
	}
	if !info.ModTime().Equal(d.settled) {
		if err := w.list(folder, d); err != nil {
			return err
		}
		if d.settled = (time.Time{}); info.ModTime().Before(time.Now().Add(-grain)) {
			d.settled = info.ModTime()
		}
	}
	for _, sub := range d.subs {
		if err := w.look(sub); err != nil {
			return err
		}
	}
	return nil
}

// list reads a folder and tells which of its own documents have changed.
func (w *watching) list(folder string, d *watchedDir) error {
	entries, err := w.table.config.Files.ReadDir(w.table.path(folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, subs := map[string]fs.FileInfo{}, []string{}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		if e.IsDir() {
			subs = append(subs, name)
			continue
		}
		if info, err := e.Info(); err == nil && w.table.document(name) {
			files[name] = info
		}
	}
	was := d.files
	d.files, d.subs = files, subs
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if old := was[name]; old == nil || !same(old, files[name]) {
			w.told(name)
		}
	}
	for name := range was {
		if files[name] == nil {
			w.told(name)
		}
	}
	return nil
}

// gone tells of what was in a folder that is not there any more.
func (w *watching) gone(folder string) {
	d := w.dirs[folder]
	if d == nil {
		return
	}
	delete(w.dirs, folder)
	for name := range d.files {
		w.told(name)
	}
	for _, sub := range d.subs {
		w.gone(sub)
	}
}
