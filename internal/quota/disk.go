package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/store"
)

// DiskConfig says where sessions lie. Its functions are called from any goroutine.
type DiskConfig struct {
	// Index knows sessions and their sizes, as far as it does.
	Index *store.Store
	// Folder is an owner's, which has one for each session; IDs lists the sessions'
	// names in it, and what looks like one.
	Folder func(owner string) string
	IDs    func(owner string) ([]string, error)
	// Bytes is what the files of one that lies there took when it was last looked at;
	// a fault.NotFound says that it is not a session. All is that of all.
	Bytes func(owner, session string) (int64, error)
	All   func(owner string) (map[string]int64, error)
	// Incomplete is told that the index does not know all sessions.
	Incomplete func()
	Log        *slog.Logger
}

// Disk is what owners' sessions take of the disk, asleep or not: those that are open
// here as they are now, the others as they were when somebody looked last. It does not
// read all sessions for that: it trusts the index's sums, as far as those are of the
// sessions that are in the folder. It is safe for concurrent use.
type Disk struct {
	config DiskConfig
	mu     sync.Mutex // guards what follows; not held during disk access
	known  map[string]*measured
}

// Taken is what an owner has.
type Taken struct {
	Sessions int
	Bytes    int64 // of the files of all of them
}

// measured is what an owner had when somebody looked.
type measured struct {
	at       time.Time
	sessions int
	sum      int64 // what the files of all of them take, in bytes
	// files is how much of it is whose, as far as that is known: of those that
	// were open then or are new since.
	files  map[string]int64
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
	missing       map[string]int64 // what these take
	sessions      int              // that are too many
	bytes         int64            // what those take
}

const (
	// knownFor is how long what was measured counts as good.
	knownFor = 2 * time.Second
	// folderTicks is how far apart two changes of a folder are at least that its
	// time tells from each other: on FAT it is 2 s.
	folderTicks = 3 * time.Second
)

// NewDisk makes a Disk that knows nothing yet.
func NewDisk(c DiskConfig) *Disk { return &Disk{config: c, known: map[string]*measured{}} }

