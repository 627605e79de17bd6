package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"paddock/internal/image"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/session"
)

// MakeBackends makes what programs run in, as an Env says. life and translate are nil if no
// program will run.
type MakeBackends func(env *Env, life *session.Life, translate sandbox.Translator) (Backends, error)

// Backends are those that programs run in, the default isolation first.
type Backends []sandbox.Backend

// runs reports whether one of them has this name.
func (all Backends) runs(name string) bool {
	return slices.ContainsFunc(all, func(b sandbox.Backend) bool { return b.Name() == name })
}

// Named gives those that have this name.
func (all Backends) Named(name string) Backends {
	return slices.DeleteFunc(slices.Clone(all), func(b sandbox.Backend) bool { return b.Name() != name })
}

// Close ends all of them.
func (all Backends) Close() error {
	var errs []error
	for _, b := range all {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// MakeBackends makes what programs run in, for a command that runs none.
func (env *Env) MakeBackends() (Backends, error) { return env.newBackends(nil, nil) }

func (env *Env) newBackends(life *session.Life, translate sandbox.Translator) (Backends, error) {
	if env.NewBackends != nil {
		return env.NewBackends(env, life, translate)
	}
	return NewBackends(env, life, translate)
}

// NewBackends makes both kinds of isolation; what does not work on this machine
// says so when it is asked.
func NewBackends(env *Env, life *session.Life, translate sandbox.Translator) (Backends, error) {
	w, err := env.newWasm(life, translate)
	if err != nil {
		return nil, err
	}
	l, err := env.newLinux(life, translate)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	all := Backends{w, l}
	if env.Config.Sandbox.Isolation == l.Name() {
		slices.Reverse(all)
	}
	return all, nil
}

func (env *Env) newWasm(life *session.Life, translate sandbox.Translator) (sandbox.Backend, error) {
	c := wasm.Config{
		CacheDir: env.CacheDir, OwnersDir: filepath.Join(env.StateDir, "owners"), SharedDir: filepath.Join(env.StateDir, "shared"),
		Inherit: life.File(), TypeScript: translate, Log: env.Log,
	}
	if env.Config.Policy.Fuel > 0 { // every session will be metered
		c.Engine = wasm.Wazero
	}
	b, err := wasm.New(c)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (env *Env) newLinux(life *session.Life, translate sandbox.Translator) (sandbox.Backend, error) {
	names := env.ImageNames()
	find := func(ctx context.Context, called string) (linux.Image, error) {
		store, err := env.Images()
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
		Dir: filepath.Join(env.StateDir, "boxes"), CacheDir: env.CacheDir, Image: names.Resolve(""), Images: find, Inherit: life.File(), TypeScript: translate, Log: env.Log,
		CPUs: float64(env.Config.Sandbox.CPUs), Processes: int(env.Config.Sandbox.Processes), RootBytes: env.Config.Sandbox.RootBytes,
	}
	b, err := linux.New(c)
	if err != nil {
		return nil, fmt.Errorf("making Linux sandboxes: %w", err)
	}
	return b, nil
}

// preparer is a backend that makes something once for each machine.
type preparer interface{ Prepare(context.Context) error }

// NeedPreparing reports whether one of them makes something once for each machine.
func (all Backends) NeedPreparing() bool {
	return slices.ContainsFunc(all, func(b sandbox.Backend) bool { _, ok := b.(preparer); return ok })
}

// Prepare makes what the backends need on this machine.
func (all Backends) Prepare(ctx context.Context) error {
	for _, b := range all {
		if w, ok := b.(preparer); ok {
			if err := w.Prepare(ctx); err != nil {
				return fmt.Errorf("preparing the interpreters: %w", err)
			}
		}
	}
	return nil
}
