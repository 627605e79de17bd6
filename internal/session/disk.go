package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// The files and folders of a session's folder. Without its record a folder is
// no session: it is being made or removed.
const (
	recordFile      = "session.json"
	lockFile        = "lock"
	workspaceFolder = "workspace"
	tmpFolder       = "tmp"
)

// lockPatience is how long a session's lock is tried: others hold it for an
// instant when they list sessions.
const lockPatience = 200 * time.Millisecond

const recordVersion = 1

// record is what session.json holds.
type record struct {
	Version    int              `json:"version"`
	ID         ID               `json:"session_id"`
	Owner      Owner            `json:"owner"`
	Settings   Settings         `json:"settings"`
	Isolation  string           `json:"isolation"`
	CreatedAt  time.Time        `json:"created_at"`
	LastUsedAt time.Time        `json:"last_used_at"`
	Executions int64            `json:"execution_count"`
	Runtimes   map[string]int64 `json:"runtimes,omitempty"` // how often each was used
	Process    int              `json:"process,omitempty"`  // who has it open; only true while the lock is held
	Boot       string           `json:"boot,omitempty"`     // when it was let go of: files that nobody synced are there as long as that lasts
	Life       string           `json:"life,omitempty"`     // its Life, likewise
	// Group names the forks that are there together or not at all: they are when
	// its marker is.
	Group string `json:"group,omitempty"`
	// Anew are the runtimes whose next interpreter needs new seeds; News is what
	// the next result has to tell.
	Anew      []string `json:"anew,omitempty"`
	News      string   `json:"news,omitempty"`
	TreeBytes int64    `json:"tree_bytes,omitempty"` // what its files took at its last checkpoint
	Head      int64    `json:"head,omitempty"`       // its newest checkpoint when this was written; zero: not known

	checkpoints int64 // how many there are, where it is known
}

func (m *Manager) ownerFolder(o Owner) string {
	name := string(Local)
	if o != Local {
		sum := sha256.Sum256([]byte(o))
		name = hex.EncodeToString(sum[:16])
	}
	return filepath.Join(m.config.Dir, "owners", name)
}

func (m *Manager) folder(k key) string { return filepath.Join(m.ownerFolder(k.owner), string(k.id)) }

func (m *Manager) ttl(r record) time.Duration {
	if r.Settings.TTL > 0 {
		return r.Settings.TTL
	}
	return m.config.IdleTTL
}

func (m *Manager) expiresAt(r record) time.Time { return r.LastUsedAt.Add(m.ttl(r)) }

// describe gives what a record tells; the state is the caller's to fill in.
func (m *Manager) describe(r record) Info {
	return Info{
		ID: r.ID, Owner: r.Owner, Settings: r.Settings, Isolation: r.Isolation, State: Idle, CreatedAt: r.CreatedAt,
		LastUsedAt: r.LastUsedAt, ExpiresAt: m.expiresAt(r), Executions: r.Executions, Process: r.Process,
	}
}

// readRecord reads a session's record and checks that it is this session's:
// where file names ignore case, another one's might be found. The newest
// checkpoint holds it as well, for where a power cut has damaged it.
func (m *Manager) readRecord(k key) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(m.folder(k), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, errNotFound(k.id)
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		if again, e := m.keptRecord(k); e == nil {
			r, err = again, nil
		}
	}
	switch {
	case err != nil:
		return r, fault.New(fault.Internal, "the session %q cannot be read", k.id).WithHint("create a new session; the server's log says more").WithCause(err)
	case r.Version > recordVersion:
		return r, fault.New(fault.Unsupported, "the session %q was made by a newer paddock", k.id).WithHint("update paddock, or create a new session")
	case r.ID != k.id || r.Owner != k.owner || !m.committed(r):
		return r, errNotFound(k.id)
	}
	return r, nil
}

// keptRecord is what the newest checkpoint of a session says of it, as a process
// left it that did not let go of it.
func (m *Manager) keptRecord(k key) (r record, err error) {
	line, err := history.Open(m.checkpointsFolder(k), m.config.files())
	if err != nil {
		return r, err
	}
	head, _, err := line.Head(func(*history.Manifest) error { return nil })
	if err != nil || head == nil {
		return r, cmp.Or(err, fs.ErrNotExist)
	}
	if err := json.Unmarshal(head.Record, &r); err != nil {
		return r, err
	}
	r.Process = cmp.Or(r.Process, 1)
	return r, nil
}

// sign says in session.json that this process has the session. It is on disk
// when it returns: whoever finds a session signed and its process gone knows that
// a program may have been running.
func (s *session) sign() error {
	s.mu.Lock()
	r := &s.record
	r.Process, r.Life, r.Boot = os.Getpid(), s.manager.config.Life.name(), ""
	s.mu.Unlock()
	return s.write(true)
}

// letGoOf says that no process has it any more; clean: that what is on disk is
// what it was.
func (s *session) letGoOf(clean bool) error {
	s.mu.Lock()
	r := s.record
	s.mu.Unlock()
	settled := s.manager.committed(r)
	s.mu.Lock()
	s.record.Process, s.record.Life, s.record.Boot = 0, "", ""
	if clean {
		s.record.Boot = workspace.Boot()
	}
	if settled {
		s.record.Group = "" // from now on it stands for itself
	}
	s.mu.Unlock()
	return s.write(true)
}

