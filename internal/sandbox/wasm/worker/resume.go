package worker

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"paddock/internal/fault"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wire"
)

// arriving is the layers of a state on their way from the server. The
// connection's reader pushes, one goroutine reads: up to io.EOF a layer, next
// begins the one after it.
type arriving struct {
	want func(bytes int) // tells the server that so much more may come

	mu     sync.Mutex // guards what follows
	frames [][]byte
	queued int
	closed bool
	news   chan struct{} // holds one token when something may be there

	rest  []byte // of the frame that is being read
	ended bool   // the layer has been read
	taken int    // bytes read and not yet asked for again
}

func newArriving(want func(bytes int)) *arriving {
	return &arriving{want: want, news: make(chan struct{}, 1)}
}

// push is called by the connection's reader. A server that sends more than it
// may ends the start.
func (a *arriving) push(p []byte) {
	a.mu.Lock()
	a.queued += len(p)
	if a.queued > wire.Window || len(a.frames) > 2*wire.MaxLayers {
		a.closed = true
	} else {
		a.frames = append(a.frames, p)
	}
	a.mu.Unlock()
	a.tell()
}

// close ends the reading: what is being opened is not wanted any more.
func (a *arriving) close() {
	a.mu.Lock()
	a.closed, a.frames = true, nil
	a.mu.Unlock()
	a.tell()
}

func (a *arriving) tell() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

var errHungUp = errors.New("the start was given up")

func (a *arriving) next() { a.ended = false }

// Read gives a part of the present layer.
func (a *arriving) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.ended {
			return 0, io.EOF
		}
		a.mu.Lock()
		switch {
		case a.closed:
			a.mu.Unlock()
			return 0, errHungUp
		case len(a.frames) > 0:
			a.rest, a.frames = a.frames[0], a.frames[1:]
			a.queued -= len(a.rest)
			a.ended = len(a.rest) == 0
			a.mu.Unlock()
		default:
			a.mu.Unlock()
			<-a.news
		}
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	if a.taken += n; a.taken >= wire.Window/4 {
		a.want(a.taken)
		a.taken = 0
	}
	return n, nil
}

// resumeFrom reads a state and makes it the newest moment. After an error
// nothing of it is left.
func (in *instance) resumeFrom(body wire.ResumeBody, layers *arriving) error {
	state, err := in.readState(body)
	if err != nil {
		return err
	}
	r := &restoring{snapshots: &in.saved, image: in.program.image, state: state, limit: in.limit()}
	for range body.Layers {
		layers.next()
		if err = r.layer(layers); err != nil {
			break
		}
	}
	if err == nil {
		err = r.complete()
	}
	if err != nil {
		r.release()
	}
	switch {
	case errors.Is(err, errHungUp) || err == nil:
		return err
	case errors.Is(err, errDamaged):
		return unsupported("the kept state of the interpreter cannot be read: %v", err)
	}
	return fmt.Errorf("reading the kept state: %w", err)
}

// unsupported is the fault of a state that cannot be resumed.
func unsupported(format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, format, args...).WithHint("start a fresh interpreter: the files are there, variables are not")
}

// forkFrom makes a moment of another instance the newest one, without stopping
// that.
func (in *instance) forkFrom(body wire.ForkBody) error {
	from, ok := in.worker.loop.Instance(body.ID)
	if !ok || from.program != in.program {
		return notAtHand()
	}
	m := from.saved.find(body.Mark)
	if m == nil {
		return notAtHand()
	}
	if limit := in.limit(); m.length > limit {
		in.saved.release(m)
		return tooLarge(m.length, limit)
	}
	in.saved.begin(m)
	return nil
}

// tooLarge is the fault of a state that does not fit.
func tooLarge(bytes, limit uint64) *fault.Error {
	return fault.New(fault.Invalid, "a memory limit of %d MiB is too low: the kept state needs %d MiB", limit>>20, (bytes+1<<20-1)>>20).
		WithHint("give it more memory, or start a fresh interpreter")
}

