package image

import (
	"sync"
	"sync/atomic"
)

// Progress is how far a pull or an import has come.
type Progress struct {
	// Done and Total are bytes as they come, compressed or not; what is there
	// already counts as done. Total is 0 where it is not known.
	Done, Total int64
	// Layers is how many the image has, and LayersDone how many are unpacked.
	Layers, LayersDone int
}

// meter tells how far it is, to one function that is called by one goroutine at
// a time.
type meter struct {
	done   atomic.Int64
	mu     sync.Mutex
	tell   func(Progress)
	state  Progress
	closed bool
}

func newMeter(tell func(Progress)) *meter {
	return &meter{tell: tell, closed: tell == nil}
}

// begin says what there is to do.
func (m *meter) begin(layers []layer) {
	m.update(func(p *Progress) {
		p.Layers = len(layers)
		for _, l := range layers {
			p.Total += l.size
			if l.size <= 0 {
				p.Total = 0
				break
			}
		}
	})
}

func (m *meter) add(n int64) {
	m.done.Add(n)
	m.update(func(*Progress) {})
}

// skip counts what is there already.
func (m *meter) skip(n int64) { m.add(n) }

// back takes away what a try that failed had counted.
func (m *meter) back(n int64) { m.done.Add(-n) }

func (m *meter) layerDone() { m.update(func(p *Progress) { p.LayersDone++ }) }

func (m *meter) update(change func(*Progress)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	change(&m.state)
	m.state.Done = m.done.Load()
	m.tell(m.state)
}