// Of tells what an owner takes; open is what the sessions take now that are open here.
func (d *Disk) Of(owner string, open map[string]int64) (Taken, error) {
	d.mu.Lock()
	known := d.known[owner]
	if known.fresh(open) {
		defer d.mu.Unlock()
		return known.with(open), nil
	}
	d.mu.Unlock()
	known, err := d.measure(owner, known, open)
	if err != nil {
		return Taken{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[owner] = known
	return known.with(open), nil
}

// Now is Of with a look at each session, which takes long where there are many. It
// gives what each of them takes, too.
func (d *Disk) Now(owner string, open map[string]int64) (Taken, map[string]int64, error) {
	known, err := d.count(owner)
	if err != nil {
		return Taken{}, nil, err
	}
	each := maps.Clone(known.files)
	maps.Copy(each, open)
	d.mu.Lock()
	defer d.mu.Unlock()
	if was := d.known[owner]; was != nil {
		known.folder, known.differ = was.folder, was.differ
	}
	d.known[owner] = known
	return known.with(open), each, nil
}

// Note notes what a session takes that is new, or, where it leaves, that is let go of.
func (d *Disk) Note(owner, session string, bytes int64, leaves bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known[owner]
	if known == nil {
		return
	}
	was, there := known.files[session]
	switch {
	case there:
	case leaves:
		return // it is in the sum as the index knew it
	default:
		known.sessions++
	}
	known.sum += bytes - was
	known.files[session] = bytes
}

// Forget has what an owner takes looked at again.
func (d *Disk) Forget(owner string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.known[owner]; known != nil {
		known.at = time.Time{}
	}
}

// fresh tells whether what was measured can be used, with these sessions open.
func (u *measured) fresh(open map[string]int64) bool {
	if u == nil || time.Since(u.at) > knownFor {
		return false
	}
	for id := range open {
		if _, there := u.files[id]; !there {
			return false
		}
	}
	return true
}

// with is what was measured, with those that are open as they are now.
func (u *measured) with(open map[string]int64) Taken {
	t := Taken{Sessions: u.sessions, Bytes: u.sum}
	for id, now := range open {
		t.Bytes += now - u.files[id]
	}
	return t
}

// measure finds out what an owner has on disk. was is what is known from before; nil:
// nothing.
func (d *Disk) measure(owner string, was *measured, open map[string]int64) (*measured, error) {
	u := &measured{at: time.Now(), files: map[string]int64{}}
	if was != nil {
		u.folder, u.differ = was.folder, was.differ
	}
	ids := make([]string, 0, len(open))
	for id := range open {
		ids = append(ids, id)
	}
	if err := d.lookAt(owner, &u.folder); err != nil {
		return nil, err
	}
	totals, sizes, err := d.config.Index.Totals(owner, ids...)
	if errors.Is(err, store.ErrIncomplete) {
		d.config.Incomplete()
	}
	if err != nil {
		return d.count(owner)
	}
	switch differ := &u.differ; {
	case totals.NameSum == u.folder.names:
		*differ = difference{}
	case totals.NameSum != differ.index || u.folder.names != differ.folder:
		if *differ, err = d.compare(owner); err != nil {
			return d.count(owner)
		}
	}
	u.sessions = int(totals.Sessions) - u.differ.sessions + len(u.differ.missing)
	u.sum = totals.TreeBytes - u.differ.bytes
	for _, bytes := range u.differ.missing {
		u.sum += bytes
	}
	for _, id := range ids {
		u.files[id] = sizes[id] + u.differ.missing[id] // it is in one of them, or in none
	}
	return u, nil
}

// lookAt brings what is known of an owner's folder up to date.
func (d *Disk) lookAt(owner string, f *folder) error {
	info, err := os.Stat(d.config.Folder(owner))
	if errors.Is(err, fs.ErrNotExist) {
		*f = folder{}
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at an owner's folder: %w", err)
	}
	changed := info.ModTime()
	if !f.changed.IsZero() && changed.Equal(f.changed) {
		return nil
	}
	*f = folder{changed: changed}
	if age := time.Since(changed); age < folderTicks {
		f.changed = time.Time{} // it may change again, and have the same time
	}
	ids, err := d.config.IDs(owner)
	for _, id := range ids {
		f.names += store.NameSum(id)
	}
	return err
}

// compare finds the sessions that the index does not know, and those of which it
// does not know that they are gone.
func (d *Disk) compare(owner string) (differ difference, err error) {
	ids, err := d.config.IDs(owner)
	if err != nil {
		return differ, err
	}
	sizes, err := d.config.Index.Sizes(owner)
	if err != nil {
		return differ, err
	}
	differ.missing = map[string]int64{}
	for id := range sizes {
		differ.index += store.NameSum(id)
	}
	for _, id := range ids {
		differ.folder += store.NameSum(id)
		if _, known := sizes[id]; known {
			delete(sizes, id)
			continue
		}
		bytes, err := d.config.Bytes(owner, id)
		switch {
		case err == nil:
			differ.missing[id] = bytes
		case fault.KindOf(err) != fault.NotFound:
			d.config.Log.Warn("a session cannot be read", "session", id, "cause", fault.CauseOf(err))
		}
	}
	for _, bytes := range sizes {
		differ.sessions++
		differ.bytes += bytes
	}
	return differ, nil
}

// count looks at each of an owner's sessions.
func (d *Disk) count(owner string) (*measured, error) {
	at := time.Now()
	all, err := d.config.All(owner)
	if err != nil {
		return nil, err
	}
	u := &measured{at: at, sessions: len(all), files: all}
	for _, bytes := range all {
		u.sum += bytes
	}
	return u, nil
}
