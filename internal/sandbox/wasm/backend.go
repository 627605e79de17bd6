// Package wasm is the isolation that works everywhere: interpreters compiled
// to WebAssembly, in worker processes of one owner each. This package is the
// server's half; package worker is the other.
package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"paddock/guest"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/confine"
	"paddock/internal/sandbox/wire"
)

// Name is the isolation's name.
const Name = "wasm"

// Config sets a Backend up.
type Config struct {
	// CacheDir keeps compiled code and captured memories; it is made when it
	// is missing. It may be shared by any number of processes.
	CacheDir string
	// OwnersDir holds a folder for each owner; a Spec's mounts lie in its
	// owner's. An owner's worker process can change nothing outside of it.
	OwnersDir string
	// SharedDir holds a folder for each owner, of the same name as in OwnersDir, in which
	// a Spec's mounts may lie that are ReadOnly: what several of the owner's instances are
	// shown. The owner's worker process can only read there. Empty: there are none.
	SharedDir string
	// UID and GID are whom a worker becomes when this process runs as root;
	// zero: 65534, nobody.
	UID, GID int
	// Engine is Native or Wazero; empty: Native where this binary and this
	// machine have it, else Wazero. Metered instances run on Wazero always.
	Engine string
	// Inherit is a file that every worker has open for as long as it lives, so that
	// a lock on it shows that one does; nil: none.
	Inherit *os.File
	// TypeScript translates an owner's TypeScript; nil: programs in TypeScript and imports
	// of it fail, with an error that says that it is not available.
	TypeScript sandbox.Translator
	// Log takes what the workers complain about; nil: nothing is logged.
	Log *slog.Logger
}

// Backend runs guests in worker processes. It is safe for concurrent use.
type Backend struct {
	config Config

	engine  *engine // for whoever has no special wishes
	metered *engine // counts fuel
	probe   func() sandbox.Probe

	mu      sync.Mutex // guards what follows
	workers map[string]*process
	closed  bool
}

var _ sandbox.Backend = (*Backend)(nil)

// New checks config; it starts nothing.
func New(config Config) (*Backend, error) {
	if config.CacheDir == "" || config.OwnersDir == "" {
		return nil, errors.New("wasm: a cache folder and a folder for owners are needed")
	}
	for _, dir := range []*string{&config.CacheDir, &config.OwnersDir, &config.SharedDir} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, err
		}
		*dir = abs
	}
	if config.UID == 0 {
		config.UID = 65534
	}
	if config.GID == 0 {
		config.GID = 65534
	}
	if os.Geteuid() != 0 {
		config.UID, config.GID = 0, 0
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	name, why, err := chooseEngine(config.Engine, config.CacheDir)
	if err != nil {
		return nil, fmt.Errorf("choosing an engine: %w", err)
	}
	b := &Backend{config: config, workers: map[string]*process{}}
	b.probe = sync.OnceValue(func() sandbox.Probe { return probe(name, why) })
	b.metered = &engine{name: Wazero, cacheDir: config.CacheDir, log: config.Log}
	b.engine = b.metered
	if name != Wazero {
		b.engine = &engine{name: name, cacheDir: config.CacheDir, log: config.Log}
	}
	return b, nil
}

// Name is "wasm".
func (b *Backend) Name() string { return Name }

// FileOwner is the user and group as whom guests touch files, so that what is
// put into a workspace from outside belongs to them; zeros: this process's.
func (b *Backend) FileOwner() (uid, gid int) { return b.config.UID, b.config.GID }

// Probe tells what works here. It starts no process, and looks once.
func (b *Backend) Probe(context.Context) sandbox.Probe {
	p := b.probe()
	p.Runtimes, p.Protections = slices.Clone(p.Runtimes), slices.Clone(p.Protections)
	return p
}

func probe(engine, why string) sandbox.Probe {
	p := sandbox.Probe{Engine: engine, Protections: append([]sandbox.Protection{bounds(engine, why)}, confine.Probe()...)}
	for _, name := range guest.Names() {
		g, err := guest.Open(name)
		if err != nil {
			f := fault.Of(err)
			p.Reason, p.Hint = f.Message, f.Hint
			continue
		}
		p.Runtimes = append(p.Runtimes, runtimeOf(g))
	}
	p.Available = len(p.Runtimes) > 0
	return p
}

