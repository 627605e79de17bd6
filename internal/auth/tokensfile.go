package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"paddock/internal/fault"
)

const (
	tokensFile    = "tokens.json"
	tokensVersion = 1
)

// unsettled is how long after a change a file's stamp is not relied on: a
// second change may have come within one tick of the file system's clock.
const unsettled = 2 * time.Second

// record is a token as tokens.json has it.
type record struct {
	Token
	Hash string `json:"sha256"` // of the token's text without its check

	hash [sha256.Size]byte
}

func (r record) clone() record {
	r.Tools, r.Namespaces = slices.Clone(r.Tools), slices.Clone(r.Namespaces)
	return r
}

func (r record) principal() *Principal {
	r = r.clone()
	return &Principal{ID: OfToken + r.ID, Name: r.Name, Tools: r.Tools, Namespaces: r.Namespaces, Expires: r.Expires}
}

// snapshot is the file as it was read once.
type snapshot struct {
	records []record
	byID    map[string]int
	stamp   fs.FileInfo // nil: there was no file
	settled bool        // the stamp changes with the next change of the file
}

// refreshLocked reads the file if it has changed. After an error there is
// nothing left of what it held before.
func (s *Tokens) refreshLocked() error {
	path := filepath.Join(s.dir, tokensFile)
	info, err := os.Stat(path)
	if err == nil && s.state.settled && unchanged(info, s.state.stamp) {
		return nil
	}
	s.state = snapshot{}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unusable(err)
	}
	before := time.Now()
	data, info, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	records, err := decodeTokens(data)
	if err != nil {
		return err
	}
	byID := map[string]int{}
	for i, r := range records {
		byID[r.ID] = i
	}
	s.state = snapshot{records: records, byID: byID, stamp: info, settled: before.Sub(info.ModTime()) > unsettled}
	return nil
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

type tokensJSON struct {
	Version int      `json:"version"`
	Tokens  []record `json:"tokens"`
}

// decodeTokens reads tokens.json strictly: a field that it does not know may
// be one that bounds a token.
func decodeTokens(data []byte) ([]record, error) {
	var file tokensJSON
	if err := json.Unmarshal(data, &struct{ Version *int }{&file.Version}); err != nil {
		return nil, damaged(tokensFile, err)
	}
	if file.Version > tokensVersion {
		return nil, fault.New(fault.Unavailable, "the file %s in the state folder was made by a newer paddock", tokensFile).WithHint("update paddock")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, damaged(tokensFile, err)
	}
	if _, err := d.Token(); err != io.EOF || file.Version != tokensVersion {
		return nil, damaged(tokensFile, errors.New("it is not one object of version 1"))
	}
	seen := map[string]bool{}
	for i := range file.Tokens {
		r := &file.Tokens[i]
		n, err := hex.Decode(r.hash[:], []byte(r.Hash[:min(len(r.Hash), 2*sha256.Size)]))
		if err != nil || n != sha256.Size || len(r.Hash) != 2*sha256.Size || !isID(r.ID) || seen[r.ID] {
			return nil, damaged(tokensFile, fmt.Errorf("the token at %d has no id or hash of its own", i))
		}
		seen[r.ID] = true
	}
	return file.Tokens, nil
}

// change replaces the tokens with what f makes of them. An error of f leaves
// them as they are.
func (s *Tokens) change(timeout time.Duration, f func([]record) ([]record, error)) error {
	return locked(s.dir, timeout, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state.settled = false // read it again, whatever its stamp
		if err := s.refreshLocked(); err != nil {
			return err
		}
		all := make([]record, len(s.state.records))
		for i, r := range s.state.records {
			all[i] = r.clone()
		}
		all, err := f(all)
		if err != nil {
			return err
		}
		data, err := json.MarshalIndent(tokensJSON{Version: tokensVersion, Tokens: all}, "", "  ")
		if err != nil {
			return err
		}
		s.state.settled = false
		return replace(filepath.Join(s.dir, tokensFile), append(data, '\n'))
	})
}
