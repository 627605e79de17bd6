package session

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"paddock/internal/fault"
	"paddock/internal/store"
)

// usage is what an owner has on disk, asleep or not.
type usage struct {
	sessions int
	files    int64 // of all sessions together, in bytes
	blobs    int64 // what is kept of them
}

// measured is what an owner had when somebody looked.
type measured struct {
	at       time.Time
	sessions int
	sum      int64 // what the files of all of them take, in bytes
	// files is how much of it is whose, as far as that is known: of those that
	// were open then or are new since.
	files  map[ID]int64
	folder folder
	differ difference
}

// folder is what is known of an owner's folder.
type folder struct {
	// changed is when it was last, and will be another time once it is different;
	// zero: it cannot be told from what it is now.
	changed time.Time
	names   int64 // the sum of the ids' names
}

// difference is what the index misses of what is in an owner's folder, or has too
// much, for as long as their names have these two sums.
type difference struct {
	folder, index int64
	missing       map[ID]int64 // what these take
	sessions      int          // that are too many
	bytes         int64        // what those take
}

const (
	// usageTime is how long what was measured counts as good.
	usageTime = 2 * time.Second
	// folderTicks is how far apart two changes of a folder are at least that its
	// time tells from each other: on FAT it is 2 s.
	folderTicks = 3 * time.Second
)

// usage tells what an owner takes. Sessions that are open here count as they are
// now, and so do blobs; the others as they were when somebody looked last.
func (m *Manager) usage(o Owner) (usage, error) {
	open := m.openBytes(o)
	m.storing.Lock()
	known := m.used[o]
	good := known.fresh(open)
	m.storing.Unlock()
	if !good {
		var err error
		if known, err = m.measure(o, known, open); err != nil {
			return usage{}, err
		}
		m.storing.Lock()
		m.used[o] = known
		m.storing.Unlock()
	}
	return m.sumUp(o, known, open)
}

// usageNow is usage with a look at each session, which takes long where there are
// many. It gives what each of them takes, too.
func (m *Manager) usageNow(o Owner) (usage, map[ID]int64, error) {
	open := m.openBytes(o)
	known, err := m.count(o)
	if err != nil {
		return usage{}, nil, err
	}
	each := maps.Clone(known.files)
	maps.Copy(each, open)
	m.storing.Lock()
	if was := m.used[o]; was != nil {
		known.folder, known.differ = was.folder, was.differ
	}
	m.used[o] = known
	m.storing.Unlock()
	u, err := m.sumUp(o, known, open)
	return u, each, err
}

// openBytes is what the sessions take now that are open here.
func (m *Manager) openBytes(o Owner) map[ID]int64 {
	open := map[ID]int64{}
	for _, s := range m.open(o) {
		open[s.id] = s.tree.Used() + s.tmp.Used()
	}
	return open
}

// fresh tells whether what was measured can be used, with these sessions open.
// The caller holds Manager.storing.
func (u *measured) fresh(open map[ID]int64) bool {
	if u == nil || time.Since(u.at) > usageTime {
		return false
	}
	for id := range open {
		if _, there := u.files[id]; !there {
			return false
		}
	}
	return true
}

func (m *Manager) sumUp(o Owner, known *measured, open map[ID]int64) (usage, error) {
	blobs, err := m.blobs(o)
	if err != nil {
		return usage{}, err
	}
	kept, err := blobs.Bytes()
	if err != nil {
		return usage{}, fmt.Errorf("measuring what is kept: %w", err)
	}
	m.storing.Lock()
	defer m.storing.Unlock()
	u := usage{sessions: known.sessions, files: known.sum, blobs: kept}
	for id, now := range open {
		u.files += now - known.files[id]
	}
	return u, nil
}