func runtimeOf(g *guest.Guest) sandbox.Runtime {
	if g.Name == "python" {
		return sandbox.Runtime{
			Name: g.Name, Languages: []string{"python"}, Version: g.Version,
			Description: "CPython " + g.Version + " with its standard library (sqlite3, zlib, lzma, hashlib, decimal, asyncio, urllib; no threads, servers or subprocesses), top-level await",
		}
	}
	return sandbox.Runtime{
		Name: g.Name, Languages: []string{"javascript", "typescript"}, Version: g.Version,
		Description: g.Version + ": ES2023 and later, modules, top-level await, timers, console, fetch, fs, path, URL, crypto.getRandomValues; TypeScript is translated",
	}
}

// Prepare makes sure that the cache holds what instances need that are not
// metered: the guests' code and captured memories. The first time that takes
// up to seconds, then nothing.
func (b *Backend) Prepare(ctx context.Context) error { return b.engine.prepare(ctx) }

// Start makes an interpreter in its owner's worker.
func (b *Backend) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	folder, body, err := b.body(spec)
	if err != nil {
		return nil, err
	}
	e := b.engine
	if spec.Limits.Metered {
		e = b.metered
	}
	if err := e.prepare(ctx); err != nil {
		return nil, fmt.Errorf("preparing the guests: %w", err)
	}
	p, err := b.worker(ctx, e, spec.Owner, folder)
	if err != nil {
		return nil, err
	}
	var layers []wire.Layer
	if spec.Resume != nil {
		body.Resume = &wire.ResumeBody{State: spec.Resume.State, Reseed: spec.Resume.Reseed}
		layers = spec.Resume.Layers
	}
	return b.startIn(ctx, p, e, spec, folder, body, layers...)
}

func (b *Backend) startIn(ctx context.Context, p *process, e *engine, spec sandbox.Spec, folder string, body wire.StartBody, layers ...wire.Layer) (sandbox.Instance, error) {
	in, err := p.client.Start(ctx, body, layers...)
	if err != nil {
		return nil, fmt.Errorf("starting an interpreter: %w", err)
	}
	return &instance{
		Instance: in, backend: b, process: p, engine: e,
		owner: spec.Owner, folder: folder, runtime: spec.Runtime, metered: spec.Limits.Metered,
	}, nil
}

// instance is one in a worker.
type instance struct {
	*wire.Instance
	backend                *Backend
	process                *process
	engine                 *engine
	owner, folder, runtime string
	metered                bool
}

var (
	_ sandbox.Snapshotter = (*instance)(nil)
	_ sandbox.Forker      = (*instance)(nil)
)

// Fork starts an interpreter in the same worker. One whose fuel shall be
// counted otherwise needs another engine, in which nothing is at hand.
func (in *instance) Fork(ctx context.Context, mark string, spec sandbox.Spec) (sandbox.Instance, error) {
	folder, body, err := in.backend.body(spec)
	if err != nil {
		return nil, err
	}
	switch {
	case spec.Owner != in.owner || folder != in.folder || spec.Runtime != in.runtime || spec.Resume != nil:
		return nil, fault.New(fault.Invalid, "a fork has the owner and the runtime of what it is forked from, and no other state")
	case spec.Limits.Metered != in.metered:
		return nil, fault.New(fault.NotFound, "the engine that the fork needs has that state not at hand").
			WithHint("it can be resumed from its snapshots")
	}
	body.Fork = &wire.ForkBody{ID: in.ID(), Mark: mark}
	return in.backend.startIn(ctx, in.process, in.engine, spec, folder, body)
}

// Run sees to it that fuel is counted where it is bounded.
func (in *instance) Run(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	if cmd.Limits.Fuel > 0 && !in.metered {
		return sandbox.Exit{}, fault.New(fault.Unsupported, "fuel is not counted in this interpreter").
			WithHint("it has to be asked for when the interpreter is started")
	}
	exit, err := in.Instance.Run(ctx, cmd)
	exit.Engine, exit.Usage.FuelLimit = in.engine.name, cmd.Limits.Fuel
	return exit, err
}

