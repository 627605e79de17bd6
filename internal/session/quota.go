package session

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/workspace"
)

// retrySoon is when to try again what others' sessions stand in the way of.
const retrySoon = 5 * time.Second

// memory is what the live interpreters take: what each had at the end of its
// last run, and while one runs, or starts, all that it may take. Nothing else
// is locked while mu is held.
type memory struct {
	mu     sync.Mutex // guards what follows
	total  int64
	owners map[Owner]int64
	held   map[holder]int64
}

type holder struct {
	key
	runtime string
}

// set notes what an interpreter takes; zero: it is gone.
func (m *memory) set(h holder, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(h, bytes)
}

func (m *memory) setLocked(h holder, bytes int64) {
	if m.held == nil {
		m.held, m.owners = map[holder]int64{}, map[Owner]int64{}
	}
	growth := bytes - m.held[h]
	m.total += growth
	if m.owners[h.owner] += growth; m.owners[h.owner] == 0 {
		delete(m.owners, h.owner)
	}
	if m.held[h] = bytes; bytes == 0 {
		delete(m.held, h)
	}
}

// grow lets an interpreter take so much, unless its owner or all together
// would have more than is theirs; alone tells whether it was the owner.
func (m *memory) grow(h holder, bytes, most, mostOfAll int64) (alone, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	growth := bytes - m.held[h]
	switch {
	case growth <= 0:
	case m.owners[h.owner]+growth > most:
		return true, false
	case m.total+growth > mostOfAll:
		return false, false
	}
	m.setLocked(h, max(bytes, m.held[h]))
	return false, true
}

// of gives what each session of an owner takes.
func (m *memory) of(o Owner) map[ID]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := map[ID]int64{}
	for h, bytes := range m.held {
		if h.owner == o {
			sums[h.id] += bytes
		}
	}
	return sums
}

// admit waits until the owner may run one more program.
func (m *Manager) admit(ctx context.Context, o Owner) (release func(), err error) {
	if m.config.Admit == nil {
		return func() {}, nil
	}
	return m.config.Admit(ctx, o)
}

// reserveMemory makes sure that there is memory for an interpreter to run with:
// sessions that nobody uses just now are put to sleep for it.
func (s *session) reserveMemory(runtime string, bytes int64) error {
	m, h := s.manager, s.holder(runtime)
	grow := func() (alone, ok bool) {
		return m.memory.grow(h, bytes, m.config.OwnerMemoryBytes, m.config.TotalMemoryBytes)
	}
	alone, ok := grow()
	if !ok {
		m.forgetEnded()
		alone, ok = grow()
	}
	for !ok {
		who := Owner("")
		if alone {
			who = s.owner
		}
		if !(who == "" && m.pool.giveUp()) && !m.makeRoom(who, s) {
			break
		}
		alone, ok = grow()
	}
	if ok {
		return nil
	}
	mine := largest(m.memory.of(s.owner), s.id)
	f, limit := fault.New(fault.Exhausted, "the programs that run take as much memory as the server has for them"), "limits.max_memory_mb"
	if alone {
		limit = "limits.max_memory_per_client_mb"
		f = fault.New(fault.Exhausted, "your programs that run would take more than the %d MiB that they may", m.config.OwnerMemoryBytes>>20)
	}
	if mine != "" {
		f = f.WithHint("wait for what runs in other sessions, or cancel it: %s; who runs the server can raise %s", mine, limit)
	} else {
		f = f.WithHint("try again later; who runs the server can raise %s", limit)
	}
	f.RetryAfter = retrySoon
	return f
}

// forgetEnded stops counting interpreters that ended by themselves.
func (m *Manager) forgetEnded() {
	for _, s := range m.open("") {
		s.mu.Lock()
		lives := s.liveLocked()
		for runtime, in := range s.interpreters {
			select {
			case <-in.Done():
				if !lives || !hasMachines(s.backend) { // a machine is there for the others
					m.memory.set(s.holder(runtime), 0)
				}
			default:
			}
		}
		s.mu.Unlock()
	}
}

// open gives the sessions of an owner, or of all when it is "", that this
// process has open.
func (m *Manager) open(o Owner) []*session {
	m.mu.Lock()
	var all []*session
	for k, s := range m.sessions {
		if o == "" || k.owner == o {
			all = append(all, s)
		}
	}
	m.mu.Unlock()
	return slices.DeleteFunc(all, func(s *session) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.phase != free && s.phase != working
	})
}

