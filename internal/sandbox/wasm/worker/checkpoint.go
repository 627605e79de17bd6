package worker

import (
	"bytes"
	"container/list"
	"crypto/rand"
	"encoding/hex"
	"runtime"
	"sync"
	"time"

	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
)

// snapshot is an interpreter's state between two runs: the pages in which its
// memory differs from the image, and its open descriptors. It is not changed
// once it is made, so that several instances may have it.
type snapshot struct {
	id     string // random; layers name the moments that they lead from and to
	pages  table
	length uint64
	files  wasi.State
	cpu    time.Duration
	users  int // guarded by pages.mu
}

// mark is a moment that can be gone back to by name.
type mark struct {
	name  string
	to    *snapshot
	owner *snapshots
	place *list.Element // in pages.marks
}

// snapshots is what is kept of one instance. It belongs to the holder of the
// instance's use, but for the marks, which are guarded by pages.mu.
type snapshots struct {
	pages  *pages
	newest *snapshot // where a stop by force leads back to; nil: nowhere yet
	// written is what the layers that were written lead to; nil: the next one
	// has to be whole.
	written *snapshot
	marks   []*mark
	changed []uint32 // scratch
	// last are the pages that the last run changed, where these were many; hot are
	// those of them that the run before it changed as well: these are not marked, as
	// the next one is expected to change them again.
	last, hot []uint32
}

// taken tells whether there is anything to go back to.
func (h *snapshots) taken() bool { return h.newest != nil }

// capture keeps the state of memory as the newest moment. Only the pages that
// changed since the last time are looked at.
func (h *snapshots) capture(memory *linear.Memory, img *linear.Image, files wasi.State, cpu time.Duration) error {
	base, err := baseOf(img)
	if err != nil {
		return err
	}
	renew := memory.Renew
	if h.last != nil {
		renew = memory.Changed // what is hot is known later
	}
	changed, err := renew(h.changed[:0])
	if err != nil {
		return err
	}
	h.changed = changed
	var before snapshot
	if h.newest != nil {
		before = *h.newest
	}
	kept := h.copies(before.pages, changed, memory, base)
	now := &snapshot{id: before.id, length: uint64(len(memory.Bytes())), files: files, cpu: cpu}
	now.pages = make(table, 0, len(before.pages)+len(changed)/4)
	rest, anew := before.pages, false
	for i, n := range changed {
		for len(rest) > 0 && rest[0].n < n {
			now.pages, rest = append(now.pages, rest[0]), rest[1:]
		}
		had := len(rest) > 0 && rest[0].n == n
		if kept[i] != 0 {
			now.pages, anew = append(now.pages, entry{n, kept[i]}), true
		} else if had {
			now.pages = append(now.pages, rest[0])
		}
		if had {
			rest = rest[1:]
		}
	}
	now.pages = append(now.pages, rest...)
	if anew || now.id == "" {
		now.id = newSnapshotID()
	}
	h.commit(now, before.pages)
	h.trackHotPages(memory, kept)
	return nil
}

// trackHotPages finds out what is hot once h.changed are the pages that may have changed and
// kept tells which of them have, and marks the others.
func (h *snapshots) trackHotPages(memory *linear.Memory, kept []pageID) {
	var now []uint32
	for i, n := range h.changed {
		if kept[i] != 0 {
			now = append(now, n)
		}
	}
	before := h.last
	h.last, h.hot = nil, nil
	if len(now) >= spreadFrom {
		h.last = now
	}
	if before == nil {
		return // all are marked already
	}
	for run := both(now, before); len(run) > 0; {
		n := together(run)
		if n >= longRun/linear.PageSize {
			h.hot = append(h.hot, run[:n]...)
		}
		run = run[n:]
	}
	memory.MarkBut(h.hot)
}

// copies compares the pages of memory that may have changed with what they were,
// and keeps those that have; 0 stands for the others.
func (h *snapshots) copies(before table, changed []uint32, memory *linear.Memory, base base) []pageID {
	kept := before.find(changed)
	spread(len(changed), func(from, to int) {
		for ; from < to; from += batch {
			end := min(from+batch, to)
			h.copyPages(changed[from:end], kept[from:end], memory, base)
		}
	})
	return kept
}

// batch is how many pages are taken at once, so that they lie together: 8 MiB.
const batch = 2048

// copyPages is copies for some pages. kept has what they were, and then what they are.
func (h *snapshots) copyPages(numbers []uint32, kept []pageID, memory *linear.Memory, base base) {
	var where []int
	var differ []uint32
	for i, n := range numbers {
		old := base.page(n)
		if id := kept[i]; id != 0 {
			old = h.pages.at(id)
		}
		if kept[i] = 0; !same(old, memory.Page(n)) {
			where, differ = append(where, i), append(differ, n)
		}
	}
	fresh := h.pages.take(len(differ))
	h.pages.runs(differ, fresh, func(n uint32, room []byte) { copy(room, memory.Pages(n, len(room)/linear.PageSize)) })
	for k, i := range where {
		kept[i] = fresh[k]
	}
}

// find gives for each of some ascending numbers the page of the table; 0: it has
// none.
func (t table) find(numbers []uint32) []pageID {
	found := make([]pageID, len(numbers))
	for i, n := range numbers {
		for len(t) > 0 && t[0].n < n {
			t = t[1:]
		}
		if len(t) > 0 && t[0].n == n {
			found[i] = t[0].id
		}
	}
	return found
}

