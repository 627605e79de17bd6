package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"paddock/internal/fault"
)

// tailMax is how many bytes of packs a head holds itself. What is larger is an object
// before the head names it.
const tailMax = 256 << 10

// storing bounds what is stored after an answer.
const storing = 30 * time.Second

// packRef is one pack of a session's line.
type packRef struct {
	At
	Bytes int `json:"bytes"`
	// Tail says that the head holds it, and that it may not be an object yet.
	Tail bool `json:"tail,omitempty"`
}

// Saver keeps the packs of a session that this process has claimed: what a head names is
// in it or stored before. It may be used from any goroutine.
type Saver struct {
	claim   *Claim
	objects *Objects

	mu     sync.Mutex    // guards the fields below; held while a pack is saved
	line   []packRef     // in the order in which they were saved
	tail   map[At][]byte // the packs that the head holds
	number uint64        // of the last pack of this claim

	storing  sync.WaitGroup // at most one goroutine
	busy     bool           // guarded by mu: it runs
	stop     context.CancelFunc
	lifetime context.Context
}

// NewSaver goes on with what the claim found. Who has it closes it.
func NewSaver(c *Claim, o *Objects) (*Saver, error) {
	s := &Saver{claim: c, objects: o, tail: map[At][]byte{}}
	state, _ := c.Found()
	if len(state) > 0 {
		index, rest, _ := bytes.Cut(state, []byte("\n"))
		err := json.Unmarshal(index, &s.line)
		for _, p := range s.line {
			if !p.Tail {
				continue
			}
			if p.Bytes < 0 || p.Bytes > len(rest) {
				err = errors.Join(err, errors.New("its tail is too short"))
				break
			}
			s.tail[p.At], rest = rest[:p.Bytes:p.Bytes], rest[p.Bytes:]
		}
		if err != nil {
			return nil, fault.New(fault.Internal, "the head of session %q is damaged", c.key.Session).
				WithHint("the operator can put a backup of NATS back").WithCause(err)
		}
	}
	s.lifetime, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close waits until nothing of it runs. It works twice. Nothing is lost by it.
func (s *Saver) Close() {
	s.stop()
	s.storing.Wait()
}

// Packs lists the session's packs, the newest last.
func (s *Saver) Packs() (all []At) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.line {
		all = append(all, p.At)
	}
	return all
}

// Save keeps a pack, and has the head name it as the newest one; those that are dropped it
// names no more. When it returns, most servers have all of that on disk. After an error
// the session is what it was, as far as this claim goes: what the pack holds has to be in
// the next one again. Its errors are those of [Claim.Commit].
func (s *Saver) Save(ctx context.Context, p Pack, dropped ...At) (At, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++ // also after an error: the object may be there
	at := At{s.claim.Place(), s.number}
	data, err := encodePack(s.claim.key, at, p)
	if err != nil {
		return at, err
	}
	ref := packRef{At: at, Bytes: len(data), Tail: len(data) <= tailMax}
	if !ref.Tail {
		err = s.objects.Put(ctx, at.name(s.claim.key), data)
	} else if s.tailBytesLocked()+len(data) > tailMax {
		err = s.storeLocked(ctx)
	}
	if err != nil {
		return at, err
	}
	line := slices.DeleteFunc(slices.Clone(s.line), func(p packRef) bool { return slices.Contains(dropped, p.At) })
	if err := s.commitLocked(ctx, append(line, ref), data, s.claim.Commit); err != nil {
		return at, err
	}
	if s.tailBytesLocked() > tailMax/2 && !s.busy {
		s.busy = true
		s.storing.Go(s.storeSoon)
	}
	return at, nil
}

// Release gives the session up; see [Claim.Release]. The packs that the head holds stay there.
func (s *Saver) Release(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commitLocked(ctx, s.line, nil, s.claim.Release)
}

// commitLocked writes a head with that line. newest is the last pack of it, where that is
// a new one.
func (s *Saver) commitLocked(ctx context.Context, line []packRef, newest []byte, write func(context.Context, []byte) error) error {
	index, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encoding a head: %w", err)
	}
	state, tail := append(index, '\n'), map[At][]byte{}
	for i, p := range line {
		if !p.Tail {
			continue
		}
		data := s.tail[p.At]
		if data == nil && i == len(line)-1 {
			data = newest
		}
		tail[p.At], state = data, append(state, data...)
	}
	if err := write(ctx, state); err != nil {
		return err
	}
	s.line, s.tail = line, tail
	return nil
}

func (s *Saver) tailBytesLocked() (n int) {
	for _, data := range s.tail {
		n += len(data)
	}
	return n
}

// storeLocked makes objects of the packs in the tail. The next head does not hold them.
func (s *Saver) storeLocked(ctx context.Context) error {
	for at, data := range s.tail {
		if err := s.objects.Put(ctx, at.name(s.claim.key), data); err != nil {
			return err
		}
		s.storedLocked(at)
	}
	return nil
}

// storedLocked notes that a pack is an object.
func (s *Saver) storedLocked(at At) {
	s.line = slices.Clone(s.line)
	for i := range s.line {
		if s.line[i].At == at {
			s.line[i].Tail = false
		}
	}
	delete(s.tail, at)
}

// storeSoon makes objects of the packs in the tail while more are saved. What it cannot
// store, Save stores once the tail is full.
func (s *Saver) storeSoon() {
	ctx, cancel := context.WithTimeout(s.lifetime, storing)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.busy = false }()
	for len(s.tail) > 0 {
		at, data := oldest(s.tail)
		s.mu.Unlock()
		err := s.objects.Put(ctx, at.name(s.claim.key), data)
		s.mu.Lock()
		if err != nil {
			return
		}
		s.storedLocked(at)
	}
}

func oldest(tail map[At][]byte) (first At, data []byte) {
	for at, d := range tail {
		if data == nil || at.Place < first.Place || at.Place == first.Place && at.Number < first.Number {
			first, data = at, d
		}
	}
	return first, data
}

// Load reads a pack of the session.
func (s *Saver) Load(ctx context.Context, at At) (Pack, error) {
	s.mu.Lock()
	data := s.tail[at]
	s.mu.Unlock()
	if data == nil {
		var err error
		if data, err = s.objects.Get(ctx, at.name(s.claim.key)); err != nil {
			return Pack{}, err
		}
	}
	return decodePack(s.claim.key, at, data)
}
