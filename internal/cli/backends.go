package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"paddock/internal/cli/config"
	"paddock/internal/image"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/session"
)

// makeBackends makes what programs run in. Life is nil where nothing will run.
type makeBackends func(at places, conf *config.Config, life *session.Life, log *slog.Logger) (backends, error)

// backends are those that programs run in, the default isolation first.
type backends []sandbox.Backend

// runs tells whether one of them has this name.
func (all backends) runs(name string) bool {
	return slices.ContainsFunc(all, func(b sandbox.Backend) bool { return b.Name() == name })
}

// named gives those that have this name.
func (all backends) named(name string) backends {
	return slices.DeleteFunc(slices.Clone(all), func(b sandbox.Backend) bool { return b.Name() != name })
}

// Close ends all of them.
func (all backends) Close() error {
	var errs []error
	for _, b := range all {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// newBackends makes both kinds of isolation; what does not work on this machine
// says so when it is asked.
func newBackends(at places, conf *config.Config, life *session.Life, log *slog.Logger) (backends, error) {
	w, err := newWasm(at, conf, life, log)
	if err != nil {
		return nil, err
	}
	l, err := newLinux(at, conf, life, log)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	all := backends{w, l}
	if conf.Sandbox.Isolation == l.Name() {
		slices.Reverse(all)
	}
	return all, nil
}

func newWasm(at places, conf *config.Config, life *session.Life, log *slog.Logger) (sandbox.Backend, error) {
	c := wasm.Config{CacheDir: at.cache, OwnersDir: filepath.Join(at.state, "owners"), SharedDir: filepath.Join(at.state, "shared"), Inherit: life.File(), Log: log}
	if conf.Policy.Fuel > 0 { // every session will be metered
		c.Engine = wasm.Wazero
	}
	b, err := wasm.New(c)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func newLinux(at places, conf *config.Config, life *session.Life, log *slog.Logger) (sandbox.Backend, error) {
	names := imageNames(conf)
	find := func(ctx context.Context, called string) (linux.Image, error) {
		store, err := newImages(at, conf)
		if err != nil {
			return linux.Image{}, err
		}
		ref := names.Resolve(called)
		if ref == image.Host {
			return linux.Image{Host: true}, nil
		}
		root, release, err := store.Rootfs(ctx, ref)
		if err != nil {
			return linux.Image{}, err
		}
		return linux.Image{Dir: root.Dir, ID: root.ID, Env: root.Settings.Env, Release: release}, nil
	}
	c := linux.Config{
		Dir: filepath.Join(at.state, "boxes"), CacheDir: at.cache, Image: names.Resolve(""), Images: find, Inherit: life.File(), Log: log,
		CPUs: float64(conf.Sandbox.CPUs), Processes: int(conf.Sandbox.Processes), RootBytes: conf.Sandbox.RootBytes,
	}
	b, err := linux.New(c)
	if err != nil {
		return nil, fmt.Errorf("making Linux sandboxes: %w", err)
	}
	return b, nil
}