const (
	// spreadFrom is from how many pages on they are looked at by several at once:
	// one takes a quarter of a millisecond for so many.
	spreadFrom = 1024
	mostSpread = 4
)

// helpers is how many others help with n pages.
func helpers(n int) int { return min(n/spreadFrom, mostSpread-1, runtime.GOMAXPROCS(0)-1) }

// spread does something with n pages, and waits until it is done.
func spread(n int, do func(from, to int)) {
	parts := 1 + helpers(n)
	var all sync.WaitGroup
	for i := 1; i < parts; i++ {
		all.Go(func() { do(n*i/parts, n*(i+1)/parts) })
	}
	do(0, n/parts)
	all.Wait()
}

// commit makes now the newest moment. Its pages that are not in before have
// their reference already.
func (h *snapshots) commit(now *snapshot, before table) {
	h.pages.mu.Lock()
	defer h.pages.mu.Unlock()
	for _, e := range now.pages {
		for len(before) > 0 && before[0].n < e.n {
			before = before[1:]
		}
		if len(before) > 0 && before[0] == e {
			h.pages.keepLocked(e.id)
		}
	}
	h.moveLocked(now)
}

func newSnapshotID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// base is an image's memory, read-only.
type base []byte

func baseOf(img *linear.Image) (base, error) {
	if img == nil || img.Bytes == 0 {
		return nil, nil
	}
	return img.Base()
}

// page is nil where the image has only zeros because it ends before.
func (b base) page(n uint32) []byte {
	at := uint64(n) * linear.PageSize
	if at >= uint64(len(b)) {
		return nil
	}
	return b[at : at+linear.PageSize]
}

var zeros [linear.PageSize]byte

// same compares a page with what it was; nil: zeros.
func same(old, page []byte) bool {
	if old == nil {
		old = zeros[:]
	}
	return bytes.Equal(old, page)
}

// moveLocked makes m, nil for none, the newest moment.
func (h *snapshots) moveLocked(m *snapshot) {
	old := h.newest
	h.newest = m
	if m != nil {
		m.users++
		h.pages.newest += len(m.pages)
	}
	if old != nil {
		h.pages.newest -= len(old.pages)
		h.pages.releaseLocked(old)
	}
}

// releaseLocked gives a moment up for one of its users.
func (p *pages) releaseLocked(m *snapshot) {
	if m.users--; m.users > 0 {
		return
	}
	for _, e := range m.pages {
		p.dropLocked(e.id)
	}
}

// wrote notes that the layers lead to the newest moment; with ok false that
// they lead nowhere.
func (h *snapshots) wrote(ok bool) {
	h.pages.mu.Lock()
	defer h.pages.mu.Unlock()
	old := h.written
	h.written = nil
	if ok {
		h.written = h.newest
		h.written.users++
	}
	if old != nil {
		h.pages.releaseLocked(old)
	}
}

// name gives the newest moment a name to go back to it by. What is too much
// for the worker's memory is forgotten, the oldest first.
func (h *snapshots) name(name string) {
	p := h.pages
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range h.marks {
		if m.name == name {
			p.forgetLocked(m)
			break
		}
	}
	m := &mark{name: name, to: h.newest, owner: h}
	m.to.users++
	m.place = p.marks.PushBack(m)
	h.marks = append(h.marks, m)
	if len(h.marks) > mostMarks {
		p.forgetLocked(h.marks[0])
	}
	for p.used-p.newest > p.most && p.marks.Len() > 1 {
		p.forgetLocked(p.marks.Front().Value.(*mark))
	}
}

func (p *pages) forgetLocked(m *mark) {
	for i, other := range m.owner.marks {
		if other == m {
			m.owner.marks = append(m.owner.marks[:i:i], m.owner.marks[i+1:]...)
			break
		}
	}
	p.marks.Remove(m.place)
	p.releaseLocked(m.to)
}

// find gives the moment called name, with a reference that the caller has to
// give up; nil: there is none. It may be called by anybody.
func (h *snapshots) find(name string) *snapshot {
	h.pages.mu.Lock()
	defer h.pages.mu.Unlock()
	for _, m := range h.marks {
		if m.name == name {
			m.to.users++
			return m.to
		}
	}
	return nil
}

// release gives up the reference that find gave.
func (h *snapshots) release(m *snapshot) {
	h.pages.mu.Lock()
	defer h.pages.mu.Unlock()
	h.pages.releaseLocked(m)
}

// begin makes a moment that find or a reading of layers gave the newest, and
// what layers lead to; it takes over the reference.
func (h *snapshots) begin(m *snapshot) {
	h.pages.mu.Lock()
	h.moveLocked(m)
	h.pages.releaseLocked(m)
	h.pages.mu.Unlock()
	h.wrote(true)
}

// drop forgets everything.
func (h *snapshots) drop() {
	if h.pages == nil {
		return // it never had any
	}
	h.wrote(false)
	h.pages.mu.Lock()
	defer h.pages.mu.Unlock()
	h.moveLocked(nil)
	for len(h.marks) > 0 {
		h.pages.forgetLocked(h.marks[0])
	}
}
