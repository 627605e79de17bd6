// Package pkgproxy is the front of the package indexes that whoever runs paddock has
// configured: sandboxes see one index of Python packages and one npm registry, which
// are this one ([Packages.Handler]), and the host asks the real ones.
//
// The credentials of the real ones stay on the host. A package belongs to the first
// index that has it; one that cannot be asked is an error, and not a reason to ask the
// next. What is not on the allow-list is not there, nor is what is younger than the
// cool-down. No byte of a file is given out before the whole of it had the digest that
// its index names, and its last ones only if it has it still; files are kept by that digest
// in a cache that only the host fills.
//
// It also finds out what npm would install, and makes modules of it that the
// JavaScript guest imports ([Packages.JavaScript]), gives the program by which pip
// installs in the Python guest ([Python]), and says of what does not fit in which
// isolation it works ([Packages.Explain]).
package pkgproxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"time"

	"paddock/internal/egress"
	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/limit"
	"paddock/internal/membudget"
)

// Host is the name by which sandboxes reach the front.
const Host = "packages.paddock.internal"

// What Config leaves open.
const (
	defaultBytes    = 2 << 30
	defaultMaxFile  = 512 << 20
	defaultPage     = 10 * time.Minute
	defaultTransfer = 10 * time.Minute
)

// Index is one place that packages come from.
type Index struct {
	// URL is where it is: of Python packages that of its simple index, of npm's that of
	// the registry; or the absolute path of a folder of this machine, with wheels and
	// sdists or with npm's tarballs.
	URL string
	// User and Password, or Token, are sent to the URL's origin (scheme, host and port)
	// and to no other.
	User, Password, Token string
	// Files are rules of package egress for the hosts beside the index's own from which
	// its files may come, for hosts that are not public. Public ones need none: what
	// comes from there has to have the digest that the index names.
	Files []string
}

// Ecosystem is what of one kind of packages is shown. The zero Ecosystem shows none.
type Ecosystem struct {
	// Indexes are asked in this order: a package is of the first that has it.
	Indexes []Index
	// Allow are names of packages, or patterns as path.Match has them; "*" is all of
	// them. None: nothing is shown.
	Allow []string
	// Cooldown hides files that were published less than that ago, and those of which
	// the index does not say when; those of a folder are never hidden.
	Cooldown time.Duration
}

// Config says what a front shows. It is copied.
type Config struct {
	// Dir is the folder of the cache, which several processes may share.
	Dir         string
	Python, NPM Ecosystem
	// CacheBytes bounds the cache; zero: 2 GiB.
	CacheBytes int64
	// FileBytes bounds one file; zero: 512 MiB.
	FileBytes int64
	// Fresh is for how long an index's answer is believed without asking again; zero:
	// 10 minutes.
	Fresh time.Duration
	// Helpers runs the job [Bundle], which makes modules of npm's packages; nil: they
	// cannot be installed for the wasm guest.
	Helpers *helper.Runner
	// Budget is where the bytes are taken from that are held while descriptions of packages
	// are read; nil: nothing is bounded.
	Budget *membudget.Budget
	// Requests are how many requests to the front of one owner are answered at once, and
	// AllRequests those of all; zero: 32 and 512. Who asks for more waits.
	Requests, AllRequests int
	// TLS is the client's configuration; nil: the system's certificates.
	TLS *tls.Config
	// Resolver finds addresses; nil: the system's.
	Resolver egress.Resolver
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Log is told of what indexes do that they should not; nil: nobody is.
	Log *slog.Logger
}

// Packages is a front. It is for any number of goroutines.
type Packages struct {
	config  Config
	store   *store
	python  []pythonIndex
	npm     []npmRegistry
	now     func() time.Time
	log     *slog.Logger
	handler http.Handler
	slots   *limit.Gate // a request to the front is an execution to it
}

