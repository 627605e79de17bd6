package sandboxtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"hash/crc32"
	"io"
	mathrand "math/rand/v2"
	"reflect"
	"slices"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// fakeMarks is how many snapshots can be gone back to.
const fakeMarks = 8

func init() {
	for _, v := range []any{int64(0), "", []any{}, &function{}, fakeNone{}} {
		gob.Register(v)
	}
}

// fakeNone stands for nil, which gob does not encode.
type fakeNone struct{}

// swapped gives a value, and what is in it, with other instead of one.
func swapped(v, one, other any) any {
	list, ok := v.([]any)
	if !ok {
		if v == one {
			return other
		}
		return v
	}
	all := make([]any, len(list))
	for i, e := range list {
		all[i] = swapped(e, one, other)
	}
	return all
}

// fakeMoment is a state that a snapshot was made of. It is not changed any more.
type fakeMoment struct {
	id string
	fakeState
}

type fakeMark struct {
	name string
	to   *fakeMoment
}

// fakeLayer leads from one moment to another, or from nothing to one.
type fakeLayer struct {
	From, To string
	Set      map[string]any // variables that are new or changed
	Gone     []string
	Imports  []string
	Extra    int64
	Random   uint64
	Waits    *fakeWaiting
}

// fakeKept is a Snapshot's State.
type fakeKept struct{ Runtime, Moment string }

var (
	_ sandbox.Snapshotter = (*fakeInstance)(nil)
	_ sandbox.Forker      = (*fakeInstance)(nil)
)

// Snapshot writes the variables that changed, with a checksum.
func (in *fakeInstance) Snapshot(ctx context.Context, w io.Writer, o sandbox.SnapshotOptions) (sandbox.Snapshot, error) {
	if err := in.begin(); err != nil {
		return sandbox.Snapshot{}, err
	}
	defer in.finish()
	before := in.newest
	if before == nil || !reflect.DeepEqual(before.fakeState, in.fakeState) {
		in.newest = &fakeMoment{id: rand.Text(), fakeState: in.fakeState.clone()}
	}
	whole := o.Whole || o.Portable || !in.written
	if whole {
		before = &fakeMoment{}
	}
	in.written = false
	out := sandbox.Snapshot{Whole: whole, Inspection: in.inspection(), Known: true}
	if before != in.newest {
		layer := layerBetween(before, in.newest)
		n, err := writeFakeLayer(ctx, w, layer)
		if err != nil {
			return sandbox.Snapshot{}, err
		}
		out.Bytes = n
		if whole {
			out.Bytes += in.memory()
		}
	}
	in.written = true
	if o.Mark != "" {
		in.mark(o.Mark)
	}
	out.State = encodeFake(fakeKept{in.spec.Runtime, in.newest.id})
	return out, nil
}

func (in *fakeInstance) mark(name string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.marks = slices.DeleteFunc(in.marks, func(m fakeMark) bool { return m.name == name })
	in.marks = append(in.marks, fakeMark{name, in.newest})
	in.marks = in.marks[max(0, len(in.marks)-fakeMarks):]
}

func (in *fakeInstance) marked(name string) (*fakeMoment, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, m := range in.marks {
		if m.name == name {
			return m.to, nil
		}
	}
	return nil, fault.New(fault.NotFound, "the interpreter has that state no longer at hand")
}

// Rewind takes the variables of an earlier snapshot.
func (in *fakeInstance) Rewind(_ context.Context, mark string) error {
	if err := in.begin(); err != nil {
		return err
	}
	defer in.finish()
	m, err := in.marked(mark)
	if err != nil {
		return err
	}
	in.beginAt(m, true)
	return nil
}

// Refresh has nothing to do: the fake's programs hold no file open.
func (in *fakeInstance) Refresh(context.Context) error {
	if err := in.begin(); err != nil {
		return err
	}
	in.finish()
	return nil
}

// beginAt takes the state of a moment, which the layers lead to.
func (in *fakeInstance) beginAt(m *fakeMoment, anew bool) {
	in.newest, in.written, in.fakeState = m, true, m.fakeState.clone()
	if anew {
		in.random, in.waits = mathrand.Uint64(), nil
	}
}