// readState reads a state and checks that it is for this interpreter.
func (in *instance) readState(body wire.ResumeBody) (savedState, error) {
	var s savedState
	if err := json.Unmarshal(body.State, &s); err != nil || s.Moment == "" {
		return s, unsupported("the kept state of the interpreter cannot be read")
	}
	limit, img, own := in.limit(), in.program.image, in.program.guest
	switch {
	case s.Version != stateVersion:
		return s, unsupported("the kept state is of version %d, not %d", s.Version, stateVersion)
	case s.Runtime != own.Name:
		return s, unsupported("the kept state is one of %q, not of %s", s.Runtime, own.Name)
	case s.Guest != own.Digest:
		return s, unsupported("the kept state was made by another build of the %s interpreter", own.Name)
	case s.Bytes > limit:
		return s, tooLarge(s.Bytes, limit)
	case s.Bytes < img.Bytes || s.Bytes%(64<<10) != 0:
		return s, unsupported("the kept state of the interpreter cannot be read")
	}
	return s, nil
}

// restoring is a state that is being put together from layers.
type restoring struct {
	*snapshots
	image *linear.Image
	state savedState
	limit uint64

	base  base     // what the first layer builds on
	based bool     // that is the image
	ids   []pageID // by number; 0: it is as base has it
	at    string   // the moment that the layers have led to
	bytes uint64

	taking sync.Mutex // guards spare
	spare  []pageID
}

// layer applies the next layer.
func (r *restoring) layer(from io.Reader) error {
	l, err := openLayer(from)
	if err != nil {
		return err
	}
	switch {
	case l.head.From != r.at:
		return damaged("one is missing, or they are in another order")
	case r.at == "" && l.head.Image != "" && l.head.Image != r.image.Digest:
		return unsupported("the kept state builds on another image of the interpreter")
	case l.head.Bytes < r.bytes || l.head.Bytes > r.state.Bytes:
		return damaged("the memory has another length")
	}
	if r.at == "" && l.head.Image != "" {
		r.based = true
		if r.base, err = baseOf(r.image); err != nil {
			return err
		}
	}
	r.bytes, r.at = l.head.Bytes, l.head.To
	if n := int(r.bytes / linear.PageSize); n > len(r.ids) {
		r.ids = append(r.ids, make([]pageID, n-len(r.ids))...)
	}
	return l.each(r.change)
}

// change applies the change of one page. It is called from several goroutines,
// once for each page.
func (r *restoring) change(n uint32, change []byte) {
	if id := r.ids[n]; id != 0 {
		page := r.pages.at(id)
		subtle.XORBytes(page, page, change)
		return
	}
	id := r.room()
	r.ids[n] = id
	if before := r.base.page(n); before != nil {
		subtle.XORBytes(r.pages.at(id), before, change)
	} else {
		copy(r.pages.at(id), change)
	}
}

// room is a page to fill.
func (r *restoring) room() pageID {
	r.taking.Lock()
	defer r.taking.Unlock()
	if len(r.spare) == 0 {
		r.spare = r.pages.take(chunkPages)
	}
	id := r.spare[0]
	r.spare = r.spare[1:]
	return id
}

// complete makes what the layers have led to the newest moment.
func (r *restoring) complete() error {
	if r.at != r.state.Moment {
		return damaged("the last one is missing")
	}
	if !r.based {
		if err := r.compare(); err != nil {
			return err
		}
	}
	m := &snapshot{id: r.at, length: r.state.Bytes, files: r.state.Files, cpu: r.state.CPU, users: 1}
	for n, id := range r.ids {
		if id != 0 {
			m.pages = append(m.pages, entry{uint32(n), id})
		}
	}
	r.ids = nil
	r.release()
	r.begin(m)
	return nil
}

// compare finds out what of a state that builds on zeros differs from the image.
func (r *restoring) compare() error {
	img, err := baseOf(r.image)
	if err != nil {
		return err
	}
	if n := int(r.image.Bytes / linear.PageSize); n > len(r.ids) {
		r.ids = append(r.ids, make([]pageID, n-len(r.ids))...)
	}
	var needless []pageID
	for n, id := range r.ids {
		base := img.page(uint32(n))
		switch {
		case id == 0 && base != nil && !isZero(base):
			r.ids[n] = r.room()
			clear(r.pages.at(r.ids[n]))
		case id != 0 && same(base, r.pages.at(id)):
			needless, r.ids[n] = append(needless, id), 0
		}
	}
	r.pages.giveBack(needless)
	return nil
}

// release gives back the pages that are not in a moment.
func (r *restoring) release() {
	r.pages.giveBack(r.spare)
	r.pages.giveBack(r.ids)
	r.spare, r.ids = nil, nil
}
