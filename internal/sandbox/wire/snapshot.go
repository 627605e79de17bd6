package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"paddock/internal/sandbox"
)

// piece is how much of a layer one frame carries.
const piece = 64 << 10

// snapshotRoom is what a child may have under way while it makes a snapshot:
// data, what an inspection makes the program print, and the answer, in which
// the inspection is.
const snapshotRoom = 2*Window + maxBody/4

// silence is how long a child may say nothing while it makes a snapshot: then it
// is taken to be broken, and everything in it is lost. Before the first data it
// may have to make the interpreter again (awakenTime in package worker: 5 s) and to
// look through its memory (a second for a few GiB); after that it sends all the time.
const silence = 30 * time.Second

const freshHint = "a fresh interpreter can be started: the files are there, variables are not"

// Layer opens what a snapshot wrote.
type Layer = func() (io.ReadCloser, error)

// bound is how long a snapshot may be: all of the memory, in the worst case as
// it is, and a few bytes for each page.
func (in *Instance) bound() int64 { return in.memory + in.memory/64 + Window }

// Snapshot has the child write the instance's state to w, which is called from
// this goroutine. When ctx ends it returns at once; the instance can be used
// when the child has given the snapshot up. A child that says nothing for 30 s is
// taken to be broken: the connection ends.
func (in *Instance) Snapshot(ctx context.Context, w io.Writer, o sandbox.SnapshotOptions) (sandbox.Snapshot, error) {
	if err := in.begin(ctx, snapshotRoom); err != nil {
		return sandbox.Snapshot{}, err
	}
	in.mu.Lock()
	whole := o.Whole || o.Portable || in.torn
	in.torn = true
	in.mu.Unlock()
	s := &snapshot{in: in, w: w, whole: whole}
	body := SnapshotBody{Whole: whole, Portable: o.Portable, Mark: o.Mark}
	if err := in.client.conn.WriteJSON(KindSnapshot, in.id, body); err != nil {
		in.finish()
		return sandbox.Snapshot{}, gone(err)
	}
	return s.wait(ctx)
}

// snapshot is one that is being written, seen from the server.
type snapshot struct {
	in     *Instance
	w      io.Writer
	whole  bool
	bytes  int64 // that came
	owed   int   // bytes written and not yet credited
	broken error // of the writer
}

func (s *snapshot) wait(ctx context.Context) (sandbox.Snapshot, error) {
	in, overdue := s.in, make(<-chan time.Time)
	silent := time.NewTimer(silence)
	defer silent.Stop()
	for {
		select {
		case <-in.news:
			told := s.broken != nil
			saved, err := s.handle(in.take())
			silent.Reset(silence) // from here on: the time until here was the writer's
			if err != nil {
				in.finish()
				in.client.fail(err)
				return sandbox.Snapshot{}, gone(err)
			}
			if saved != nil {
				return s.end(saved)
			}
			if s.broken != nil && !told {
				in.giveUp()
				overdue = time.After(forceAfter)
			}
		case <-overdue:
			in.client.fail(errors.New("it did not give up a snapshot when told to"))
			<-in.done
		case <-silent.C:
			in.client.fail(fmt.Errorf("it said nothing for %v while it made a snapshot", silence))
			<-in.done
		case <-in.done:
			in.finish()
			return sandbox.Snapshot{}, gone(in.cause)
		case <-ctx.Done():
			in.giveUp()
			in.abandon(KindSaved)
			return sandbox.Snapshot{}, context.Cause(ctx)
		}
	}
}

// giveUp tells the child that nobody wants the snapshot any more.
func (in *Instance) giveUp() {
	if err := in.client.conn.WriteJSON(KindInterrupt, in.id, InterruptBody{Cause: sandbox.Cancelled}); err != nil {
		in.client.fail(err)
	}
}

// handle passes the data on. An error means that the child does not keep to
// the protocol.
func (s *snapshot) handle(frames []Frame) (*SavedBody, error) {
	for _, f := range frames {
		switch f.Kind {
		case KindData:
			if s.bytes += int64(len(f.Body)); s.bytes > s.in.bound() {
				return nil, errors.New("a snapshot is larger than the memory")
			}
			s.write(f.Body)
		case KindSaved:
			var saved SavedBody
			if err := json.Unmarshal(f.Body, &saved); err != nil {
				return nil, fmt.Errorf("reading a snapshot's answer: %w", err)
			}
			return &saved, s.check(saved)
		}
	}
	return nil, nil
}

