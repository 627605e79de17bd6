package session

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/workspace"
)

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
	// the next result has to tell, and Calls what of it a reset does not undo.
	Anew      []string `json:"anew,omitempty"`
	News      string   `json:"news,omitempty"`
	Calls     string   `json:"calls,omitempty"`
	TreeBytes int64    `json:"tree_bytes,omitempty"` // what its files took at its last checkpoint
	Head      int64    `json:"head,omitempty"`       // its newest checkpoint when this was written; zero: not known

	Halted bool `json:"halted,omitempty"` // nothing runs in it until it is booted
	// Unkept are the runtimes that hold variables of which no checkpoint knows:
	// their isolation keeps files only.
	Unkept []string `json:"unkept,omitempty"`

	// Traffic is what its programs have sent and received.
	Traffic Traffic `json:"traffic,omitzero"`

	// Waiting is the run that waits for a person; nil: none does.
	Waiting *WaitingRun `json:"waiting,omitempty"`

	checkpoints int64 // how many there are, where it is known
}

func (m *Manager) ttl(r record) time.Duration {
	if r.Settings.TTL > 0 {
		return r.Settings.TTL
	}
	return m.config.IdleTTL
}

func (m *Manager) expiresAt(r record) time.Time { return r.LastUsedAt.Add(m.ttl(r)) }

// describe gives what a record tells; the state is the caller's to fill in.
func (m *Manager) describe(r record) Info {
	i := Info{
		ID: r.ID, Owner: r.Owner, Settings: r.Settings, Isolation: r.Isolation, State: Idle, CreatedAt: r.CreatedAt,
		LastUsedAt: r.LastUsedAt, ExpiresAt: m.expiresAt(r), Executions: r.Executions, Process: r.Process, Halted: r.Halted, DiskBytes: r.TreeBytes, Traffic: r.Traffic,
	}
	if r.Waiting != nil {
		w := *r.Waiting
		w.Owner, w.Session = r.Owner, r.ID
		i.Waiting = &w
	}
	return i
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

// writeOpened says in session.json that this process has the session. It is on disk
// when it returns: whoever finds a session signed and its process gone knows that
// a program may have been running.
func (s *session) writeOpened() error {
	s.mu.Lock()
	r := &s.record
	r.Process, r.Life, r.Boot = os.Getpid(), s.manager.config.Life.Name(), ""
	s.mu.Unlock()
	return s.write(true)
}

// writeReleased says that no process has it any more; clean: that what is on disk is
// what it was.
func (s *session) writeReleased(clean bool) error {
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

// encodeRecord gives the record as a checkpoint holds it.
func (s *session) encodeRecord() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(s.record)
}

// save replaces session.json, and does not wait for the disk. Only the first in
// line, the opening and the end call it.
func (s *session) save() error { return s.write(false) }

// write writes session.json: durably, or so that only a power cut can take it
// back.
func (s *session) write(durably bool) error {
	s.mu.Lock()
	s.record.News, s.record.Calls, s.record.Anew = s.pending, s.calls, slices.Sorted(maps.Keys(s.mustReseed))
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
	if err = os.WriteFile(temp, data, 0o600); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // a full disk may hold a part of it
	}
	return err
}
