package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/quota"
)

// retrySoon is when to try again what others' sessions stand in the way of.
const retrySoon = 5 * time.Second

// reserveMemory makes sure that there is memory for an interpreter to run with:
// sessions that nobody uses just now are put to sleep for it.
func (i *interpreters) reserveMemory(runtime string, bytes int64) error {
	s := i.s
	m, h := s.manager, s.residence.holder(runtime)
	grow := func() (alone, ok bool) {
		return m.memory.Grow(h, bytes, m.config.OwnerMemoryBytes, m.config.TotalMemoryBytes)
	}
	alone, ok := grow()
	if !ok {
		forgetEnded(&m.memory, m.sessions.open(""))
		alone, ok = grow()
	}
	for !ok {
		who := Owner("")
		if alone {
			who = s.owner
		}
		if !(who == "" && m.pool.GiveUp()) && !m.makeRoom(who, s) {
			break
		}
		alone, ok = grow()
	}
	if ok {
		return nil
	}
	mine := largest(m.memory.Of(string(s.owner)), string(s.id))
	f, limit := fault.New(fault.Exhausted, "the programs that run take as much memory as the server has for them"), "limits.max_memory_mb"
	if alone {
		limit = "limits.max_memory_per_client_mb"
		f = fault.New(fault.Exhausted, "your programs that run would take more than the %d MiB that they may", m.config.OwnerMemoryBytes>>20)
	}
	if mine != "" {
		f = f.WithHint("wait for what runs in other sessions, or cancel it: %s; the operator can raise %s", mine, limit)
	} else {
		f = f.WithHint("try again later; the operator can raise %s", limit)
	}
	f.RetryAfter = retrySoon
	return f
}

// forgetEnded stops counting the memory of interpreters that ended by themselves.
func forgetEnded(memory *quota.Memory, open []*session) {
	for _, s := range open {
		s.interpreters.eachEnded(func(runtime string, othersLive bool) {
			if !s.residence.outlives(othersLive) {
				memory.Set(s.residence.holder(runtime), 0)
			}
		})
	}
}

// largest names the few sessions that take most, all but one.
func largest(sizes map[string]int64, but string) string {
	delete(sizes, but)
	ids := make([]string, 0, len(sizes))
	for id := range sizes {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b)) })
	const few = 5
	var names []string
	for _, id := range ids[:min(few, len(ids))] {
		names = append(names, fmt.Sprintf("%s (%d MiB)", id, (sizes[id]+1<<20-1)>>20))
	}
	return strings.Join(names, ", ")
}
