package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// RestoredBody tells a child that it has been restored: what it goes on with was
// saved while it was held, maybe somewhere else, and the connection is a new one.
// A [SurvivedBody] answers it.
type RestoredBody struct {
	Version int `json:"version"`
	// Reseed says that the state has been here before, or is somewhere else as well:
	// what draws random numbers gets seeds of its own, and programs that were left
	// waiting are given up.
	Reseed bool `json:"anew,omitempty"`
	// Listen is the port at which the child is to take connections to the server, see
	// [Client.Accept]; 0: none.
	Listen uint16 `json:"listen,omitempty"`
}

// SurvivedBody tells what a restored child holds.
type SurvivedBody struct {
	Version   int        `json:"version"`
	Error     string     `json:"error,omitempty"`
	Instances []Survivor `json:"instances,omitempty"`
}

// Survivor is an instance that was there when its child was held.
type Survivor struct {
	ID      uint32 `json:"id"`
	Runtime string `json:"runtime"`
	Memory  int64  `json:"memory,omitempty"` // its limit, in bytes
}

// maxSurvivors bounds how many a child may tell of.
const maxSurvivors = 1 << 10

// Alone calls f while nobody else writes; f writes with what it is given.
func (c *Conn) Alone(f func(write func(kind Kind, id uint32, v any) error) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(func(kind Kind, id uint32, v any) error {
		body, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encoding a frame: %w", err)
		}
		return c.writeLocked(kind, id, body)
	})
}

// Hold calls f at a moment in which nothing is under way between the two ends, no
// instance does anything, and the child sends nothing. A busy instance is a
// fault.Conflict. ctx bounds the waiting for that moment, not f. Only children that
// have a machine of their own can be held.
func (c *Client) Hold(ctx context.Context, f func() error) error {
	free, err := c.takeAll(ctx)
	if err != nil {
		return err
	}
	defer free()
	return c.conn.Alone(func(write func(Kind, uint32, any) error) error {
		answer := make(chan StatusBody, 1)
		c.mu.Lock()
		c.question++
		number := c.question
		c.holding, c.holdNumber = answer, number
		c.mu.Unlock()
		if err := write(KindHold, number, struct{}{}); err != nil {
			return gone(err)
		}
		err := c.waitHeld(ctx, answer)
		if err == nil {
			err = f()
		}
		if failed := write(KindGoOn, number, struct{}{}); failed != nil && err == nil {
			err = gone(failed)
		}
		return err
	})
}

func (c *Client) waitHeld(ctx context.Context, answer <-chan StatusBody) error {
	select {
	case a := <-answer:
		return a.err()
	case <-c.ended:
		return gone(c.Err())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeAll makes the caller the one that is busy with every instance.
func (c *Client) takeAll(ctx context.Context) (free func(), err error) {
	c.mu.Lock()
	var all []*Instance
	for _, in := range c.instances {
		all = append(all, in)
	}
	c.mu.Unlock()
	var taken []*Instance
	free = func() {
		for _, in := range taken {
			in.finish()
		}
	}
	for _, in := range all {
		if err := in.begin(ctx, Window); err != nil {
			if fault.KindOf(err) == fault.Unavailable && c.Err() == nil {
				continue // this one alone has ended
			}
			free()
			return nil, err
		}
		taken = append(taken, in)
	}
	return free, nil
}

// held hands the answer to a hold to whom it is for. One that nobody waits for is
// late.
func (c *Client) held(f Frame) error {
	var a StatusBody
	if err := json.Unmarshal(f.Body, &a); err != nil {
		return fmt.Errorf("reading the answer to a hold: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holding != nil && c.holdNumber == f.ID {
		c.holding <- a
		c.holding = nil
	}
	return nil
}

// NewRestoredClient tells a child over stream that it was restored, and waits as
// long as ctx allows until it has answered. The instances that it still holds can
// be taken over once each. serve is as for [Client.Accept], translate as for
// [Client.Translate].
func NewRestoredClient(
	ctx context.Context, stream io.ReadWriteCloser, body RestoredBody,
	serve func(context.Context, net.Conn), translate func(context.Context, sandbox.Source) (sandbox.Translation, error),
) (*Client, []Survivor, error) {
	body.Version = Version
	c := newClient(stream)
	// What the child was about to answer when it was saved is for nobody: its numbers
	// are not those of this connection.
	c.question, c.dialled = rand.Uint32(), rand.Uint32()&^fromChild
	c.serve, c.translate = serve, translate
	answer := make(chan SurvivedBody, 1)
	c.survived = answer
	go c.read()
	err := c.conn.WriteJSON(KindRestored, 0, body)
	var s SurvivedBody
	if err == nil {
		select {
		case s = <-answer:
			err = s.check()
		case <-c.ended:
			err = c.Err()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range s.Instances {
		c.last = max(c.last, one.ID)
	}
	return c, s.Instances, nil
}

func (s *SurvivedBody) check() error {
	switch {
	case s.Version != Version:
		return fmt.Errorf("it speaks version %d of the protocol, not %d", s.Version, Version)
	case s.Error != "":
		return errors.New(cut(s.Error, maxName))
	case len(s.Instances) > maxSurvivors:
		return fmt.Errorf("it tells of %d instances", len(s.Instances))
	}
	seen := map[uint32]bool{}
	for _, one := range s.Instances {
		if one.ID == 0 || one.ID > 1<<31 || seen[one.ID] {
			return fmt.Errorf("it tells of an instance with the number %d", one.ID)
		}
		seen[one.ID] = true
	}
	return nil
}

func (c *Client) hasSurvived(text []byte) error {
	var s SurvivedBody
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("reading what a child still holds: %w", err)
	}
	select {
	case c.survived <- s: // nil where nobody asked
		return nil
	default:
		return errors.New("it reports what it holds without a request")
	}
}

// Adopt gives the server's half of an instance that a restored child still holds.
func (c *Client) Adopt(s Survivor) (*Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return nil, gone(c.cause)
	}
	in := &Instance{client: c, id: s.ID, memory: StartBody{MemoryBytes: s.Memory}.Memory(), done: make(chan struct{}), news: make(chan struct{}, 1)}
	c.instances[in.id] = in
	return in, nil
}
