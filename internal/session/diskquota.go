package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/quota"
	"paddock/internal/workspace"
)

// diskQuota bounds what owners have on disk, and makes room there. It is safe for
// concurrent use.
type diskQuota struct {
	m        *Manager
	measured *quota.Disk

	mu        sync.Mutex          // guards reclaimed; nothing else is locked while it is held
	reclaimed map[Owner]time.Time // when room was last made on whose disk
}

// diskUse is what an owner has on disk, asleep or not.
type diskUse struct {
	quota.Taken
	kept int64 // bytes of what is kept of the sessions
}

// use returns what an owner takes.
func (d *diskQuota) use(o Owner) (diskUse, error) {
	t, err := d.measured.Of(string(o), d.openBytes(o))
	if err != nil {
		return diskUse{}, unusable(err)
	}
	return d.addKept(o, t)
}

// measure is use with a look at each session, which takes long where there are
// many. It gives what each of them takes, too.
func (d *diskQuota) measure(o Owner) (diskUse, map[string]int64, error) {
	t, each, err := d.measured.Now(string(o), d.openBytes(o))
	if err != nil {
		return diskUse{}, nil, unusable(err)
	}
	with, err := d.addKept(o, t)
	return with, each, err
}

func (d *diskQuota) addKept(o Owner, t quota.Taken) (diskUse, error) {
	blobs, err := d.m.local.Blobs(string(o))
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
func (d *diskQuota) openBytes(o Owner) map[string]int64 {
	open := map[string]int64{}
	for _, s := range d.m.sessions.open(o) {
		open[string(s.id)] = s.tree.Used() + s.tmp.Used()
	}
	return open
}

// note notes what a session takes that is new or is let go of.
func (d *diskQuota) note(s *session) {
	bytes := s.tree.Used() + s.tmp.Used()
	s.mu.Lock()
	s.record.TreeBytes = bytes
	s.mu.Unlock()
	if d.m.sessions.holds(s) && s.isEphemeral() { // else its checkpoints tell the index
		d.m.store.Index(s.rowNow())
	}
	d.measured.Note(string(s.owner), string(s.id), bytes, s.turns.isEnding())
}

// check refuses what would make what an owner has on disk grow beyond what
// it may take: the files of all sessions, asleep or not, and what is kept of
// them. What programs write counts from the end of their run on.
func (d *diskQuota) check(o Owner, growth int64) error {
	most := d.m.config.OwnerDiskBytes
	u, err := d.use(o)
	if err != nil || u.Bytes+u.kept+growth <= most {
		return err
	}
	for _, s := range d.m.sessions.open(o) { // what is known may be old: look again
		_, _ = s.tree.DiskBytes() // one that is ending takes what it took
	}
	u, sizes, err := d.measure(o)
	if err != nil || u.Bytes+u.kept+growth <= most {
		return err
	}
	return fault.New(fault.Exhausted, "your sessions would take more than the %d MiB of disk that they may: they have %d MiB of files and %d MiB of checkpoints", most>>20, u.Bytes>>20, u.kept>>20).
		WithHint("delete files, or destroy sessions that are no longer needed: %s; the operator can raise limits.max_disk_per_client_mb", largest(sizes, ""))
}

// reclaim makes room on an owner's disk, where there is too little: the oldest
// checkpoints of open sessions go, and what nothing refers to. It reports whether
// there is enough then.
func (d *diskQuota) reclaim(ctx context.Context, o Owner) error {
	err := d.check(o, 1)
	if fault.KindOf(err) != fault.Exhausted || !d.mayReclaim(o) {
		return err
	}
	for _, keep := range []int{d.m.config.Checkpoints, fewCheckpoints} {
		for _, s := range d.m.sessions.open(o) {
			s.checkpoints.prune(keep)
		}
		if keep == fewCheckpoints {
			d.pruneAsleep(o, keep)
		}
		if err := d.removeContents(ctx, o); err != nil {
			d.m.log.InfoContext(ctx, "what is no longer needed was not collected", "cause", fault.CauseOf(err))
		}
		d.forget(o)
		if err = d.check(o, 1); fault.KindOf(err) != fault.Exhausted {
			return err
		}
	}
	return err
}

// removeContents removes what no checkpoint of an owner names, as much as it can without
// keeping others waiting for long.
func (d *diskQuota) removeContents(ctx context.Context, o Owner) error {
	_, _, _, err := d.m.store.RemoveContents(ctx, d.m.store.PlaceOf(string(o)))
	return err
}

// forget has what an owner takes be measured again.
func (d *diskQuota) forget(o Owner) { d.measured.Forget(string(o)) }

// reclaimInterval is how often it is tried to make room on an owner's disk.
const reclaimInterval = 10 * time.Second

func (d *diskQuota) mayReclaim(o Owner) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, ok := d.reclaimed[o]; ok && time.Since(last) < reclaimInterval {
		return false
	}
	d.reclaimed[o] = time.Now()
	return true
}

// pruneAsleep gives up old checkpoints of the sessions that no process has open.
func (d *diskQuota) pruneAsleep(o Owner, most int) {
	ids, err := d.m.store.IDs(string(o))
	if err != nil {
		return // the next call tries again
	}
	for _, id := range ids {
		if k := (key{o, ID(id)}); !d.m.store.Held(k.stored()) {
			d.pruneClosed(k, most)
		}
	}
}

// pruneClosed prunes one, if no process opens it meanwhile.
func (d *diskQuota) pruneClosed(k key, most int) {
	if _, err := d.m.store.Read(k.stored()); err != nil {
		return
	}
	claim, err := d.m.store.Claim(k.stored())
	if err != nil {
		return
	}
	defer claim.Release()
	s := newSession(d.m, k)
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	if s.checkpoints.open() != nil {
		return
	}
	if s.checkpoints.repo.Check() == nil && s.checkpoints.repo.Head().Number > 0 {
		s.checkpoints.repo.Prune(most)
	}
}

// fewCheckpoints is how many are left where disk is short.
const fewCheckpoints = 5

// checkSessions refuses one session more than an owner may have, asleep or not.
func (d *diskQuota) checkSessions(o Owner) error {
	u, err := d.use(o)
	if err != nil || u.Sessions < d.m.config.MaxStored {
		return err
	}
	if u, _, err = d.measure(o); err != nil || u.Sessions < d.m.config.MaxStored {
		return err
	}
	return fault.New(fault.Exhausted, "there are %d sessions already, and no more are allowed", u.Sessions).
		WithHint("destroy those that are no longer needed; the operator can raise sessions.max_stored_per_client")
}

// treeOptions bound a session's files.
func (s *session) treeOptions(disk int64) workspace.Options {
	uid, gid := fileOwner(s.backend)
	return workspace.Options{
		Owner: string(s.owner), DiskBytes: disk, UID: uid, GID: gid,
		Grow:    func(bytes int64) error { return s.manager.disk.check(s.owner, bytes) },
		Changed: func() { s.residence.filesChanged() },
	}
}