// Fork starts an interpreter with the variables of an earlier snapshot.
func (in *fakeInstance) Fork(ctx context.Context, mark string, spec sandbox.Spec) (sandbox.Instance, error) {
	if spec.Owner != in.spec.Owner || spec.Runtime != in.spec.Runtime || spec.Resume != nil {
		return nil, fault.New(fault.Invalid, "a fork has the owner and the runtime of what it is forked from, and no other state")
	}
	m, err := in.marked(mark)
	if err != nil {
		return nil, err
	}
	return in.backend.start(ctx, spec, m)
}

// beginWith takes over what a new interpreter begins with, if anything.
func (in *fakeInstance) beginWith(spec sandbox.Spec, from *fakeMoment) error {
	anew := true
	if spec.Resume != nil {
		m, err := readFake(spec.Runtime, spec.Resume)
		if err != nil {
			return err
		}
		from, anew = m, spec.Resume.Reseed
	}
	if from == nil {
		return nil
	}
	in.beginAt(from, anew)
	if limit := spec.Limits.MemoryBytes; limit > 0 && in.memory() > limit {
		return fault.New(fault.Invalid, "the memory limit is too low for the kept state").WithHint("give it more memory")
	}
	return nil
}

func layerBetween(a, b *fakeMoment) fakeLayer {
	l := fakeLayer{From: a.id, To: b.id, Set: map[string]any{}, Imports: b.imports, Extra: b.extra, Random: b.random, Waits: b.waits}
	for name, v := range b.vars {
		if old, had := a.vars[name]; !had || !reflect.DeepEqual(old, v) {
			l.Set[name] = swapped(v, nil, fakeNone{})
		}
	}
	for name := range a.vars {
		if _, has := b.vars[name]; !has {
			l.Gone = append(l.Gone, name)
		}
	}
	return l
}

func encodeFake(v any) []byte {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		panic(err) // all that a variable can be is registered
	}
	return b.Bytes()
}

// writeFakeLayer writes the encoded layer and its checksum.
func writeFakeLayer(ctx context.Context, w io.Writer, l fakeLayer) (int64, error) {
	body := encodeFake(l)
	body = binary.LittleEndian.AppendUint32(body, crc32.ChecksumIEEE(body))
	for _, part := range [][]byte{body[:len(body)/2], body[len(body)/2:]} {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if _, err := w.Write(part); err != nil {
			return 0, err
		}
	}
	return int64(len(body)), nil
}

var errFakeState = fault.New(fault.Unsupported, "the kept state cannot be read").WithHint("start a fresh interpreter")

func readFake(runtime string, r *sandbox.Resume) (*fakeMoment, error) {
	var kept fakeKept
	if err := gob.NewDecoder(bytes.NewReader(r.State)).Decode(&kept); err != nil || kept.Runtime != runtime {
		return nil, errFakeState.WithCause(err)
	}
	m := &fakeMoment{fakeState: fakeState{vars: map[string]any{}}}
	for _, open := range r.Layers {
		l, err := readFakeLayer(open)
		if err != nil {
			return nil, err
		}
		if l.From != m.id {
			return nil, errFakeState
		}
		for _, name := range l.Gone {
			delete(m.vars, name)
		}
		for name, v := range l.Set {
			m.vars[name] = swapped(v, fakeNone{}, nil)
		}
		m.id, m.imports, m.extra, m.random, m.waits = l.To, l.Imports, l.Extra, l.Random, l.Waits
	}
	if m.id != kept.Moment {
		return nil, errFakeState
	}
	return m, nil
}

func readFakeLayer(open func() (io.ReadCloser, error)) (l fakeLayer, err error) {
	from, err := open()
	if err != nil {
		return l, err
	}
	body, err := io.ReadAll(from)
	if err = errors.Join(err, from.Close()); err != nil {
		return l, err
	}
	if len(body) < 4 || crc32.ChecksumIEEE(body[:len(body)-4]) != binary.LittleEndian.Uint32(body[len(body)-4:]) {
		return l, errFakeState
	}
	if err := gob.NewDecoder(bytes.NewReader(body[:len(body)-4])).Decode(&l); err != nil {
		return l, errFakeState.WithCause(err)
	}
	return l, nil
}
