package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"paddock/internal/fault"
)

// top is the first line of a head: who has the session. What follows is its state.
type top struct {
	Version int    `json:"version"`
	Owner   string `json:"owner"`
	Session string `json:"session"`
	// Holder has the session; nil: no process has.
	Holder *Life `json:"holder,omitempty"`
	// Clean says that the last holder gave it up, and nothing was cut off.
	Clean bool `json:"clean,omitempty"`
	// Removed says that there is no such session any more.
	Removed bool `json:"removed,omitempty"`
}

// topVersion is that of the heads that are written; later ones are refused.
const topVersion = 1

// removedFor is how long a head says that its session was removed. Whoever had that is
// refused for ever, as the head that it would replace is not there.
const removedFor = time.Hour

func encodeHead(t top, state []byte) ([]byte, error) {
	line, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding a head: %w", err)
	}
	return append(append(line, '\n'), state...), nil
}

func decodeHead(k Key, data []byte) (t top, state []byte, err error) {
	line, state, ok := bytes.Cut(data, []byte("\n"))
	if err = json.Unmarshal(line, &t); err == nil && (!ok || t.Owner != k.Owner || t.Session != k.Session) {
		err = errors.New("it is not this session's")
	}
	switch {
	case err != nil:
		return t, nil, fault.New(fault.Internal, "the head of session %q is damaged", k.Session).
			WithHint("the operator can put a backup of NATS back").WithCause(err)
	case t.Version > topVersion:
		return t, nil, fault.New(fault.Unsupported, "the session %q was written by a newer paddock", k.Session).
			WithHint("update paddock on this node")
	}
	return t, state, nil
}

// Claims claims sessions for this process. It may be used from any goroutine.
type Claims struct {
	heads   *Heads
	members *Members

	mu  sync.Mutex // guards own
	own map[Key]bool
}

// NewClaims claims sessions that have their heads there for the member.
func NewClaims(h *Heads, m *Members) *Claims {
	return &Claims{heads: h, members: m, own: map[Key]bool{}}
}

// heldError says who has a session.
type heldError struct{ by Life }

func (e *heldError) Error() string { return fmt.Sprintf("the node %q has the session", e.by.Node) }

// HolderOf tells who has the session that could not be claimed.
func HolderOf(err error) (Life, bool) {
	if held, ok := errors.AsType[*heldError](err); ok {
		return held.by, true
	}
	return Life{}, false
}

func held(k Key, by Life) error {
	return fault.New(fault.Conflict, "the session %q is open on the node %q", k.Session, by.Node).
		WithHint("ask that node, or try again").WithCause(&heldError{by})
}

// Create makes a session, and claims it. It is a fault.Conflict if there is one.
func (c *Claims) Create(ctx context.Context, k Key, state []byte) (*Claim, error) {
	return c.claim(ctx, k, func(there bool, _ []byte) ([]byte, error) {
		if there {
			return nil, fault.New(fault.Conflict, "there is a session %q already", k.Session).
				WithHint("choose another name, or remove it")
		}
		return state, nil
	})
}

// Claim claims a session that no process has, or one that is dead: then its next commit is
// refused. It is a fault.Conflict, of which [HolderOf] knows more, while another process
// has it; this one may be that process. It is fault.Unavailable if this node is not in, or
// if ctx ended before it was known whether the session is claimed: then Claim may be tried
// again.
func (c *Claims) Claim(ctx context.Context, k Key) (*Claim, error) {
	return c.claim(ctx, k, func(there bool, state []byte) ([]byte, error) {
		if !there {
			return nil, fault.New(fault.NotFound, "no session %q", k.Session).
				WithHint("it may have expired; create_session opens a new one")
		}
		return state, nil
	})
}

