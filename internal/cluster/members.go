package cluster

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"paddock/internal/fault"
)

const (
	nodesStream  = "paddock_nodes"
	nodesPrefix  = "paddock.nodes."
	probesPrefix = "paddock.probes."

	// beat is how often a node says that it is there.
	beat = 300 * time.Millisecond
	// lease is how long a node is in after the start of its last acknowledged beat.
	lease = 3 * beat
	// silence is after which others may take it for dead. It is longer than lease, so
	// that by then the node knows as a rule that it is not in.
	silence = 4 * beat
	// probing is how long a probe waits for its answer.
	probing = beat
)

// Life names one process of a node: the node's name, and a text that no other process has.
type Life struct {
	Node string `json:"node"`
	Life string `json:"life"`
	// Born is the sequence of its first beat: a later process of the node has a greater
	// one, unless all servers were down in between.
	Born uint64 `json:"born"`
}

// Members says which nodes of a cluster live, this one included. That decides when a
// session is taken over, and never whether: the head does. It may be used from any
// goroutine.
type Members struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	sub []*nats.Subscription

	stop  context.CancelFunc
	beats sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	me    Life
	begun time.Time // when the last acknowledged beat was sent
	acked uint64    // the sequence of one that was
	seen  sightings
}

// message is what a beat says.
type message struct {
	Life
	// Acked is the sequence of a beat that was acknowledged: where it stays the same the
	// node is cut off from most servers, whatever else of it arrives.
	Acked uint64 `json:"acked"`
}

// Join makes this process a node with that name, which no other node may have, until
// Close. replicas is how many servers keep who is there. It tries until ctx ends. The
// node is in when it returns.
func Join(ctx context.Context, nc *nats.Conn, name string, replicas int) (*Members, error) {
	js, _, err := openStream(ctx, nc, jetstream.StreamConfig{
		Name:              nodesStream,
		Subjects:          []string{nodesPrefix + "*"},
		Storage:           jetstream.MemoryStorage,
		Replicas:          replicas,
		MaxMsgsPerSubject: 1,
		MaxAge:            time.Minute,
	})
	if err != nil {
		return nil, err
	}
	m := &Members{
		nc: nc, js: js, me: Life{Node: name, Life: rand.Text()},
		seen: sightings{since: time.Now(), of: map[string]map[Life]sighting{}},
	}
	heard, err := nc.Subscribe(nodesPrefix+"*", m.heard)
	if err != nil {
		return nil, fmt.Errorf("listening to the nodes: %w", err)
	}
	m.sub = append(m.sub, heard)
	probes, err := nc.Subscribe(probesPrefix+m.me.Life, m.probed)
	if err != nil {
		_ = heard.Unsubscribe()
		return nil, fmt.Errorf("listening to probes: %w", err)
	}
	m.sub = append(m.sub, probes)
	run, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.beats.Go(func() { m.run(run) })
	for !m.In() {
		if !wait(ctx) {
			m.Close()
			return nil, fault.New(fault.Unavailable, "this node does not get into the cluster").
				WithHint("see that most of the NATS servers run").WithCause(ctx.Err())
		}
	}
	return m, nil
}

// Close ends the membership, and waits until nothing of it runs. It works twice.
func (m *Members) Close() {
	m.stop()
	m.beats.Wait()
	for _, s := range m.sub {
		_ = s.Unsubscribe() // it is gone already where the connection is
	}
}

// Me is this process.
func (m *Members) Me() Life {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.me
}

// In reports whether this node is in: most servers had a beat of it a moment ago. A node
// that is not in begins nothing, and lets nothing out.
func (m *Members) In() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inLocked(time.Now())
}

func (m *Members) inLocked(now time.Time) bool {
	return !m.begun.IsZero() && now.Sub(m.begun) < lease
}

