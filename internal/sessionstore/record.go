package sessionstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/workspace"
)

// RecordVersion is the version of the records that this paddock writes.
const RecordVersion = 1

// Identity is the part of a record that says which session it is. Package session embeds
// it at the beginning of its record.
type Identity struct {
	Version int    `json:"version"`
	ID      string `json:"session_id"`
	Owner   string `json:"owner"`
}

// Signature is the part of a record that says which process has the session open. Package
// session embeds it in its record; [Claim.Sign] and [Claim.Unsign] fill it in.
type Signature struct {
	Process int    `json:"process,omitempty"` // the holder's pid; true only while the claim is held
	Boot    string `json:"boot,omitempty"`    // of this machine, when a holder released it: unsynced files last as long
	Life    string `json:"life,omitempty"`    // the holder's [lock.Liveness]
	// Group names the forks that exist together or not at all: they do when their group is
	// committed.
	Group string `json:"group,omitempty"`
}

// Clean reports whether the session's files are as its last holder left them: else a
// program may have been running when that was killed, or the machine has lost power.
func (s Signature) Clean() bool { return s.Process == 0 && s.Boot == workspace.Boot() }

// Record is a session's record.
type Record struct {
	Identity
	Signature
	// Data is the whole record, JSON of package session's that holds the two parts above.
	Data []byte
	// Checkpoints is how many there are, where the index knows it; else zero.
	Checkpoints int64
}

// header is what the store reads of a record.
type header struct {
	Identity
	Signature
}

func decode(data []byte) (Record, error) {
	var h header
	err := json.Unmarshal(data, &h)
	return Record{Identity: h.Identity, Signature: h.Signature, Data: data}, err
}

// Unreadable says that a session's record is damaged.
func Unreadable(id string, cause error) error {
	return fault.New(fault.Internal, "the session %q cannot be read", id).
		WithHint("create a new session; the server's log says more").WithCause(cause)
}

// Read reads a session's record, whoever has the session; a fault.NotFound says that
// there is none. It checks that the record is this session's: where file names ignore
// case, another one's might be found. A record that a power cut has damaged is read from
// the newest checkpoint.
func (s *Store) Read(k Key) (Record, error) {
	var r Record
	data, err := os.ReadFile(filepath.Join(s.local.Session(k), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, NotFound(k.ID)
	}
	if err == nil {
		r, err = decode(data)
	}
	if err != nil {
		if again, e := s.checkpointed(k); e == nil {
			r, err = again, nil
		}
	}
	switch {
	case err != nil:
		return r, Unreadable(k.ID, err)
	case r.Version > RecordVersion:
		return r, fault.New(fault.Unsupported, "the session %q was made by a newer paddock", k.ID).
			WithHint("update paddock, or create a new session")
	case r.ID != k.ID || r.Owner != k.Owner || !s.committed(r):
		return r, NotFound(k.ID)
	}
	return r, nil
}

// checkpointed reads the record in a session's newest checkpoint, as of a process that
// did not release the session.
func (s *Store) checkpointed(k Key) (r Record, err error) {
	line, err := history.Open(s.local.Checkpoints(k), s.shared)
	if err != nil {
		return r, err
	}
	head, _, err := line.Head(func(*history.Manifest) error { return nil })
	if err != nil || head == nil {
		return r, cmp.Or(err, fs.ErrNotExist)
	}
	if r, err = decode(head.Record); err != nil {
		return r, err
	}
	r.Process = cmp.Or(r.Process, 1)
	return r, nil
}

// Records lists the records of an owner's sessions: from the index where that has them,
// so what they say of processes may be old.
func (s *Store) Records(owner string) (all []Record, err error) {
	ids, err := s.IDs(owner)
	if err != nil {
		return nil, err
	}
	known := map[string]Record{}
	if rows, err := s.index.Sessions(owner); err == nil {
		for _, row := range rows {
			if r, err := decode(row.Record); err == nil {
				r.Checkpoints = row.Checkpoints
				known[row.ID] = r
			}
		}
	}
	for _, id := range ids {
		k := Key{owner, id}
		if r, ok := known[id]; ok && r.Group == "" {
			if _, err := os.Lstat(filepath.Join(s.local.Session(k), recordFile)); err == nil {
				all = append(all, r)
			}
			continue
		}
		r, err := s.Read(k)
		switch {
		case err == nil:
			all = append(all, r)
		case fault.KindOf(err) != fault.NotFound:
			s.log.Warn("a session cannot be read", "session", id, "cause", fault.CauseOf(err))
		}
	}
	return all, nil
}