// save replaces session.json, and does not wait for the disk. Only the first in
// line, the opening and the end call it.
func (s *session) save() error { return s.write(false) }

// write writes session.json: durably, or so that only a power cut can take it
// back.
func (s *session) write(durably bool) error {
	s.mu.Lock()
	s.record.News, s.record.Anew = s.news, slices.Sorted(maps.Keys(s.anew))
	data, err := json.MarshalIndent(s.record, "", "  ")
	s.mu.Unlock()
	if err != nil {
		return err
	}
	path, data := filepath.Join(s.dir, recordFile), append(data, '\n')
	if durably {
		return blob.WriteFile(s.manager.config.files(), path, data)
	}
	temp := path + "." + rand.Text()
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return nil
}

// fileOwner is as whom the backend's guests touch files; zeros: as us.
func fileOwner(b sandbox.Backend) (uid, gid int) {
	if o, ok := b.(interface{ FileOwner() (uid, gid int) }); ok {
		return o.FileOwner()
	}
	return 0, 0
}

// create makes the session's folder, which must not hold a session yet, and its
// first checkpoint, which fill fills; nil: an empty one.
func (s *session) create(fill func(*draft) error) error {
	uid, gid := fileOwner(s.backend)
	mode := fs.FileMode(0o700)
	if uid != 0 {
		mode = 0o755 // the guest's user opens each folder on the way to its own
	}
	for try := 0; ; try++ {
		err := errors.Join(blob.MakeFolder(s.manager.config.files(), s.dir), os.Chmod(filepath.Dir(s.dir), mode), os.Chmod(s.dir, mode))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unusable(err)
		}
		err = s.acquire()
		if err == nil {
			break
		}
		if fault.KindOf(err) != fault.NotFound || try == 5 { // else what was left of another session was swept just now
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(s.dir, recordFile)); err == nil {
		s.letGo()
		return errExists(s.id)
	}
	for _, name := range []string{workspaceFolder, tmpFolder} {
		dir := filepath.Join(s.dir, name)
		// What is there was left by a session that was not removed entirely.
		err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
		if err == nil && uid != 0 {
			err = os.Chown(dir, uid, gid)
		}
		if err != nil {
			s.letGo()
			return unusable(err)
		}
	}
	err := s.openTrees()
	if err == nil {
		err = history.RemoveAll(s.manager.checkpointsFolder(s.key), s.manager.config.files())
	}
	if err == nil {
		err = s.openKept()
	}
	if err == nil {
		err = s.begin(fill)
	}
	if err == nil {
		if err = s.sign(); err != nil { // from now on it exists
			_ = s.manager.config.files().Remove(filepath.Join(s.dir, recordFile)) // as far as it got its name
		}
	}
	if err != nil {
		s.letGo()
		return unusable(err)
	}
	return nil
}

// begin makes the first checkpoint.
func (s *session) begin(fill func(*draft) error) error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if s.passing() {
		s.kept.head = new(history.Manifest)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	d, err := s.draft(ctx, causeCreate)
	if err != nil {
		return err
	}
	defer d.close()
	if fill == nil {
		err = d.capture(nil)
	} else {
		err = fill(d)
	}
	if err != nil {
		return err
	}
	return d.commit(ctx)
}

// openKept opens what is on disk of the session's line.
func (s *session) openKept() (err error) {
	s.kept.unsure, s.kept.apart = map[string]bool{}, map[string]bool{}
	if s.kept.blobs, err = s.manager.blobs(s.owner); err != nil {
		return err
	}
	s.kept.line, err = history.Open(s.manager.checkpointsFolder(s.key), s.manager.config.files())
	return err
}

// load opens the folder of a session that exists.
func (s *session) load() error {
	if _, err := s.manager.readRecord(s.key); err != nil {
		return err
	}
	if err := s.acquire(); err != nil {
		return err
	}
	r, err := s.manager.readRecord(s.key) // it may have been removed just now
	if err != nil {
		s.letGo()
		return err
	}
	// Without its backend the session can still be read and destroyed.
	s.backend, s.backendErr = s.manager.backend(r.Isolation)
	s.record, s.news = r, r.News
	s.record.Group = "" // it is there, so the others of it are
	for _, runtime := range r.Anew {
		s.anew[runtime] = true
	}
	if err := s.manager.waitForEnd(r); err != nil {
		s.unlock()
		return err
	}
	err = s.openTrees()
	if err == nil {
		if err := s.tree.Sweep(); err != nil {
			s.manager.log.Warn("what an interrupted write left cannot be removed", "session", s.id, "cause", causeOf(err))
		}
		err = s.openKept()
	}
	if err == nil {
		err = s.recover(r.Process == 0 && r.Boot == workspace.Boot())
	}
	if err == nil {
		err = s.sign()
	}
	if err != nil {
		s.letGo()
		return unusable(err)
	}
	return nil
}