// claim writes a head with this process as its holder, and the state that begin gives.
func (c *Claims) claim(ctx context.Context, k Key, begin func(there bool, state []byte) ([]byte, error)) (_ *Claim, err error) {
	if !c.members.In() {
		return nil, fault.New(fault.Unavailable, "this node is cut off from the cluster").
			WithHint("try again; other nodes may answer")
	}
	me := c.members.Me()
	c.mu.Lock()
	mine := c.own[k]
	c.own[k] = true
	c.mu.Unlock()
	if mine {
		return nil, held(k, me)
	}
	defer func() {
		if err != nil {
			c.forget(k)
		}
	}()
	head, err := c.heads.Read(ctx, k)
	if err != nil {
		return nil, err
	}
	var was top
	var state []byte
	if head.Sequence > 0 {
		if was, state, err = decodeHead(k, head.Data); err != nil {
			return nil, err
		}
	}
	if state, err = begin(head.Sequence > 0 && !was.Removed, state); err != nil {
		return nil, err
	}
	if was.Holder != nil && *was.Holder != me { // one's own is left of a claim whose end was not known
		dead, err := c.members.Dead(ctx, *was.Holder)
		if err != nil {
			return nil, err
		}
		if !dead {
			return nil, held(k, *was.Holder)
		}
	}
	claim := &Claim{all: c, key: k, by: NewWriter(), state: state, clean: was.Clean || head.Sequence == 0 || was.Removed, lost: make(chan struct{})}
	if claim.place, err = claim.write(ctx, top{Holder: &me}, state, head.Sequence); err != nil {
		return nil, err
	}
	claim.last = claim.place
	return claim, nil
}

// forget notes that this process does not have the session any more.
func (c *Claims) forget(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.own, k)
}

// Claim is this process's hold on a session, until Release or Remove, or until another
// process has taken it over. It may be used from any goroutine.
type Claim struct {
	all   *Claims
	key   Key
	by    Writer
	place uint64
	state []byte // what was found
	clean bool
	lost  chan struct{} // closed once another has the session

	mu   sync.Mutex // guards the fields below; held while a head is written
	last uint64     // the sequence of the head
	over error      // why nothing is written any more
}

// Place is the sequence of the claim: no other of the session has it, and a later one's is
// greater. What is stored under it is this claim's alone.
func (c *Claim) Place() uint64 { return c.place }

// Found is the session's state when it was claimed. clean says that its last holder gave
// it up, or that it is new; else a program may have been running.
func (c *Claim) Found() (state []byte, clean bool) { return c.state, c.clean }

// Lost is closed when it is known that another process has the session.
func (c *Claim) Lost() <-chan struct{} { return c.lost }

// Commit makes this the session's state. What it returns is what [Heads.Write] says. After
// a fault.Unavailable the claim goes on, and the next commit decides.
func (c *Claim) Commit(ctx context.Context, state []byte) error {
	me := c.all.members.Me()
	return c.commit(ctx, top{Holder: &me}, state)
}

func (c *Claim) commit(ctx context.Context, t top, state []byte, o ...jetstream.PublishOpt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over
	}
	seq, err := c.write(ctx, t, state, c.last, o...)
	switch {
	case err == nil && t.Holder == nil:
		c.last, c.over = seq, errReleased
		c.all.forget(c.key)
	case err == nil:
		c.last = seq
	case fault.KindOf(err) == fault.Conflict:
		c.over = err
		close(c.lost)
		c.all.forget(c.key)
	}
	return err
}

func (c *Claim) write(ctx context.Context, t top, state []byte, after uint64, o ...jetstream.PublishOpt) (uint64, error) {
	t.Version, t.Owner, t.Session = topVersion, c.key.Owner, c.key.Session
	data, err := encodeHead(t, state)
	if err != nil {
		return 0, err
	}
	return c.all.heads.write(ctx, c.key, c.by, data, after, o...)
}

// Release gives the session up, with this as its last state. After an error it is this
// process's still, and Release may be tried again; once it worked it works again.
func (c *Claim) Release(ctx context.Context, state []byte) error {
	return c.end(ctx, top{Clean: true}, state)
}

// Remove removes the session, and gives up the claim. Its errors are those of Release.
func (c *Claim) Remove(ctx context.Context) error {
	return c.end(ctx, top{Removed: true}, nil, jetstream.WithMsgTTL(removedFor))
}

var errReleased = fault.New(fault.Internal, "paddock made a mistake").WithCause(errors.New("cluster: the claim was released"))

func (c *Claim) end(ctx context.Context, t top, state []byte, o ...jetstream.PublishOpt) error {
	if err := c.commit(ctx, t, state, o...); !errors.Is(err, errReleased) {
		return err
	}
	return nil
}