// checkDisk refuses what would make what an owner has on disk grow beyond what
// it may take: the files of all sessions, asleep or not, and what is kept of
// them. What programs write counts from the end of their run on.
func (m *Manager) checkDisk(o Owner, growth int64) error {
	most := m.config.OwnerDiskBytes
	u, err := m.usage(o)
	if err != nil || u.files+u.blobs+growth <= most {
		return err
	}
	for _, s := range m.open(o) { // what is known may be old: look again
		_, _ = s.tree.DiskBytes() // one that is ending takes what it took
	}
	u, sizes, err := m.usageNow(o)
	if err != nil || u.files+u.blobs+growth <= most {
		return err
	}
	return fault.New(fault.Exhausted, "your sessions would take more than the %d MiB of disk that they may: they have %d MiB of files and %d MiB of checkpoints", most>>20, u.files>>20, u.blobs>>20).
		WithHint("delete files, or destroy sessions that are no longer needed: %s; who runs the server can raise limits.max_disk_per_client_mb", largest(sizes, ""))
}

// shed makes room on an owner's disk, where there is too little: the oldest
// checkpoints of open sessions go, and what nothing refers to. It tells whether
// there is enough then.
func (m *Manager) shed(ctx context.Context, o Owner) error {
	err := m.checkDisk(o, 1)
	if fault.KindOf(err) != fault.Exhausted || !m.mayShed(o) {
		return err
	}
	for _, keep := range []int{m.config.Checkpoints, fewCheckpoints} {
		for _, s := range m.open(o) {
			s.pruneTo(keep)
		}
		if keep == fewCheckpoints {
			m.pruneAsleep(o, keep)
		}
		if _, _, err := m.collectOwner(ctx, filepath.Base(m.ownerFolder(o))); err != nil {
			m.log.InfoContext(ctx, "what is no longer needed was not collected", "cause", causeOf(err))
		}
		m.forgetUsage(o)
		if err = m.checkDisk(o, 1); fault.KindOf(err) != fault.Exhausted {
			return err
		}
	}
	return err
}

// shedEvery is how often it is tried to make room on an owner's disk.
const shedEvery = 10 * time.Second

func (m *Manager) mayShed(o Owner) bool {
	m.storing.Lock()
	defer m.storing.Unlock()
	if last, ok := m.sheds[o]; ok && time.Since(last) < shedEvery {
		return false
	}
	m.sheds[o] = time.Now()
	return true
}

// pruneAsleep gives up old checkpoints of the sessions that no process has open.
func (m *Manager) pruneAsleep(o Owner, most int) {
	ids, err := m.idsOnDisk(o)
	if err != nil {
		return // the next call tries again
	}
	for _, id := range ids {
		if k := (key{o, id}); !held(m.folder(k)) {
			m.pruneOnDisk(k, most)
		}
	}
}

// pruneOnDisk prunes one, if nobody opens it meanwhile.
func (m *Manager) pruneOnDisk(k key, most int) {
	if _, err := m.readRecord(k); err != nil {
		return
	}
	s := newSession(m, k)
	if s.acquire() != nil {
		return
	}
	defer s.unlock()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if s.openKept() != nil {
		return
	}
	if s.kept.Look() == nil && s.kept.Head().Number > 0 {
		s.kept.Prune(most)
	}
}

// fewCheckpoints is how many are left where disk is short.
const fewCheckpoints = 5

// largest names the few sessions that take most, all but one.
func largest(sizes map[ID]int64, but ID) string {
	delete(sizes, but)
	ids := make([]ID, 0, len(sizes))
	for id := range sizes {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b ID) int { return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b)) })
	const few = 5
	var names []string
	for _, id := range ids[:min(few, len(ids))] {
		names = append(names, fmt.Sprintf("%s (%d MiB)", id, (sizes[id]+1<<20-1)>>20))
	}
	return strings.Join(names, ", ")
}

// treeOptions bound a session's files.
func (s *session) treeOptions(disk int64) workspace.Options {
	uid, gid := fileOwner(s.backend)
	return workspace.Options{DiskBytes: disk, UID: uid, GID: gid, Grow: func(bytes int64) error { return s.manager.checkDisk(s.owner, bytes) }}
}