// Dead reports whether a process is to be taken for dead: a later one of its node lives,
// or it was silent for too long and does not answer a probe, or answers that it is not in.
// It is a fault.Unavailable while this node is not in, as then it may be who is cut off.
func (m *Members) Dead(ctx context.Context, l Life) (bool, error) {
	if l == m.Me() {
		return false, nil
	}
	m.mu.Lock()
	now := time.Now()
	in := m.inLocked(now)
	quiet, replaced := m.seen.quiet(l, now)
	m.mu.Unlock()
	switch {
	case !in:
		return false, fault.New(fault.Unavailable, "this node is cut off from the cluster").
			WithHint("try again; other nodes may answer")
	case replaced:
		return true, nil
	case quiet < lease:
		return false, nil
	}
	one, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	answer, err := m.nc.RequestWithContext(one, probesPrefix+l.Life, nil)
	switch {
	case err == nil:
		return quiet >= silence && string(answer.Data) != probeIn, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders): // its connection is gone, and its lease is over
		return true, nil
	case errors.Is(err, context.DeadlineExceeded):
		return quiet >= silence, nil
	}
	return false, fault.New(fault.Unavailable, "the node %q cannot be asked whether it lives", l.Node).
		WithHint("try again").WithCause(err)
}

// What a probe is answered.
const probeIn, probeOut = "in", "out"

func (m *Members) probed(p *nats.Msg) {
	answer := probeOut
	if m.In() {
		answer = probeIn
	}
	_ = p.Respond([]byte(answer)) // who asked asks again
}

func (m *Members) heard(b *nats.Msg) {
	var said message
	if json.Unmarshal(b.Data, &said) != nil || b.Subject != nodeSubject(said.Node) {
		return // it is no node's
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen.heard(said, time.Now())
}

// run sends beats. One that is not acknowledged does not hold up the next.
func (m *Members) run(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var sent sync.WaitGroup
	defer sent.Wait()
	for ctx.Err() == nil {
		sent.Go(func() { m.beat(ctx) })
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (m *Members) beat(ctx context.Context) {
	begun := time.Now()
	m.mu.Lock()
	said := message{m.me, m.acked}
	m.mu.Unlock()
	data, err := json.Marshal(said)
	if err != nil {
		return // it is two texts and a number
	}
	one, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	ack, err := m.js.Publish(one, nodeSubject(said.Node), data, jetstream.WithRetryAttempts(0))
	if err != nil {
		return // In says so, once the lease is over
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if begun.After(m.begun) {
		m.begun = begun
	}
	if m.me.Born == 0 {
		m.me.Born = ack.Sequence
	}
	m.acked = ack.Sequence
}

func nodeSubject(name string) string {
	return nodesPrefix + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// sightings are what was heard of nodes, and when.
type sightings struct {
	since time.Time // when listening began: who was not heard is silent since then
	of    map[string]map[Life]sighting
}

type sighting struct {
	acked uint64
	at    time.Time // when acked was heard first
}

// forgotten is after which a process of a node is not remembered that has another.
const forgotten = time.Minute

func (s *sightings) heard(m message, now time.Time) {
	if m.Acked == 0 {
		return // most servers may not have it yet
	}
	all := s.of[m.Node]
	if all == nil {
		all = map[Life]sighting{}
		s.of[m.Node] = all
	}
	was, known := all[m.Life]
	if !known {
		maps.DeleteFunc(all, func(_ Life, other sighting) bool { return now.Sub(other.at) > forgotten })
	}
	if m.Acked != was.acked {
		all[m.Life] = sighting{m.Acked, now}
	}
}

// quiet is for how long a process was silent. replaced says that a later process of the
// same node was heard.
func (s *sightings) quiet(l Life, now time.Time) (quiet time.Duration, replaced bool) {
	for other := range s.of[l.Node] {
		replaced = replaced || other.Born > l.Born
	}
	if last, known := s.of[l.Node][l]; known {
		return now.Sub(last.at), replaced
	}
	return now.Sub(s.since), replaced
}
