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

// How long a caller waits for the tools of a server that has never been listed, and of one
// that says that they have changed.
const (
	timeout = 5 * time.Second
	// namedTimeout is how long a program waits for a server that it names: npx and uvx may
	// have to fetch it first.
	namedTimeout   = 30 * time.Second
	changedTimeout = 500 * time.Millisecond
	// changedFor is how long after such a change a caller waits.
	changedFor = 5 * time.Second
)

const (
	// firstBackoff and maxBackoff bound how long a server is left alone that could not be
	// listed; the time doubles with each failure. slowFor is how long no caller waits for a
	// server that took longer than timeout.
	firstBackoff = time.Second
	maxBackoff   = 10 * time.Minute
	slowFor      = 10 * time.Minute
	// listTimeout is how long listing takes at most.
	listTimeout = 90 * time.Second
	// refreshRatio bounds which part of the time a server may have itself listed because it
	// says that something changed: a twentieth.
	refreshRatio = 20
	// settled is how old a Broker is when it lists servers again only because their
	// listings have expired: a single short run should start nothing. A listing that
	// expired tooOld ago is made again all the same.
	settled = 3 * time.Second
	tooOld  = 24 * time.Hour
	// maxCached bounds the listings in memory, in bytes of their texts, and maxEntries
	// how many servers are known.
	maxCached  = 256 << 20
	maxEntries = 10_000
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

// cacheEntry is what is known of one server: its last listing, and how the attempts went.
type cacheEntry struct {
	key  string
	file string

	mu      sync.Mutex // guards what follows
	loaded  bool       // the disk was looked at
	written time.Time  // when what was found there had been written
	used    time.Time

	listing     *listing  // nil: there has never been one
	until       time.Time // when it expires
	invalidated time.Time // when the server said that it has changed; zero: it has not

	running chan struct{} // closed when the attempt has ended; nil: there is none
	began   time.Time     // when the last attempt began, successful or not
	took    time.Duration
	fails   int       // in a row
	err     error     // why it could not be listed the last time
	retryAt time.Time // until when the server is left alone
	slow    time.Time // until when no caller waits for it
}

// freshness is what a server's last listing is worth.
type freshness int

const (
	missing freshness = iota // it has never been listed
	fresh
	expired // the listing's time is over, and the server has said nothing
	changed // the server said that its tools have changed
)

func (e *cacheEntry) freshnessLocked(now time.Time) freshness {
	switch {
	case e.listing == nil:
		return missing
	case !e.invalidated.IsZero():
		return changed
	case !now.Before(e.until):
		return expired
	}
	return fresh
}

// startsLocked reports whether an attempt to list the server begins now, for a Broker that
// was made at born. An eager caller has expired listings made again whatever the Broker's
// age.
func (e *cacheEntry) startsLocked(now, born time.Time, eager bool) bool {
	backingOff := !now.After(e.retryAt)
	if e.running != nil || backingOff {
		return false
	}
	switch e.freshnessLocked(now) {
	case fresh:
		return false
	case expired:
		return eager || now.Sub(born) >= settled || now.Sub(e.until) >= tooOld
	case changed:
		tooOften := now.Sub(e.began) <= refreshRatio*e.took
		return !tooOften || !now.Before(e.until)
	}
	return true
}

// deadlineLocked gives until when a caller waits for the attempt that is under way; zero: it
// takes what there is. An eager caller waits for a server that was slow, too.
func (e *cacheEntry) deadlineLocked(now time.Time, timeout time.Duration, eager bool) time.Time {
	if e.running == nil {
		return time.Time{}
	}
	switch e.freshnessLocked(now) {
	case missing:
		if eager || now.After(e.slow) {
			return now.Add(timeout)
		}
	case changed:
		if e.fails == 0 && now.Sub(e.invalidated) < changedFor {
			return now.Add(changedTimeout)
		}
	}
	return time.Time{}
}

// backoff is how long a server is left alone after so many failures before the last one.
func backoff(fails int) time.Duration {
	return min(firstBackoff<<min(fails, 20), maxBackoff)
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
	e := c.entries[key]
	if e == nil {
		if len(c.entries) >= maxEntries {
			c.shrinkLocked(maxEntries - maxEntries/10)
		}
		e = &cacheEntry{key: key}
		if c.dir != "" {
			e.file = filepath.Join(c.dir, nameOf(key)+".json")
		}
		c.entries[key] = e
	}
	return e
}

// nameOf makes a file's name of any text.
func nameOf(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// invalidate has a server listed again when its tools are next wanted.
func (c *listingCache) invalidate(key string) {
	c.mu.Lock()
	e := c.entries[key]
	c.mu.Unlock()
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.invalidated = time.Now()
}

// clearBackoff has a server that is left alone asked again by who looks next.
func (c *listingCache) clearBackoff(key string) {
	e := c.entry(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loadLocked()
	e.retryAt, e.slow = time.Time{}, time.Time{}
}

// pendingListing is a listing that a caller may wait for.
type pendingListing struct {
	entry    *cacheEntry
	listing  *listing // what there is meanwhile; nil: nothing
	done     <-chan struct{}
	deadline time.Time // until when it is worth waiting; zero: it is not
}

// lookup gives what there is of a server, and begins to list the server where that is due.
// An eager caller asks for the tools itself, and so does not mind what others have seen of
// the server.
func (c *listingCache) lookup(one *serverBinding, eager bool) pendingListing {
	e := c.entry(one.key)
	e.mu.Lock()
	e.loadLocked()
	now := time.Now()
	e.used = now
	starts := e.startsLocked(now, c.broker.born, eager)
	if starts {
		e.running = make(chan struct{})
	}
	done := e.running
	pending := pendingListing{entry: e, listing: e.listing, done: done, deadline: e.deadlineLocked(now, c.timeout, eager)}
	e.mu.Unlock()
	if starts && !c.broker.begin(func() { c.list(e, one, done) }) {
		c.listed(e, done, nil, time.Time{}, errClosing)
	}
	return pending
}

var errClosing = fault.New(fault.Unavailable, "paddock is being stopped").WithHint("try again when it runs")

// wait gives the listing when it is there, or what there is when the deadline has passed or
// ctx ends. The error says why there is none.
func (c *listingCache) wait(ctx context.Context, a pendingListing) (*listing, error) {
	if a.done != nil && !a.deadline.IsZero() {
		timer := time.NewTimer(max(0, time.Until(a.deadline))) // others may have been waited for before it
		defer timer.Stop()
		select {
		case <-a.done:
		case <-ctx.Done():
		case <-timer.C:
			c.markSlow(a.entry)
		}
	}
	e := a.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.listing != nil:
		return e.listing, nil
	case e.err != nil:
		return nil, e.err
	}
	return nil, fault.New(fault.Unavailable, "it has not told them yet").WithHint("try again in a moment")
}

// markSlow notes that a caller waited for a server in vain.
func (c *listingCache) markSlow(e *cacheEntry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listing == nil {
		e.slow = time.Now().Add(slowFor)
		e.saveLocked(c.broker.config.Log)
	}
}

// allListings is whose share of the memory large lists of tools are read in: they are of
// no owner, and all of them take their turns.
const allListings = "lists of tools"

// list lists a server over the connection that all sessions share.
func (c *listingCache) list(e *cacheEntry, one *serverBinding, done chan struct{}) {
	ctx, cancel := context.WithTimeout(one.with(c.broker.life), listTimeout)
	defer cancel()
	ctx, end := c.broker.config.Memory.Scope(ctx, allListings)
	defer end()
	began := time.Now()
	l, err := c.broker.pool.List(ctx, one.common())
	e.mu.Lock()
	e.took = time.Since(began)
	e.mu.Unlock()
	if err != nil {
		if c.broker.life.Err() == nil {
			c.broker.config.Log.Warn("a server cannot be asked for its tools", "server", one.Name, "cause", err)
		}
		c.listed(e, done, nil, time.Time{}, err)
		return
	}
	c.listed(e, done, newListing(l.Tools), l.Until, nil)
	c.trim()
}

// listed takes what came of listing a server.
func (c *listingCache) listed(e *cacheEntry, done chan struct{}, l *listing, until time.Time, err error) {
	e.mu.Lock()
	defer close(done)
	defer e.mu.Unlock()
	e.running, e.err, e.began = nil, err, time.Now().Add(-e.took)
	if err != nil {
		if c.broker.life.Err() == nil {
			e.retryAt = time.Now().Add(backoff(e.fails))
			e.fails++
			e.slow = e.retryAt
			e.saveLocked(c.broker.config.Log)
		}
		return
	}
	e.storeLocked(l, until, e.began)
	e.saveLocked(c.broker.config.Log)
}

// storeLocked makes a listing the present one. A change that the server announced before
// the listing began is in it.
func (e *cacheEntry) storeLocked(l *listing, until, began time.Time) {
	if e.listing == nil || e.listing.digest != l.digest {
		e.listing = l
	}
	e.until, e.fails, e.err, e.retryAt, e.slow = until, 0, nil, time.Time{}, time.Time{}
	if e.invalidated.Before(began) {
		e.invalidated = time.Time{}
	}
}

// offer takes the tools of a server that a session has just listed over a connection of its
// own, where there is no listing or an expired one.
func (c *listingCache) offer(one *serverBinding, tools []bindings.Tool, until time.Time) {
	e := c.entry(one.key)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loadLocked()
	if e.listing == nil || !time.Now().Before(e.until) {
		e.storeLocked(newListing(tools), until, time.Now())
		e.saveLocked(c.broker.config.Log)
	}
}
