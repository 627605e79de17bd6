package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"paddock/internal/bindings"
	"paddock/internal/fault"
)

// How long somebody waits for the tools of a server that has never been listed, and of
// one that says that they have changed.
const (
	timeout = 5 * time.Second
	// namedTimeout is how long a program waits for a server that it names: npx and uvx may
	// have to fetch it first.
	namedTimeout   = 30 * time.Second
	changedTimeout = 500 * time.Millisecond
)

const (
	// firstRest and longestRest bound how long a server is left alone that could not be
	// listed; it doubles with each failure. restSlow is how long nobody waits for one
	// that took longer than timeout.
	firstRest   = time.Second
	longestRest = 10 * time.Minute
	restSlow    = 10 * time.Minute
	// listing is how long listing takes at most.
	listingTakes = 90 * time.Second
	// refreshRatio is what part of the time a server may have itself listed because it says
	// that something changed: a twentieth.
	refreshRatio = 20
	// settled is how old a Broker is when it lists servers again only because their
	// listings are out of date: a single short run should start nothing. tooOld is when
	// it does that all the same.
	settled = 3 * time.Second
	tooOld  = 24 * time.Hour
	// maxShelved bounds the listings in memory, in bytes of their texts, and maxPlaces
	// how many servers are known.
	maxShelved = 256 << 20
	maxPlaces  = 10_000
)

// listingCache has the tools of servers as they were listed last, for all sessions: one listing
// for each definition and identity. Listings that are out of date are given at once and
// made again on the side.
type listingCache struct {
	broker       *Broker
	dir          string // empty: nothing is kept
	timeout      time.Duration
	namedTimeout time.Duration // timeout with servers that a program names

	mu      sync.Mutex // guards what follows
	entries map[string]*cacheEntry
}

// cacheEntry is where a server's listing is.
type cacheEntry struct {
	key  string
	file string

	mu          sync.Mutex // guards what follows
	loaded      bool       // the disk was looked at
	written     time.Time  // when what was found there had been written
	listing     *listing   // nil: there has never been one
	until       time.Time  // when it is out of date
	invalidated time.Time  // when the server said that it has changed; zero: it has not
	running     chan struct{}
	began       time.Time // when it was listed last, successfully or not
	took        time.Duration
	fails       int
	err         error     // why it could not be listed the last time
	retryAt     time.Time // until when the server is left alone
	slow        time.Time // until when nobody waits for it
	used        time.Time
}

// listing is a server's tools at one time. It is not changed: who has the same listing
// again knows that nothing is different.
type listing struct {
	tools  []bindings.Tool
	digest string
	size   int
}

func newListing(tools []bindings.Tool) *listing {
	l := &listing{tools: tools}
	h := sha256.New()
	for _, t := range tools {
		n, _ := fmt.Fprintf(h, "%q %q %q %q %q %s\n", t.Name, t.Title, t.Description, t.Input, t.Output, hints(t.Annotations))
		l.size += n
	}
	l.digest = hex.EncodeToString(h.Sum(nil))
	return l
}

func hints(a bindings.Annotations) string {
	text := ""
	for _, hint := range []*bool{a.ReadOnly, a.Destructive, a.Idempotent, a.OpenWorld} {
		switch {
		case hint == nil:
			text += "-"
		case *hint:
			text += "y"
		default:
			text += "n"
		}
	}
	return text
}

func newListingCache(b *Broker, dir string) *listingCache {
	return &listingCache{broker: b, dir: dir, timeout: timeout, namedTimeout: namedTimeout, entries: map[string]*cacheEntry{}}
}

func (c *listingCache) entry(key string) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.entries[key]
	if p == nil {
		if len(c.entries) >= maxPlaces {
			c.shrinkLocked(maxPlaces - maxPlaces/10)
		}
		p = &cacheEntry{key: key}
		if c.dir != "" {
			p.file = filepath.Join(c.dir, nameOf(key)+".json")
		}
		c.entries[key] = p
	}
	return p
}

// nameOf makes a file's name of any text.
func nameOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// invalidate has a server listed again when somebody next wants its tools.
func (c *listingCache) invalidate(key string) {
	c.mu.Lock()
	p := c.entries[key]
	c.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.invalidated = time.Now()
}

