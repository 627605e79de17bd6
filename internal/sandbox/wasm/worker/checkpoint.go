package worker

import (
	"bytes"
	"container/list"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"runtime"
	"sync"
	"time"

	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
)

// moment is an interpreter's state between two runs: the pages in which its
// memory differs from the image, and its open descriptors. It is not changed
// once it is made, so that several instances may have it.
type moment struct {
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
	to    *moment
	owner *history
	place *list.Element // in pages.marks
}

// history is what is kept of one instance. It belongs to the holder of the
// instance's use, but for the marks, which are guarded by pages.mu.
type history struct {
	pages  *pages
	newest *moment // where a stop by force leads back to; nil: nowhere yet
	// written is what the layers that were written lead to; nil: the next one
	// has to be whole.
	written *moment
	marks   []*mark
	changed []uint32 // scratch
	// last are the pages that the last run changed, where these were many; hot are
	// those of them that the run before it changed as well: these are not marked, as
	// the next one is expected to change them again.
	last, hot []uint32
}

// taken tells whether there is anything to go back to.
func (h *history) taken() bool { return h.newest != nil }

// take keeps the state of memory as the newest moment. Only the pages that
// changed since the last time are looked at.
func (h *history) take(memory *linear.Memory, img *linear.Image, files wasi.State, cpu time.Duration) error {
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
	var before moment
	if h.newest != nil {
		before = *h.newest
	}
	kept := h.copies(before.pages, changed, memory, base)
	now := &moment{id: before.id, length: uint64(len(memory.Bytes())), files: files, cpu: cpu}
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
		now.id = momentID()
	}
	h.settle(now, before.pages)
	h.heat(memory, kept)
	return nil
}

// heat finds out what is hot once h.changed are the pages that may have changed and
// kept tells which of them have, and marks the others.
func (h *history) heat(memory *linear.Memory, kept []pageID) {
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

// both gives what is in each of two ascending lists.
func both(a, b []uint32) (common []uint32) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case b[0] < a[0]:
			b = b[1:]
		default:
			common, a, b = append(common, a[0]), a[1:], b[1:]
		}
	}
	return common
}

// copies compares the pages of memory that may have changed with what they were,
// and keeps those that have; 0 stands for the others.
func (h *history) copies(before table, changed []uint32, memory *linear.Memory, base base) []pageID {
	kept := before.find(changed)
	spread(len(changed), func(from, to int) {
		for ; from < to; from += batch {
			end := min(from+batch, to)
			h.copy(changed[from:end], kept[from:end], memory, base)
		}
	})
	return kept
}

// batch is how many pages are taken at once, so that they lie together: 8 MiB.
const batch = 2048