// Open makes a front. All mistakes in c are reported at once.
func Open(c Config) (*Packages, error) {
	c.CacheBytes = cmp.Or(c.CacheBytes, defaultBytes)
	c.FileBytes = cmp.Or(c.FileBytes, defaultMaxFile)
	c.Fresh = cmp.Or(c.Fresh, defaultPage)
	p := &Packages{config: c, now: c.Now, log: c.Log}
	if p.now == nil {
		p.now = time.Now
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	mistakes := []error{checkPatterns(c.Python.Allow), checkPatterns(c.NPM.Allow)}
	var err error
	if p.store, err = openStore(c.Dir, c.CacheBytes, c.FileBytes); err != nil {
		return nil, err
	}
	for _, index := range c.Python.Indexes {
		at, err := p.pythonIndex(index)
		mistakes = append(mistakes, err)
		p.python = append(p.python, at)
	}
	for _, index := range c.NPM.Indexes {
		at, err := p.npmRegistry(index)
		mistakes = append(mistakes, err)
		p.npm = append(p.npm, at)
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.config.Python.Allow, p.config.NPM.Allow = slices.Clone(c.Python.Allow), slices.Clone(c.NPM.Allow)
	p.handler = p.routes()
	if p.slots, err = newSlots(c); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Handler is the front over HTTP for an owner, below /pypi/ and /npm/.
func (p *Packages) Handler(owner string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, owner) })
}

// Close lets go of the connections and of the cache's folder.
func (p *Packages) Close() error {
	for _, index := range p.python {
		if c, ok := index.(interface{ close() }); ok {
			c.close()
		}
	}
	for _, index := range p.npm {
		if c, ok := index.(interface{ close() }); ok {
			c.close()
		}
	}
	return p.store.close()
}

// allowed tells whether a name is on an allow-list.
func allowed(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if pattern == "*" {
			return true
		}
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

func checkPatterns(patterns []string) error {
	var mistakes []error
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			mistakes = append(mistakes, fault.New(fault.Invalid, "%.100q is not a pattern for packages' names", pattern).
				WithHint("write a name, name-* or *; for npm also @scope/*"))
		}
	}
	return errors.Join(mistakes...)
}

// errNotAllowed is for a package that is not on the list.
func errNotAllowed(kind, name string) error {
	return fault.New(fault.Denied, "the package %.100q is not among those that may be installed", name).
		WithHint("the operator can allow it, in packages.%s.allow", kind)
}

// errNone is for a front without indexes of a kind.
func errNone(kind string) error {
	return fault.New(fault.Unsupported, "no index of %s packages is configured", map[string]string{kindPython: "Python", kindNPM: "npm"}[kind]).
		WithHint("the operator names one, or a folder, in packages.%s.index of paddock.toml, or allows what %s asks by itself with packages.public = true",
			kind, map[string]string{kindPython: "pip", kindNPM: "an installed npm"}[kind])
}

// The kinds of packages, as keys and paths call them.
const (
	PyPI = "pypi"
	NPM  = "npm"

	kindPython = PyPI
	kindNPM    = NPM
)

// Serves says by a fault.Unsupported that there is no index of a kind of packages; a nil
// front has none.
func (p *Packages) Serves(kind string) error {
	if p == nil || kind == PyPI && len(p.python) == 0 || kind == NPM && len(p.npm) == 0 {
		return errNone(kind)
	}
	return nil
}

// young tells whether something is too new to be shown. Zero is a time that nobody told.
func (p *Packages) young(cooldown time.Duration, published time.Time) bool {
	return cooldown > 0 && (published.IsZero() || p.now().Sub(published) < cooldown)
}

// first finds the first index that has something: ask gives a fault.NotFound where one
// has it not. Any other error ends it.
func first[I, T any](ctx context.Context, indexes []I, ask func(context.Context, I) (T, error)) (found T, at I, err error) {
	for _, at = range indexes {
		if found, err = ask(ctx, at); fault.KindOf(err) != fault.NotFound {
			return found, at, err
		}
	}
	return found, at, err
}
