package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/quota"
	"paddock/internal/workspace"
)

// retrySoon is when to try again what others' sessions stand in the way of.
const retrySoon = 5 * time.Second

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
	m, h := s.manager, s.residence.holder(runtime)
	grow := func() (alone, ok bool) {
		return m.memory.Grow(h, bytes, m.config.OwnerMemoryBytes, m.config.TotalMemoryBytes)
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

// forgetEnded stops counting interpreters that ended by themselves.
func (m *Manager) forgetEnded() {
	for _, s := range m.sessions.open("") {
		s.instances.eachEnded(func(runtime string, othersLive bool) {
			if !s.residence.outlives(othersLive) {
				m.memory.Set(s.residence.holder(runtime), 0)
			}
		})
	}
}

// diskUse is what an owner has on disk, asleep or not.
type diskUse struct {
	quota.Taken
	kept int64 // bytes of what is kept of the sessions
}

// diskUse tells what an owner takes.
func (m *Manager) diskUse(o Owner) (diskUse, error) {
	t, err := m.disk.Of(string(o), m.openBytes(o))
	if err != nil {
		return diskUse{}, unusable(err)
	}
	return m.addStored(o, t)
}

// measureDisk is taken with a look at each session, which takes long where there are
// many. It gives what each of them takes, too.
func (m *Manager) measureDisk(o Owner) (diskUse, map[string]int64, error) {
	t, each, err := m.disk.Now(string(o), m.openBytes(o))
	if err != nil {
		return diskUse{}, nil, unusable(err)
	}
	with, err := m.addStored(o, t)
	return with, each, err
}

func (m *Manager) addStored(o Owner, t quota.Taken) (diskUse, error) {
	blobs, err := m.local.Blobs(string(o))
	if err != nil {
		return diskUse{}, err
	}
	kept, err := blobs.Bytes()
	if err != nil {
		return diskUse{}, fmt.Errorf("measuring what is kept: %w", err)
	}
	return diskUse{t, kept}, nil
}

// openBytes is what the sessions take now that are open here.
func (m *Manager) openBytes(o Owner) map[string]int64 {
	open := map[string]int64{}
	for _, s := range m.sessions.open(o) {
		open[string(s.id)] = s.tree.Used() + s.tmp.Used()
	}
	return open
}

// noteDiskUse notes what a session takes that is new or is let go of.
func (m *Manager) noteDiskUse(s *session) {
	bytes := s.tree.Used() + s.tmp.Used()
	s.mu.Lock()
	s.record.TreeBytes = bytes
	s.mu.Unlock()
	if m.sessions.holds(s) && s.isEphemeral() { // else its checkpoints tell the index
		m.store.Index(s.rowNow())
	}
	m.disk.Note(string(s.owner), string(s.id), bytes, s.turns.isEnding())
}

// checkDisk refuses what would make what an owner has on disk grow beyond what
// it may take: the files of all sessions, asleep or not, and what is kept of
// them. What programs write counts from the end of their run on.
func (m *Manager) checkDisk(o Owner, growth int64) error {
	most := m.config.OwnerDiskBytes
	u, err := m.diskUse(o)
	if err != nil || u.Bytes+u.kept+growth <= most {
		return err
	}
	for _, s := range m.sessions.open(o) { // what is known may be old: look again
		_, _ = s.tree.DiskBytes() // one that is ending takes what it took
	}
	u, sizes, err := m.measureDisk(o)
	if err != nil || u.Bytes+u.kept+growth <= most {
		return err
	}
	return fault.New(fault.Exhausted, "your sessions would take more than the %d MiB of disk that they may: they have %d MiB of files and %d MiB of checkpoints", most>>20, u.Bytes>>20, u.kept>>20).
		WithHint("delete files, or destroy sessions that are no longer needed: %s; the operator can raise limits.max_disk_per_client_mb", largest(sizes, ""))
}

// reclaimDisk makes room on an owner's disk, where there is too little: the oldest
// checkpoints of open sessions go, and what nothing refers to. It tells whether
// there is enough then.
func (m *Manager) reclaimDisk(ctx context.Context, o Owner) error {
	err := m.checkDisk(o, 1)
	if fault.KindOf(err) != fault.Exhausted || !m.mayReclaimDisk(o) {
		return err
	}
	for _, keep := range []int{m.config.Checkpoints, fewCheckpoints} {
		for _, s := range m.sessions.open(o) {
			s.pruneTo(keep)
		}
		if keep == fewCheckpoints {
			m.pruneAsleep(o, keep)
		}
		if err := m.removeContents(ctx, o); err != nil {
			m.log.InfoContext(ctx, "what is no longer needed was not collected", "cause", fault.CauseOf(err))
		}
		m.disk.Forget(string(o))
		if err = m.checkDisk(o, 1); fault.KindOf(err) != fault.Exhausted {
			return err
		}
	}
	return err
}

// reclaimInterval is how often it is tried to make room on an owner's disk.
const reclaimInterval = 10 * time.Second

func (m *Manager) mayReclaimDisk(o Owner) bool {
	m.storing.Lock()
	defer m.storing.Unlock()
	if last, ok := m.sheds[o]; ok && time.Since(last) < reclaimInterval {
		return false
	}
	m.sheds[o] = time.Now()
	return true
}

// pruneAsleep gives up old checkpoints of the sessions that no process has open.
func (m *Manager) pruneAsleep(o Owner, most int) {
	ids, err := m.store.IDs(string(o))
	if err != nil {
		return // the next call tries again
	}
	for _, id := range ids {
		if k := (key{o, ID(id)}); !m.store.Held(k.stored()) {
			m.pruneClosed(k, most)
		}
	}
}

// pruneClosed prunes one, if no process opens it meanwhile.
func (m *Manager) pruneClosed(k key, most int) {
	if _, err := m.store.Read(k.stored()); err != nil {
		return
	}
	claim, err := m.store.Claim(k.stored())
	if err != nil {
		return
	}
	defer claim.Release()
	s := newSession(m, k)
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	if s.openKept() != nil {
		return
	}
	if s.repo.Check() == nil && s.repo.Head().Number > 0 {
		s.repo.Prune(most)
	}
}

// fewCheckpoints is how many are left where disk is short.
const fewCheckpoints = 5

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

// treeOptions bound a session's files.
func (s *session) treeOptions(disk int64) workspace.Options {
	uid, gid := fileOwner(s.backend)
	return workspace.Options{Owner: string(s.owner), DiskBytes: disk, UID: uid, GID: gid, Grow: func(bytes int64) error { return s.manager.checkDisk(s.owner, bytes) }}
}
