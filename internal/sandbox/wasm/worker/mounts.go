package worker

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"paddock/guest"
	"paddock/internal/sandbox/wasm/wasi"
	"paddock/internal/sandbox/wire"
)

// libraryPath is where a guest finds its language's own library.
const libraryPath = "/lib/python"

// loadAll loads every program there is.
func (l *loader) loadAll(ctx context.Context) error {
	for _, name := range guest.Available() {
		if _, err := l.load(ctx, name, false); err != nil {
			return err
		}
	}
	return nil
}

// folders are the owner's folders that are mounted. One folder has one
// wasi.Dir, so that its limit holds for all interpreters that share it. It
// belongs to the worker and is guarded by its mu.
type folders map[string]*sharedDir

type sharedDir struct {
	dir   *wasi.Dir
	users int
}

// openMounts opens what an instance sees. On an error nothing stays open.
func (w *worker) openMounts(bodies []wire.MountBody) (mounts []mount, err error) {
	for _, b := range bodies {
		m, err := w.openMount(b)
		if err != nil {
			w.closeMounts(mounts)
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// mount is a folder as one instance sees it.
type mount struct {
	wasi.Mount
	key string
}

func (w *worker) openMount(b wire.MountBody) (mount, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprintf("%s\x00%v\x00%v\x00%d", b.Host, b.ReadOnly, b.Shared, b.DiskBytes)
	shared := w.folders[key]
	if shared == nil {
		from := w.root
		if b.Shared {
			from = w.shared
		}
		if from == nil || b.Shared && !b.ReadOnly {
			return mount{}, fmt.Errorf("there is no such folder for %s", b.Guest)
		}
		root, err := from.OpenRoot(b.Host)
		if err != nil {
			return mount{}, fmt.Errorf("opening the folder for %s: %w", b.Guest, err)
		}
		shared = &sharedDir{dir: wasi.NewDir(root, b.DiskBytes, b.ReadOnly)}
		w.folders[key] = shared
	}
	shared.users++
	return mount{wasi.Mount{Guest: b.Guest, Aliases: b.Aliases, Dir: shared.dir}, key}, nil
}

func (w *worker) closeMounts(mounts []mount) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range mounts {
		shared := w.folders[m.key]
		if shared.users--; shared.users == 0 {
			delete(w.folders, m.key)
			// Files that are open stay so; there is nothing to be done about an error.
			_ = shared.dir.Close()
		}
	}
}

// openSystem makes the guest's world: its folders, and its language's library.
func (in *instance) openSystem() (err error) {
	var mounts []wasi.Mount
	if in.program.library != nil {
		mounts = append(mounts, wasi.Mount{Guest: libraryPath, Archive: in.program.library})
	}
	for _, m := range in.mounts {
		mounts = append(mounts, m.Mount)
	}
	config := wasi.Config{
		Mounts: mounts,
		Stdout: func(p []byte) { in.forwardOutput(0, p) },
		Stderr: func(p []byte) { in.forwardOutput(1, p) },
		Stdin:  in.in.read,
		Random: rand.Reader,
		CPU:    func() time.Duration { return in.cpu + threadTime() - in.began },
		Interrupted: func() <-chan struct{} {
			soft, _ := in.ends.Control.Stops()
			return soft
		},
	}
	if in.program.image == nil {
		still(&config)
	}
	in.system, err = wasi.New(config)
	in.script = scriptHost{system: in.system, ends: in.ends, stdin: &in.in, print: in.forwardOutput}
	return err
}

// forwardOutput takes what the guest prints: the server's, but for what it prints
// while the image is captured.
func (in *instance) forwardOutput(which int, p []byte) {
	if in.worker == nil {
		_, _ = in.log.Write(p) // the log of a preparation: nobody may be reading
		return
	}
	in.ends.Out.Write(which, p)
}