// measure finds out what an owner has on disk, from the index's sums, as far as
// those are of the sessions that are in the folder. was is what is known from
// before; nil: nothing.
func (m *Manager) measure(o Owner, was *measured, open map[ID]int64) (*measured, error) {
	u := &measured{at: time.Now(), files: map[ID]int64{}}
	if was != nil {
		u.folder, u.differ = was.folder, was.differ
	}
	ids := make([]string, 0, len(open))
	for id := range open {
		ids = append(ids, string(id))
	}
	if err := m.lookAt(o, &u.folder); err != nil {
		return nil, err
	}
	totals, sizes, err := m.index.Totals(string(o), ids...)
	if errors.Is(err, store.ErrIncomplete) {
		m.rebuildSoon()
	}
	if err != nil {
		return m.count(o)
	}
	switch d := &u.differ; {
	case totals.NameSum == u.folder.names:
		*d = difference{}
	case totals.NameSum != d.index || u.folder.names != d.folder:
		if *d, err = m.compare(o); err != nil {
			return m.count(o)
		}
	}
	u.sessions = int(totals.Sessions) - u.differ.sessions + len(u.differ.missing)
	u.sum = totals.TreeBytes - u.differ.bytes
	for _, bytes := range u.differ.missing {
		u.sum += bytes
	}
	for id := range open {
		u.files[id] = sizes[string(id)] + u.differ.missing[id] // it is in one of them, or in none
	}
	return u, nil
}

// lookAt brings what is known of an owner's folder up to date.
func (m *Manager) lookAt(o Owner, f *folder) error {
	info, err := os.Stat(m.ownerFolder(o))
	if errors.Is(err, fs.ErrNotExist) {
		*f = folder{}
		return nil
	}
	if err != nil {
		return unusable(err)
	}
	changed := info.ModTime()
	if !f.changed.IsZero() && changed.Equal(f.changed) {
		return nil
	}
	*f = folder{changed: changed}
	if age := time.Since(changed); age < folderTicks {
		f.changed = time.Time{} // it may change again, and have the same time
	}
	ids, err := m.idsOnDisk(o)
	for _, id := range ids {
		f.names += store.NameSum(string(id))
	}
	return err
}

// compare finds the sessions that the index does not know, and those of which it
// does not know that they are gone.
func (m *Manager) compare(o Owner) (d difference, err error) {
	ids, err := m.idsOnDisk(o)
	if err != nil {
		return d, err
	}
	sizes, err := m.index.Sizes(string(o))
	if err != nil {
		return d, err
	}
	d.missing = map[ID]int64{}
	for id := range sizes {
		d.index += store.NameSum(id)
	}
	for _, id := range ids {
		d.folder += store.NameSum(string(id))
		if _, known := sizes[string(id)]; known {
			delete(sizes, string(id))
			continue
		}
		r, err := m.readRecord(key{o, id})
		switch {
		case err == nil:
			d.missing[id] = r.TreeBytes
		case fault.KindOf(err) != fault.NotFound:
			m.log.Warn("a session cannot be read", "session", id, "cause", causeOf(err))
		}
	}
	for _, bytes := range sizes {
		d.sessions++
		d.bytes += bytes
	}
	return d, nil
}

// count looks at each of an owner's sessions.
func (m *Manager) count(o Owner) (*measured, error) {
	u := &measured{at: time.Now(), files: map[ID]int64{}}
	all, err := m.records(o)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		u.files[r.ID] = r.TreeBytes
		u.sum += r.TreeBytes
	}
	u.sessions = len(all)
	return u, nil
}

// counted notes what a session takes that is new or is let go of.
func (m *Manager) counted(k key, bytes int64) {
	m.mu.Lock()
	s := m.sessions[k]
	m.mu.Unlock()
	leaves := false
	if s != nil {
		s.mu.Lock()
		s.record.TreeBytes, leaves = bytes, s.phase == leaving
		s.mu.Unlock()
		if s.passing() { // else its checkpoints tell the index
			m.index.PutSession(s.rowNow())
		}
	}
	m.storing.Lock()
	defer m.storing.Unlock()
	known := m.used[k.owner]
	if known == nil {
		return
	}
	was, there := known.files[k.id]
	switch {
	case there:
	case leaves:
		return // it is in the sum as the index knew it
	default:
		known.sessions++
	}
	known.sum += bytes - was
	known.files[k.id] = bytes
}

// forgetUsage has what an owner takes looked at anew.
func (m *Manager) forgetUsage(o Owner) {
	m.storing.Lock()
	defer m.storing.Unlock()
	if known := m.used[o]; known != nil {
		known.at = time.Time{}
	}
}
