package worker

import (
	"errors"
	"sync"
)

// quantum is after how many loop rounds and calls a guest gives the host a
// word. CPython does 80 to 200 million a second on wazero, so that is 0.1 to
// 0.3 ms: the collector and an interrupt wait no longer than that.
const quantum = 25_000

// errKilled unwinds a guest that has to be stopped by force.
var errKilled = errors.New("stopped by force")

// interruptFlag sets a guest's words once. Whoever comes second finds them set. While
// it is locked the guest is told in another way.
type interruptFlag struct {
	sync.Mutex
	done bool // guarded
}

// once tells whether it was this call that did it.
func (n *interruptFlag) once(set func()) bool {
	n.Lock()
	defer n.Unlock()
	if n.done {
		return false
	}
	n.done = true
	set()
	return true
}

// meter counts a run's fuel. It belongs to the goroutine that runs the guest.
type meter struct {
	limit uint64 // 0: none
	used  uint64 // before the present portion
	given uint64 // the present portion
}

// portion is how much the guest may do until it ticks again.
func (m *meter) portion() int32 {
	m.given = quantum
	if m.limit > 0 && m.used < m.limit {
		m.given = min(m.given, m.limit-m.used)
	}
	return int32(m.given) - 1
}

// spend counts the present portion, left of which is what the counter says.
func (m *meter) spend(left int32) {
	m.used += uint64(int64(m.given) - 1 - int64(left))
	m.given = 0
}

func (m *meter) empty() bool { return m.limit > 0 && m.used >= m.limit }