func (s *snapshot) check(saved SavedBody) error {
	got := saved.Snapshot
	switch {
	case saved.Kind != "":
		return nil
	case len(got.State) == 0 || len(got.State) > MaxState:
		return fmt.Errorf("a snapshot's state has %d bytes", len(got.State))
	case got.Bytes < 0 || got.Bytes > s.in.memory:
		return fmt.Errorf("a snapshot holds %d bytes of memory", got.Bytes)
	case s.whole && !got.Whole, got.Whole && s.bytes == 0, got.Bytes > 0 && s.bytes == 0:
		return errors.New("a snapshot is not whole")
	}
	return nil
}

func (s *snapshot) write(p []byte) {
	if s.broken == nil {
		n, err := s.w.Write(p)
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		s.broken = err
	}
	if s.owed += len(p); s.owed >= creditAt {
		if err := s.in.client.conn.WriteJSON(KindTaken, s.in.id, CreditBody{Bytes: s.owed}); err != nil {
			s.in.client.fail(err)
		}
		s.owed = 0
	}
}

func (s *snapshot) end(saved *SavedBody) (sandbox.Snapshot, error) {
	in := s.in
	err := errors.Join(s.broken)
	if err == nil {
		err = saved.err()
	}
	in.mu.Lock()
	in.torn = err != nil
	in.mu.Unlock()
	in.finish()
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	saved.Snapshot.Inspection = Brief(saved.Snapshot.Inspection)
	return saved.Snapshot, nil
}

// Rewind has the child bring an earlier state back. When ctx ends meanwhile, it
// may have done so or not.
func (in *Instance) Rewind(ctx context.Context, mark string) error {
	return in.command(ctx, KindRewind, RewindBody{Mark: mark}, KindRewound)
}

// Refresh has the child open again what the program has open. When ctx ends
// meanwhile, it may have done so or not.
func (in *Instance) Refresh(ctx context.Context) error {
	return in.command(ctx, KindRefresh, struct{}{}, KindRefreshed)
}

// command asks for something that is answered by an StatusBody.
func (in *Instance) command(ctx context.Context, kind Kind, body any, answer Kind) error {
	text, err := in.ask(ctx, kind, body, answer)
	if err != nil {
		return err
	}
	var done StatusBody
	if err := json.Unmarshal(text, &done); err != nil {
		return fmt.Errorf("reading whether it was done: %w", err)
	}
	return done.err()
}

// resume asks for the instance and sends the layers, as the child takes them.
func (in *Instance) resume(ctx context.Context, body StartBody, layers []Layer) ([]byte, error) {
	if err := in.begin(ctx, Window); err != nil {
		return nil, err
	}
	if err := in.client.conn.WriteJSON(KindStart, in.id, body); err != nil {
		in.finish()
		return nil, gone(err)
	}
	s := &sending{in: in, credit: Window, buffer: make([]byte, piece)}
	for _, open := range layers {
		err := s.send(ctx, open)
		if s.answer != nil {
			break
		}
		if err != nil {
			in.abandon(KindStarted)
			return nil, err
		}
	}
	for s.answer == nil {
		if err := s.listen(ctx); err != nil {
			in.abandon(KindStarted)
			return nil, err
		}
	}
	in.finish()
	return s.answer, nil
}

// sending is layers on their way to the child.
type sending struct {
	in     *Instance
	credit int
	answer []byte // to the start, when it has come
	buffer []byte
}

func (s *sending) send(ctx context.Context, open Layer) error {
	r, err := open()
	if err != nil {
		return fmt.Errorf("opening a layer of the state: %w", err)
	}
	defer r.Close()
	for {
		for s.credit < piece && s.answer == nil {
			if err := s.listen(ctx); err != nil {
				return err
			}
		}
		if s.answer != nil {
			return nil
		}
		n, err := io.ReadFull(r, s.buffer)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("reading a layer of the state: %w", err)
		}
		if n > 0 {
			s.credit -= n
			if err := s.in.client.conn.Write(KindLayer, s.in.id, s.buffer[:n]); err != nil {
				return gone(err)
			}
		}
		if err != nil {
			if err := s.in.client.conn.Write(KindLayer, s.in.id); err != nil {
				return gone(err)
			}
			return nil
		}
	}
}

// listen waits for what the child says next.
func (s *sending) listen(ctx context.Context) error {
	select {
	case <-s.in.news:
		for _, f := range s.in.take() {
			switch f.Kind {
			case KindWantLayer:
				var more CreditBody
				if err := json.Unmarshal(f.Body, &more); err != nil {
					return fmt.Errorf("reading a credit: %w", err)
				}
				s.credit = min(s.credit+max(more.Bytes, 0), Window)
			case KindStarted:
				s.answer = f.Body
			}
		}
		return nil
	case <-s.in.done:
		return gone(s.in.cause)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