// body translates spec for the worker, but for where the state comes from, and
// gives the owner's folder.
func (b *Backend) body(spec sandbox.Spec) (string, wire.StartBody, error) {
	body := wire.StartBody{
		Runtime: spec.Runtime, Dir: spec.Dir, Env: spec.Env, MemoryBytes: spec.Limits.MemoryBytes, Snapshots: spec.Snapshots,
	}
	if !slices.Contains(guest.Names(), spec.Runtime) {
		return "", body, fault.New(fault.Unsupported, "there is no runtime called %q", spec.Runtime).
			WithHint("the runtimes are %s", strings.Join(guest.Names(), " and "))
	}
	if _, err := guest.Open(spec.Runtime); err != nil {
		return "", body, err
	}
	folder := ""
	for _, m := range spec.Mounts {
		first, rest, ok := below(b.config.OwnersDir, m.Host)
		shared := false
		if !ok && m.ReadOnly {
			first, rest, shared = below(b.config.SharedDir, m.Host)
		}
		if !ok && !shared || folder != "" && first != folder {
			return "", body, fault.New(fault.Invalid, "a mount lies outside of its owner's folder")
		}
		folder = first
		body.Mounts = append(body.Mounts, wire.MountBody{
			Guest: m.Guest, Aliases: m.Aliases, Host: rest, ReadOnly: m.ReadOnly, Shared: shared, DiskBytes: m.DiskBytes,
		})
	}
	if folder == "" {
		folder = "none" // an owner without files has no use for a folder of its own
	}
	return folder, body, nil
}

// below tells in which owner's folder of dir a path lies, and where in that; dir "": in
// none.
func below(dir, name string) (owner, rest string, ok bool) {
	if dir == "" {
		return "", "", false
	}
	rel, err := filepath.Rel(dir, name)
	if err != nil {
		return "", "", false
	}
	owner, rest, ok = strings.Cut(filepath.ToSlash(rel), "/")
	return owner, rest, ok && owner != ".."
}

// worker gives the owner's process of an engine, starting it where there is none. While
// one owner's starts, the others wait: it takes a fraction of a second.
func (b *Backend) worker(ctx context.Context, e *engine, owner, folder string) (*process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fault.New(fault.Unavailable, "paddock is shutting down")
	}
	key := owner + "\x00" + folder + "\x00" + e.name
	if p := b.workers[key]; p != nil {
		select {
		case <-p.client.Done():
		default:
			return p, nil
		}
	}
	dir, shared := filepath.Join(b.config.OwnersDir, folder), ""
	err := os.MkdirAll(dir, 0o700)
	if err == nil && b.config.SharedDir != "" {
		shared = filepath.Join(b.config.SharedDir, folder)
		err = os.MkdirAll(shared, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("making the owner's folder: %w", err)
	}
	p, err := startProcess(ctx, e, b.config, dir, shared)
	if err != nil && ctx.Err() == nil { // perhaps its cache is damaged
		err = errors.Join(err, e.repair(ctx))
		if again, failed := startProcess(ctx, e, b.config, dir, shared); failed == nil {
			p, err = again, nil
		}
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the worker process did not start").WithHint("paddock doctor says what is missing").WithCause(err)
	}
	if b.config.TypeScript != nil {
		p.client.Translate(func(ctx context.Context, s sandbox.Source) (sandbox.Translation, error) {
			return b.config.TypeScript(ctx, owner, s)
		})
	}
	for _, w := range p.ready.Protections {
		if !w.Active {
			b.config.Log.Debug("a protection is not in force", "protection", w.Name, "detail", w.Detail)
		}
	}
	b.workers[key] = p
	return p, nil
}

// Close ends every worker and waits for them.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	workers := b.workers
	b.workers = map[string]*process{}
	b.mu.Unlock()
	for _, p := range workers {
		p.close()
	}
	return nil
}