// clearBackoff has a server that is left alone asked again by who looks next.
func (c *listingCache) clearBackoff(key string) {
	p := c.entry(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loadLocked()
	p.retryAt, p.slow = time.Time{}, time.Time{}
}

// pendingListing is a listing that somebody may wait for.
type pendingListing struct {
	place    *cacheEntry
	listing  *listing // what there is meanwhile; nil: nothing
	done     <-chan struct{}
	deadline time.Time // until when it is worth it
}

// lookup gives what there is of a server, and begins to list it where that is out of date.
// Who asks for the tools himself (eager) waits for a server that kept others waiting for
// nothing, too, and has old listings made again whatever the Broker's age.
func (c *listingCache) lookup(one *serverBinding, eager bool) pendingListing {
	p := c.entry(one.key)
	p.mu.Lock()
	p.loadLocked()
	now := time.Now()
	p.used = now
	a := pendingListing{place: p, listing: p.listing}
	stale := !now.Before(p.until)
	if p.listing != nil && !stale && p.invalidated.IsZero() {
		p.mu.Unlock()
		return a
	}
	idle := p.listing != nil && p.invalidated.IsZero() && !eager && now.Sub(c.broker.born) < settled && now.Sub(p.until) < tooOld
	starts := p.running == nil && !idle && now.After(p.retryAt) && (p.invalidated.IsZero() || stale || now.Sub(p.began) > refreshRatio*p.took)
	if starts {
		p.running = make(chan struct{})
	}
	a.done = p.running
	switch {
	case a.done == nil:
	case p.listing == nil && (eager || now.After(p.slow)):
		a.deadline = now.Add(c.timeout)
	case p.listing != nil && !p.invalidated.IsZero() && p.fails == 0 && now.Sub(p.invalidated) < timeout:
		a.deadline = now.Add(changedTimeout)
	}
	done := p.running
	p.mu.Unlock()
	if starts && !c.broker.begin(func() { c.list(p, one, done) }) {
		c.listed(p, done, nil, time.Time{}, errClosing)
	}
	return a
}

var errClosing = fault.New(fault.Unavailable, "paddock is being stopped").WithHint("try again when it runs")

// wait gives the listing when it is there, or what there is when it is not worth waiting
// any longer, or ctx ends. The error says why there is none.
func (c *listingCache) wait(ctx context.Context, a pendingListing) (*listing, error) {
	if a.done != nil && !a.deadline.IsZero() {
		timer := time.NewTimer(max(0, time.Until(a.deadline))) // others may have been waited for before it
		defer timer.Stop()
		select {
		case <-a.done:
		case <-ctx.Done():
		case <-timer.C:
			c.markSlow(a.place)
		}
	}
	p := a.place
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.listing != nil:
		return p.listing, nil
	case p.err != nil:
		return nil, p.err
	}
	return nil, fault.New(fault.Unavailable, "it has not told them yet").WithHint("try again in a moment")
}

// markSlow notes that a server kept somebody waiting for nothing.
func (c *listingCache) markSlow(p *cacheEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listing == nil {
		p.slow = time.Now().Add(restSlow)
		p.saveLocked(c.broker.config.Log)
	}
}

// allListings is whose share of the memory large lists of tools are read in: they are of
// no owner, and all of them take their turns.
const allListings = "lists of tools"

// list lists a server over the connection that is nobody's own.
func (c *listingCache) list(p *cacheEntry, one *serverBinding, done chan struct{}) {
	ctx, cancel := context.WithTimeout(one.with(c.broker.life), listingTakes)
	defer cancel()
	ctx, end := c.broker.config.Memory.Scope(ctx, allListings)
	defer end()
	began := time.Now()
	l, err := c.broker.pool.List(ctx, one.common())
	p.mu.Lock()
	p.took = time.Since(began)
	p.mu.Unlock()
	if err != nil {
		if c.broker.life.Err() == nil {
			c.broker.config.Log.Warn("a server cannot be asked for its tools", "server", one.Name, "cause", err)
		}
		c.listed(p, done, nil, time.Time{}, err)
		return
	}
	c.listed(p, done, newListing(l.Tools), l.Until, nil)
	c.trim()
}

// listed takes what came of listing a server.
func (c *listingCache) listed(p *cacheEntry, done chan struct{}, l *listing, until time.Time, err error) {
	p.mu.Lock()
	defer close(done)
	defer p.mu.Unlock()
	p.running, p.err, p.began = nil, err, time.Now().Add(-p.took)
	if err != nil {
		if c.broker.life.Err() == nil {
			p.retryAt = time.Now().Add(min(firstRest<<min(p.fails, 20), longestRest))
			p.fails++
			p.slow = p.retryAt
			p.saveLocked(c.broker.config.Log)
		}
		return
	}
	p.storeLocked(l, until, p.began)
	p.saveLocked(c.broker.config.Log)
}

// storeLocked makes a listing the present one; when it began to be made tells whether
// what the server said since then is in it.
func (p *cacheEntry) storeLocked(l *listing, until, began time.Time) {
	if p.listing == nil || p.listing.digest != l.digest {
		p.listing = l
	}
	p.until, p.fails, p.err, p.retryAt, p.slow = until, 0, nil, time.Time{}, time.Time{}
	if p.invalidated.Before(began) {
		p.invalidated = time.Time{}
	}
}

// offer has the shelf know the tools of a server that a session has just listed over a
// connection of its own, where nobody has listed it before.
func (c *listingCache) offer(one *serverBinding, tools []bindings.Tool, until time.Time) {
	p := c.entry(one.key)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loadLocked()
	if p.listing == nil || !time.Now().Before(p.until) {
		p.storeLocked(newListing(tools), until, time.Now())
		p.saveLocked(c.broker.config.Log)
	}
}
