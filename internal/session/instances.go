package session

import (
	"maps"
	"slices"
	"sync"

	"paddock/internal/sandbox"
)

// instances are the interpreters that a session has, by runtime. One that ended by itself
// is among them until it is removed. Only the first in the queue, the opening and the end
// change them; any goroutine may look.
type instances struct {
	mu  sync.Mutex // guards what follows; taken last
	all map[string]sandbox.Instance
}

// get gives a runtime's; nil: there is none.
func (i *instances) get(runtime string) sandbox.Instance {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all[runtime]
}

func (i *instances) put(runtime string, in sandbox.Instance) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.all = map[string]sandbox.Instance{}
	}
	i.all[runtime] = in
}

func (i *instances) remove(runtime string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, runtime)
}

// list gives a copy of all.
func (i *instances) list() map[string]sandbox.Instance {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		return map[string]sandbox.Instance{}
	}
	return maps.Clone(i.all)
}

// count is how many there are.
func (i *instances) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.all)
}

// anyLives reports whether any has not ended.
func (i *instances) anyLives() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.anyLivesLocked()
}

func (i *instances) anyLivesLocked() bool {
	for _, in := range i.all {
		if !hasEnded(in) {
			return true
		}
	}
	return false
}

// eachEnded calls visit for those that have ended, which cannot be replaced meanwhile.
func (i *instances) eachEnded(visit func(runtime string, othersLive bool)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	lives := i.anyLivesLocked()
	for runtime, in := range i.all {
		if hasEnded(in) {
			visit(runtime, lives)
		}
	}
}

// unsavable are the runtimes of those that hold what no checkpoint after a run does.
func (i *instances) unsavable() (runtimes []string) {
	for runtime, in := range i.list() {
		if !keeps(in) && runtime != sandbox.CommandRuntime {
			runtimes = append(runtimes, runtime)
		}
	}
	slices.Sort(runtimes)
	return runtimes
}

// hasEnded reports whether an interpreter does not live any more.
func hasEnded(in sandbox.Instance) bool {
	select {
	case <-in.Done():
		return true
	default:
		return false
	}
}

// keeps reports whether an interpreter's state can be kept.
func keeps(in sandbox.Instance) bool {
	_, ok := in.(sandbox.Snapshotter)
	return ok
}
