package e2b

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/internal/atomicfile"
	"paddock/internal/session"
)

// record is what is written down of a sandbox or a snapshot.
type record struct {
	ID       string            `json:"id"`
	Session  session.ID        `json:"session"`
	Owner    session.Owner     `json:"owner"`
	Template string            `json:"template"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Started  time.Time         `json:"started"`
	End      time.Time         `json:"end"`
	Timeout  time.Duration     `json:"timeout"` // that was asked for last

	Paused          bool     `json:"paused,omitempty"`
	Cold            bool     `json:"cold,omitempty"` // it was paused without its memory
	AutoPause       bool     `json:"auto_pause,omitempty"`
	AutoPauseCold   bool     `json:"auto_pause_cold,omitempty"`
	AutoResume      bool     `json:"auto_resume,omitempty"`
	InternetAllowed *bool    `json:"internet,omitempty"`
	Allowed         []string `json:"allowed,omitempty"`
	Denied          []string `json:"denied,omitempty"`

	// Snapshot says that this is none that runs; Of is the sandbox that it was made of, and
	// Names is what it is called.
	Snapshot bool     `json:"snapshot,omitempty"`
	Of       string   `json:"of,omitempty"`
	Names    []string `json:"names,omitempty"`
}

func (s *Server) fileOf(id string) string { return filepath.Join(s.config.Dir, id+".json") }

// write writes a record down.
func (s *Server) write(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFile(s.fileOf(r.ID), text, atomicfile.Options{Durable: true}); err != nil {
		return fmt.Errorf("writing a sandbox down: %w", err)
	}
	return nil
}

// load reads what was written down.
func (s *Server) load() error {
	if err := os.MkdirAll(s.config.Dir, 0o700); err != nil {
		return err
	}
	key, err := s.config.Key()
	if err != nil {
		return fmt.Errorf("looking for what tokens are made of: %w", err)
	}
	s.key = key
	files, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		id, is := strings.CutSuffix(f.Name(), ".json")
		if !is {
			continue
		}
		text, err := os.ReadFile(s.fileOf(id))
		var r record
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil || r.ID != id {
			s.config.Log.Warn("a sandbox of E2B's clients cannot be read", "sandbox", id, "cause", err)
			continue
		}
		s.all[id] = newSandbox(s, r)
	}
	return nil
}

// forget removes a record.
func (s *Server) forget(id string) {
	s.mu.Lock()
	delete(s.all, id)
	s.mu.Unlock()
	if err := os.Remove(s.fileOf(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.config.Log.Warn("what was written down of a sandbox is left", "sandbox", id, "cause", err)
	}
}

func (s *Server) list() (all []*sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		all = append(all, one)
	}
	return all
}

// find gives a sandbox by its id, whosever it is; nil: there is none.
func (s *Server) find(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.all[id]; one != nil && !one.isSnapshot() {
		return one
	}
	return nil
}

// of gives an owner's sandbox. For everybody else it does not exist.
func (s *Server) of(owner session.Owner, id string) (*sandbox, error) {
	// Clients of before 2024 send the node's name as well.
	id, _, _ = strings.Cut(id, "-")
	if one := s.find(id); one != nil && one.owner == owner {
		return one, nil
	}
	return nil, errNoSandbox(id)
}

func (s *Server) add(r record) (*sandbox, error) {
	if err := s.write(r); err != nil {
		return nil, err
	}
	one := newSandbox(s, r)
	s.mu.Lock()
	s.all[r.ID] = one
	s.mu.Unlock()
	s.deadlineChanged()
	return one, nil
}
