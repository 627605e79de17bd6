package session

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"paddock/internal/sessionstore"
)

// record is what the store has of a session: its parts Identity and Signature are the
// store's.
type record struct {
	sessionstore.Identity
	Settings   Settings         `json:"settings"`
	Isolation  string           `json:"isolation"`
	CreatedAt  time.Time        `json:"created_at"`
	LastUsedAt time.Time        `json:"last_used_at"`
	Executions int64            `json:"execution_count"`
	Runtimes   map[string]int64 `json:"runtimes,omitempty"` // how often each was used
	sessionstore.Signature
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

// decodeRecord reads what the store has of a session.
func decodeRecord(stored sessionstore.Record) (r record, err error) {
	if err := json.Unmarshal(stored.Data, &r); err != nil {
		return record{}, sessionstore.Unreadable(stored.ID, err)
	}
	r.Signature, r.checkpoints = stored.Signature, stored.Checkpoints
	return r, nil
}

func (r record) key() key { return key{Owner(r.Owner), ID(r.ID)} }

// writeOpened says in the record that this process has the session. It is on disk when
// it returns: whoever finds a session signed and its process gone knows that a program may
// have been running.
func (s *session) writeOpened() error {
	s.mu.Lock()
	s.record.Signature = s.claim.Sign(s.record.Signature)
	s.mu.Unlock()
	return s.write(true)
}

// writeReleased says that no process has it any more; clean: that what is on disk is
// what it was.
func (s *session) writeReleased(clean bool) error {
	s.mu.Lock()
	was := s.record.Signature
	s.mu.Unlock()
	released := s.claim.Unsign(was, clean) // looks at the disk
	s.mu.Lock()
	s.record.Signature = released
	s.mu.Unlock()
	return s.write(true)
}

// encodeRecord gives the record as a checkpoint holds it.
func (s *session) encodeRecord() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(s.record)
}

// save replaces the record, and does not wait for the disk. Only the first in the queue,
// the opening and the end call it.
func (s *session) save() error { return s.write(false) }

// write writes the record: durably, or so that only a power cut can take it back.
func (s *session) write(durably bool) error {
	s.mu.Lock()
	s.record.News, s.record.Calls, s.record.Anew = s.pending, s.calls, slices.Sorted(maps.Keys(s.interpreters.mustReseed))
	data, err := json.MarshalIndent(s.record, "", "  ")
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.claim.Write(append(data, '\n'), durably)
}
