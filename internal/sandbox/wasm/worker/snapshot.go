package worker

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
)

// inspectTimeout bounds the inspection that is part of a snapshot, in processor time:
// fractions of a millisecond as a rule, but some of it may be the program's code.
const inspectTimeout = 250 * time.Millisecond

// reseedTimeout bounds what a driver does with new seeds, in processor time. That is a
// millisecond, and none of it the program's code.
const reseedTimeout = time.Second

// saving is a snapshot on its way to the server. Its methods may be called by
// anybody.
type saving struct {
	*serve.Window
	conn *wire.Conn
	id   uint32
	once sync.Once
	over chan struct{} // closed when nobody wants it any more
}

func newSaving(conn *wire.Conn, id uint32) *saving {
	return &saving{Window: serve.NewWindow(), conn: conn, id: id, over: make(chan struct{})}
}

var errGivenUp = errors.New("the snapshot was given up")

// cancel gives the snapshot up.
func (s *saving) cancel() { s.once.Do(func() { close(s.over) }) }

// Write sends p as the server takes it.
func (s *saving) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		select {
		case <-s.over:
			return sent, errGivenUp
		default:
		}
		n := s.Reserve(min(len(p)-sent, serve.Piece), s.over, nil)
		if n == 0 {
			return sent, errGivenUp
		}
		if err := s.conn.Write(wire.KindData, s.id, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// snapshot answers the server's request for one.
func (in *instance) snapshot(body wire.SnapshotBody, s *saving) {
	in.use.Lock()
	defer in.use.Unlock()
	if in.closed {
		return
	}
	saved, err := in.keep(body, s)
	in.saving.CompareAndSwap(s, nil) // an interrupt is meant for what comes next
	answer := wire.SavedBody{Snapshot: saved}
	if err != nil {
		answer = wire.SavedBody{StatusBody: wire.ErrorBody(refusalOf(err, "the state could not be kept"))}
	}
	if err == nil || errors.Is(err, errGivenUp) {
		in.worker.send(wire.KindSaved, in.id, answer)
		return
	}
	in.gone(fmt.Errorf("making a snapshot: %w", err))
}

// refusalOf is a fault as it is, and for anything else one that says what was
// to be done.
func refusalOf(err error, message string) *fault.Error {
	f := fault.Of(err)
	if f.Kind == fault.Internal {
		f = fault.New(fault.Unavailable, "%s: %s", message, firstLine(err))
	}
	return f
}

// keep keeps the state, writes what changed, and looks at what the interpreter
// holds, which can no longer lose anything. An error other than errGivenUp means
// that the instance is lost.
func (in *instance) keep(body wire.SnapshotBody, w io.Writer) (sandbox.Snapshot, error) {
	h := &in.saved
	if in.touched || !h.taken() {
		if err := in.take(); err != nil {
			return sandbox.Snapshot{}, err
		}
	}
	out := sandbox.Snapshot{Whole: body.Whole || body.Portable || h.written == nil}
	type result struct {
		pages int
		err   error
	}
	written := make(chan result, 1)
	if out.Whole || h.written.id != h.newest.id {
		go func() {
			n, err := in.writeLayer(w, out.Whole, body.Portable)
			written <- result{n, err}
		}()
	} else {
		written <- result{}
	}
	lost := in.inspectQuickly(&out)
	r := <-written
	out.Bytes = int64(r.pages) * linear.PageSize
	if r.err != nil {
		h.wrote(false)
		return out, errors.Join(r.err, lost)
	}
	h.wrote(true)
	if body.Mark != "" {
		h.name(body.Mark)
	}
	out.State = in.state()
	return out, lost
}

// take keeps the state as it is now.
func (in *instance) take() error {
	err := in.saved.capture(in.vm.memory, in.program.image, in.system.Save(), in.cpu)
	if err == nil {
		in.touched, in.unkept, in.found = false, false, nil
	}
	return err
}

// writeLayer writes what leads to the newest moment, from the one that was
// written last or from nothing, and gives the number of pages. The pages do not
// change any more, so the interpreter may go on meanwhile.
func (in *instance) writeLayer(w io.Writer, whole, portable bool) (n int, err error) {
	h, img := &in.saved, in.program.image
	base, err := baseOf(img)
	if err != nil {
		return 0, err
	}
	var pages changes
	head := layerHead{To: h.newest.id, Bytes: h.newest.length}
	switch {
	case portable:
		pages = h.everything(base)
	case whole:
		head.Image, pages = img.Digest, h.own(base)
	default:
		head.From, pages = h.written.id, h.changes(base)
	}
	return pages.count, writeLayer(w, head, pages)
}

// everything is every page of the newest moment that is not zeros.
func (h *snapshots) everything(base base) changes {
	var all [][]byte
	var numbers []uint32
	own := h.newest.pages
	for n := uint32(0); uint64(n)*linear.PageSize < h.newest.length; n++ {
		page := base.page(n)
		if len(own) > 0 && own[0].n == n {
			page, own = h.pages.at(own[0].id), own[1:]
		}
		if page != nil && !isZero(page) {
			all, numbers = append(all, page), append(numbers, n)
		}
	}
	return changes{len(all), func(i int) (uint32, []byte, []byte) { return numbers[i], nil, all[i] }}
}

// own is the pages in which the newest moment differs from the image.
func (h *snapshots) own(base base) changes {
	t := h.newest.pages
	return changes{len(t), func(i int) (uint32, []byte, []byte) { return t[i].n, base.page(t[i].n), h.pages.at(t[i].id) }}
}

// changes are the pages in which the newest moment differs from the written one.
func (h *snapshots) changes(base base) changes {
	numbers := differ(h.written.pages, h.newest.pages)
	before, now := h.written.pages.find(numbers), h.newest.pages.find(numbers)
	content := func(n uint32, id pageID) []byte {
		if id != 0 {
			return h.pages.at(id)
		}
		return base.page(n)
	}
	return changes{len(numbers), func(i int) (uint32, []byte, []byte) {
		n := numbers[i]
		is := content(n, now[i])
		if is == nil {
			is = zeros[:]
		}
		return n, content(n, before[i]), is
	}}
}

// inspectQuickly notes what the interpreter holds. One that does not survive it is
// made again from what was just kept; an error means that this failed.
func (in *instance) inspectQuickly(out *sandbox.Snapshot) error {
	if in.found == nil {
		o, err := in.askWithTimeout(map[string]any{"op": "inspect"}, inspectTimeout)
		if err != nil {
			return in.rollBackAfter(err)
		}
		found := o.Inspection()
		in.found = &found
	}
	out.Inspection, out.Known = *in.found, true
	out.Inspection.Memory = int64(len(in.saved.newest.pages)) * linear.PageSize
	return nil
}

// stateVersion changes when a state cannot be read as before.
const stateVersion = 1

// savedState is a Snapshot's State.
type savedState struct {
	Version int           `json:"version"`
	Runtime string        `json:"runtime"`
	Guest   string        `json:"guest"`  // the digest of the guest's build
	Moment  string        `json:"moment"` // that the layers lead to
	Bytes   uint64        `json:"bytes"`  // the memory's length
	CPU     time.Duration `json:"cpu"`
	Files   wasi.State    `json:"files"`
}

// state describes the newest moment. What would make it too long is left out:
// how far a folder was listed, and then the last of the open descriptors, which
// give an error when they are used.
func (in *instance) state() []byte {
	m := in.saved.newest
	s := savedState{
		Version: stateVersion, Runtime: in.program.guest.Name, Guest: in.program.guest.Digest,
		Moment: m.id, Bytes: m.length, CPU: m.cpu, Files: m.files,
	}
	for {
		text, err := json.Marshal(s)
		if err == nil && len(text) <= wire.MaxState {
			return text
		}
		s.Files.Descriptors = fewer(s.Files.Descriptors)
	}
}

// fewer takes something from a list of descriptors.
func fewer(all []wasi.Descriptor) []wasi.Descriptor {
	kept := append([]wasi.Descriptor(nil), all...)
	listed := false
	for i := range kept {
		listed = listed || kept[i].Names != nil
		kept[i].Names = nil
	}
	if listed {
		return kept
	}
	for i := len(kept) - 1; i >= 0; i-- {
		if kept[i].Kind == wasi.KindFile || kept[i].Kind == wasi.KindFolder {
			kept[i] = wasi.Descriptor{FD: kept[i].FD, Kind: wasi.KindDead}
			return kept
		}
	}
	return nil
}

// rewind answers the server's request for an earlier state.
func (in *instance) rewind(body wire.RewindBody) {
	in.use.Lock()
	defer in.use.Unlock()
	if in.closed {
		return
	}
	to := in.saved.find(body.Mark)
	if to == nil {
		in.worker.send(wire.KindRewound, in.id, wire.ErrorBody(notAtHand()))
		return
	}
	err := in.restoreTo(to)
	answer := wire.StatusBody{}
	if err != nil {
		answer = wire.ErrorBody(refusalOf(err, "the earlier state could not be brought back"))
	}
	in.worker.send(wire.KindRewound, in.id, answer)
	if err != nil {
		in.gone(err)
	}
}

// refresh answers the server's word that it has changed files. It may have to wait
// for an interpreter that is being made again.
func (in *instance) refresh() {
	in.use.Lock()
	defer in.use.Unlock()
	if in.closed {
		return
	}
	in.reopen()
	in.worker.send(wire.KindRefreshed, in.id, wire.StatusBody{})
}

// reopen opens what is open again.
func (in *instance) reopen() {
	for _, m := range in.mounts {
		m.Dir.Changed()
	}
	var before wasi.State
	if in.saved.taken() {
		before = in.saved.newest.files
	}
	in.system.Refresh(before)
}

func notAtHand() *fault.Error {
	return fault.New(fault.NotFound, "the interpreter has that state no longer at hand").WithHint("it can be resumed from its snapshots")
}

// restoreTo makes the interpreter what it was at a moment, whose reference it
// takes over.
func (in *instance) restoreTo(to *snapshot) error {
	memory := in.halt()
	if !in.saved.restoreTo(to, memory, in.program.image) {
		memory.Free()
		memory = nil
	}
	in.unkept = false
	in.saved.begin(to)
	return in.reinstantiate(memory)
}

// reinstantiate revives the interpreter at the newest moment, and tells it that it has
// been there before.
func (in *instance) reinstantiate(memory *linear.Memory) error {
	if err := in.instantiate(memory); err != nil {
		return err
	}
	in.found = nil
	return in.reseed()
}

// reseed gives an interpreter seeds of its own, and has it give up what waited
// in the background; nothing of the program runs for that. An interpreter that
// does not take the seeds cannot be a copy.
func (in *instance) reseed() error {
	in.touched = true
	o, err := in.askWithTimeout(map[string]any{"op": "awaken", "seed": newSeed()}, reseedTimeout)
	if err == nil && o.Status != "ok" {
		err = fmt.Errorf("it answers %q", o.Status)
	}
	switch {
	case errors.Is(err, errKilled):
		return fault.New(fault.Unavailable, "the interpreter took too long to begin with seeds of its own").
			WithHint("the machine may be overloaded: try again").WithCause(err)
	case err != nil:
		return unsupported("the interpreter does not take seeds of its own").WithCause(err)
	}
	return nil
}

func newSeed() string {
	seed := make([]byte, 32)
	rand.Read(seed) // never fails
	return hex.EncodeToString(seed)
}