// copy is copies for some pages. kept has what they were, and then what they are.
func (h *history) copy(numbers []uint32, kept []pageID, memory *linear.Memory, base base) {
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

// settle makes now the newest moment. Its pages that are not in before have
// their reference already.
func (h *history) settle(now *moment, before table) {
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

func momentID() string {
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
func (h *history) moveLocked(m *moment) {
	old := h.newest
	h.newest = m
	if m != nil {
		m.users++
		h.pages.newest += len(m.pages)
	}
	if old != nil {
		h.pages.newest -= len(old.pages)
		h.pages.leaveLocked(old)
	}
}

// leaveLocked gives a moment up for one of its users.
func (p *pages) leaveLocked(m *moment) {
	if m.users--; m.users > 0 {
		return
	}
	for _, e := range m.pages {
		p.dropLocked(e.id)
	}
}

// wrote notes that the layers lead to the newest moment; with ok false that
// they lead nowhere.
func (h *history) wrote(ok bool) {
	h.pages.mu.Lock()
	defer h.pages.mu.Unlock()
	old := h.written
	h.written = nil
	if ok {
		h.written = h.newest
		h.written.users++
	}
	if old != nil {
		h.pages.leaveLocked(old)
	}
}

// name gives the newest moment a name to go back to it by. What is too much
// for the worker's memory is forgotten, the oldest first.
func (h *history) name(name string) {
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
	p.leaveLocked(m.to)
}

// find gives the moment called name, with a reference that the caller has to
// give up; nil: there is none. It may be called by anybody.
func (h *history) find(name string) *moment {
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

// leave gives up the reference that find gave.
func (h *history) leave(m *moment) {
	h.pages.mu.Lock()
	defer h.pages.mu.Unlock()
	h.pages.leaveLocked(m)
}

// begin makes a moment that find or a reading of layers gave the newest, and
// what layers lead to; it takes over the reference.
func (h *history) begin(m *moment) {
	h.pages.mu.Lock()
	h.moveLocked(m)
	h.pages.leaveLocked(m)
	h.pages.mu.Unlock()
	h.wrote(true)
}

// drop forgets everything.
func (h *history) drop() {
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

var errSize = errors.New("the saved memory is over the limit")

// restore puts the newest moment into memory, which is a fresh mapping of the
// image.
func (h *history) restore(memory *linear.Memory) error {
	if memory.Reallocate(h.newest.length) == nil {
		return errSize
	}
	numbers, ids := h.newest.pages.split()
	for rest := numbers; len(rest) > 0; {
		n := together(rest)
		memory.Fill(rest[0], uint32(n))
		rest = rest[n:]
	}
	spread(len(numbers), func(from, to int) {
		h.pages.runs(numbers[from:to], ids[from:to], func(n uint32, content []byte) {
			count := len(content) / linear.PageSize
			if count >= worthExpecting {
				memory.Expect(n, uint32(count))
			}
			copy(memory.Pages(n, count), content)
		})
	})
	memory.Mark()
	return nil
}

// worthExpecting is from how many pages in a row on a memory is told of them.
const worthExpecting = 16

// together is how many of the first pages follow one another.
func together(numbers []uint32) int {
	n := 1
	for n < len(numbers) && numbers[n] == numbers[0]+uint32(n) {
		n++
	}
	return n
}

// split gives the numbers and the pages of a table by themselves.
func (t table) split() (numbers []uint32, ids []pageID) {
	numbers, ids = make([]uint32, len(t)), make([]pageID, len(t))
	for i, e := range t {
		numbers[i], ids[i] = e.n, e.id
	}
	return numbers, ids
}

// back puts a moment into memory, whose content is what it was at the newest
// one but for what changed since. It tells whether it could: a memory does not
// become smaller.
func (h *history) back(to *moment, memory *linear.Memory, img *linear.Image) bool {
	if uint64(len(memory.Bytes())) != to.length {
		return false
	}
	base, err := baseOf(img)
	if err != nil {
		return false
	}
	h.changed, err = memory.Changed(h.changed[:0])
	if err != nil {
		return false
	}
	numbers := merged(h.changed, differ(h.newest.pages, to.pages))
	found := to.pages.find(numbers)
	// What is written over whole is written again soon, as a rule.
	large := len(numbers) >= spreadFrom
	if large && len(numbers)-len(both(numbers, h.hot)) >= spreadFrom {
		memory.Unmark()
	}
	spread(len(numbers), func(from, to int) {
		h.pages.runs(numbers[from:to], found[from:to], func(n uint32, content []byte) { overwrite(memory, n, content, base) })
	})
	if !large {
		memory.MarkBut(h.hot)
	}
	return true
}

// longRun is from how many bytes on a run of pages is not compared before it is
// written: copying so much at once goes past the cache.
const longRun = 1 << 20

// overwrite makes the pages from number n on what content is; nil: one page what
// base has.
func overwrite(memory *linear.Memory, n uint32, content []byte, base base) {
	switch {
	case len(content) >= longRun:
		copy(memory.Pages(n, len(content)/linear.PageSize), content)
		return
	case content == nil:
		if content = base.page(n); content == nil {
			content = zeros[:]
		}
	}
	for ; len(content) > 0; n, content = n+1, content[linear.PageSize:] {
		if page := memory.Page(n); !bytes.Equal(page, content[:linear.PageSize]) {
			copy(page, content)
		}
	}
}

// differ gives the numbers of the pages in which two moments may differ.
func differ(a, b table) (numbers []uint32) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].n < b[0].n:
			numbers, a = append(numbers, a[0].n), a[1:]
		case len(a) == 0 || b[0].n < a[0].n:
			numbers, b = append(numbers, b[0].n), b[1:]
		default:
			if a[0].id != b[0].id {
				numbers = append(numbers, a[0].n)
			}
			a, b = a[1:], b[1:]
		}
	}
	return numbers
}

// merged gives what is in one of two ascending lists.
func merged(a, b []uint32) []uint32 {
	all := make([]uint32, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			all, a = append(all, a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, a[0]), a[1:], b[1:]
		}
	}
	return all
}
