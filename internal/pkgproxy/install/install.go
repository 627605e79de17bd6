// Package install puts packages into sessions.
//
// In WebAssembly pip runs in a session of its own, which reaches the front of package
// indexes and nothing else, and what it has installed is put into the session's files in
// one change; for JavaScript the host makes modules of npm's packages, likewise. In a
// Linux machine its own pip and npm run, and install into the session's files.
//
// What did not come to its end leaves nothing behind in WebAssembly. A session has one
// installation at a time.
package install

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/limit"
	"paddock/internal/pkgproxy"
	"paddock/internal/session"
)

// Config sets an Installer up. It is copied.
type Config struct {
	Sessions *session.Manager
	// Packages is the front; nil: there are no indexes, and every installation is a
	// fault.Unsupported. Sessions' programs have to reach it at packages.Host.
	Packages *pkgproxy.Packages
	// Timeout bounds what one installation runs; zero: 10 minutes.
	Timeout time.Duration
	// Fuel is what pip may use in WebAssembly, where runs are metered; zero: they are not.
	Fuel uint64
	// OfOwner is how many installations of one owner are made at once in WebAssembly, and
	// AtOnce those of all; zero: 2 and 4. Owners who wait take turns.
	OfOwner, AtOnce int
	// OnHost tells whether Linux sessions with an image, as sessions call it, run the
	// host's own programs; nil: none does. Python packages that the host happens to have
	// count for nothing in an installation there: what is asked for is installed into the
	// session's files, which are then the same on every host. Those of an image count.
	OnHost func(image string) bool
	// Log takes what an operator should see; nil: nothing is logged.
	Log *slog.Logger
}

// What Config leaves open.
const (
	defaultTimeout = 10 * time.Minute
	defaultOfOwner = 2
	defaultAtOnce  = 4
)

// Installer is safe for concurrent use.
type Installer struct {
	config Config
	slots  *limit.Gate // an installation in WebAssembly is an execution to it

	mu   sync.Mutex             // guards what follows
	busy map[held]chan struct{} // closed when the session's installation has ended
}

type held struct {
	owner session.Owner
	id    session.ID
}

// New makes an Installer.
func New(c Config) *Installer {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	c.OfOwner, c.AtOnce = cmp.Or(max(c.OfOwner, 0), defaultOfOwner), cmp.Or(max(c.AtOnce, 0), defaultAtOnce)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	// Each wait ends with its installation's time, and never before.
	slots, err := limit.New(limit.Config{Executions: c.OfOwner, TotalExecutions: c.AtOnce, Wait: math.MaxInt64})
	if err != nil {
		panic(err) // no limit is negative
	}
	return &Installer{config: c, slots: slots, busy: map[held]chan struct{}{}}
}

// Serves tells whether there is anything that could be installed; nil installs nothing.
func (i *Installer) Serves() bool { return i != nil && i.config.Packages != nil }

// ServesKind says by a fault.Unsupported that nothing of a kind of packages can be installed.
func (i *Installer) ServesKind(kind string) error {
	if i == nil {
		return (*pkgproxy.Packages)(nil).Serves(kind)
	}
	return i.config.Packages.Serves(kind)
}

// Result tells what an installation did.
type Result struct {
	// Installed are the packages that were not there before, those included that others
	// depend on. None where Already.
	Installed []pkgproxy.Installed
	// Already says that all that was asked for was there, and nothing changed.
	Already bool
	// Notes say what somebody who uses the packages has to know.
	Notes []string
}

// The isolation in which pip has an interpreter of WebAssembly, and npm none.
const wasm = "wasm"

// Install installs packages in a session. What to install is read by its lines: a
// requirement of Python's, an npm package where the session's language is JavaScript or
// TypeScript or the line begins with npm:, a line of requirements.txt, or -r with a file
// of the workspace; --upgrade before it takes newer versions. It waits until no other
// installation is made in the session.
func (i *Installer) Install(ctx context.Context, owner session.Owner, id session.ID, what string) (Result, error) {
	info, err := i.config.Sessions.Info(owner, id)
	if err != nil {
		return Result{}, err
	}
	w, err := readWishes(what, info.Settings.Language)
	if err != nil {
		return Result{}, err
	}
	if err := i.config.Packages.Serves(w.kind); err != nil {
		return Result{}, err
	}
	release, err := i.alone(ctx, held{owner, id})
	if err != nil {
		return Result{}, err
	}
	defer release()
	p := place{i, info}
	if err := p.complete(&w); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, i.config.Timeout, errTooLong)
	defer cancel()
	res, err := p.install(ctx, w)
	slices.SortFunc(res.Installed, compare)
	return res, err
}

func (p place) install(ctx context.Context, w wishes) (Result, error) {
	if p.info.Isolation != wasm {
		return p.inMachine(ctx, w)
	}
	leave, err := p.turn(ctx, p.info.Owner)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	if w.kind == pkgproxy.NPM {
		return p.modules(ctx, w)
	}
	return p.pip(ctx, w)
}

// turn waits until an owner may make one more installation in WebAssembly, for as long as
// ctx; leave lets the next one in.
func (i *Installer) turn(ctx context.Context, owner session.Owner) (leave func(), err error) {
	leave, err = i.slots.Enter(ctx, string(owner))
	if err != nil && ctx.Err() == nil {
		return nil, fault.New(fault.Exhausted, "too many installations are waiting already").
			WithHint("try again when some have ended; several packages can be installed in one call").WithCause(err)
	}
	return leave, err
}

var errTooLong = fault.New(fault.Exhausted, "the installation took too long").WithHint("install fewer packages at once, or try again: what was fetched is kept")

// place is the session that packages are put into.
type place struct {
	*Installer
	info session.Info
}

// alone waits until nobody else installs in a session.
func (i *Installer) alone(ctx context.Context, h held) (release func(), err error) {
	for {
		i.mu.Lock()
		other := i.busy[h]
		if other == nil {
			done := make(chan struct{})
			i.busy[h] = done
			i.mu.Unlock()
			return func() {
				i.mu.Lock()
				delete(i.busy, h)
				i.mu.Unlock()
				close(done)
			}, nil
		}
		i.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