// openTrees opens the session's folders of files.
func (s *session) openTrees() (err error) {
	disk := s.manager.config.DiskBytes
	options := s.treeOptions(disk)
	options.Keep = s.keepPaths
	if s.tree, err = workspace.Open(filepath.Join(s.dir, workspaceFolder), options); err != nil {
		return err
	}
	s.tmp, err = workspace.Open(filepath.Join(s.dir, tmpFolder), s.treeOptions(disk/4))
	return err
}

func unusable(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal {
		return err
	}
	return fault.New(fault.Unavailable, "the session's folder cannot be used").WithHint("the server's log says more").WithCause(err)
}

// acquire takes the session's lock.
func (s *session) acquire() error {
	path := filepath.Join(s.dir, lockFile)
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	lock := flock.New(path, flock.SetPermissions(0o600))
	ok, err := lock.TryLockContext(ctx, 10*time.Millisecond)
	for ok && !isAt(lock, path) {
		_ = lock.Close() // the file is no longer there: nobody misses the lock
		lock = flock.New(path, flock.SetPermissions(0o600))
		ok, err = lock.TryLockContext(ctx, 10*time.Millisecond)
	}
	switch {
	case ok:
		s.lock = lock
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return errNotFound(s.id)
	case errors.Is(err, context.DeadlineExceeded):
		return s.errHeld()
	}
	return unusable(fmt.Errorf("locking a session: %w", err))
}

// isAt tells whether a held lock is the one that others find at path: who
// removes a session removes its lock.
func isAt(lock *flock.Flock, path string) bool {
	mine, err := lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

func (s *session) errHeld() error {
	if r, err := s.manager.readRecord(s.key); err == nil && r.Process != 0 {
		return fault.New(fault.Conflict, "the session %q is open in another process (pid %d)", s.id, r.Process).WithHint("end that process, or create a new session")
	}
	return fault.New(fault.Conflict, "the session %q is being opened or removed by another process", s.id).WithHint("try again, or create a new session")
}

// letGo closes what acquire and take opened; nil fields are left out.
func (s *session) letGo() {
	s.closeTrees()
	s.unlock()
}

func (s *session) closeTrees() {
	for _, t := range []*workspace.Tree{s.tree, s.tmp} {
		if t != nil {
			_ = t.Close() // a folder that was only looked up in
		}
	}
}

func (s *session) unlock() {
	if s.lock != nil {
		if err := s.lock.Close(); err != nil {
			s.manager.log.Warn("a session's lock cannot be released", "session", s.id, "cause", err)
		}
	}
}

// idsOnDisk lists the owner's folders, sessions or not.
func (m *Manager) idsOnDisk(o Owner) ([]ID, error) {
	entries, err := os.ReadDir(m.ownerFolder(o))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unusable(err)
	}
	var ids []ID
	for _, e := range entries {
		if id := ID(e.Name()); e.IsDir() && id.check() == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Owners lists who has sessions in the state folder, this process's or not, in
// the order of their IDs.
func (m *Manager) Owners() ([]Owner, error) {
	folders, err := filepath.Glob(filepath.Join(m.config.Dir, "owners", "*", "*", recordFile))
	if err != nil {
		return nil, unusable(err)
	}
	var all []Owner
	for _, path := range folders {
		var r record
		data, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(data, &r) != nil || m.ownerFolder(r.Owner) != filepath.Dir(filepath.Dir(path)) {
			continue // it was removed just now, or it is nobody's
		}
		all = append(all, r.Owner)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// infoOnDisk tells about a session that this process does not have open.
func (m *Manager) infoOnDisk(k key) (Info, error) {
	r, err := m.readRecord(k)
	if err != nil {
		return Info{}, err
	}
	return m.describeOnDisk(r), nil
}

// describeOnDisk is describe for a session that this process does not have open.
func (m *Manager) describeOnDisk(r record) Info {
	if k := (key{r.Owner, r.ID}); !held(m.folder(k)) {
		r.Process = 0
	} else if now, err := m.readRecord(k); err == nil { // the index knows no processes
		r.Process = now.Process
	}
	i := m.describe(r)
	if r.Process == 0 {
		i.State = Asleep
	}
	i.Checkpoints = int(r.checkpoints)
	return i
}

// removeFolder deletes a session's folder, which exists no more as a session
// and whose lock the caller holds and lets go of with unlock. Whoever makes a
// session of the same name meanwhile keeps it.
func removeFolder(dir string, unlock func()) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != lockFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	lock := filepath.Join(dir, lockFile)
	held := os.Remove(lock) // not where an open file cannot be removed
	unlock()
	if held != nil {
		err = errors.Join(err, os.Remove(lock))
	}
	if err == nil {
		_ = os.Remove(dir) // fails when somebody uses it again
	}
	return err
}

// held tells whether a live process has the session of this folder open.
func held(dir string) bool { return locked(filepath.Join(dir, lockFile)) }

// locked tells whether a live process has a file locked.
func locked(path string) bool {
	lock := flock.New(path, flock.SetFlag(os.O_RDONLY))
	defer lock.Close()
	ok, err := lock.TryRLock()
	return err == nil && !ok
}
