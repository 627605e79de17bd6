package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"paddock/internal/fault"
	"paddock/internal/table"
)

const (
	tokensFile    = "tokens.json"
	tokensVersion = 1
)

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

// snapshot is the document as it was read once.
type snapshot struct {
	records  []record
	byID     map[string]int
	revision table.Revision // table.None: there was no document
}

// refreshLocked reads the document if it has changed. After an error there is
// nothing left of what it held before.
func (s *Tokens) refreshLocked(ctx context.Context) error {
	d, err := s.table.Get(ctx, tokensFile, s.state.revision)
	if err == nil && d.Revision == s.state.revision {
		return nil
	}
	s.state = snapshot{}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	records, err := decodeTokens(d.Data)
	if err != nil {
		return err
	}
	byID := map[string]int{}
	for i, r := range records {
		byID[r.ID] = i
	}
	s.state = snapshot{records: records, byID: byID, revision: d.Revision}
	return nil
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

// change replaces the tokens with what f makes of them, which is called again
// where others changed them meanwhile. An error of f leaves them as they are.
func (s *Tokens) change(timeout time.Duration, f func([]record) ([]record, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return table.Alone(ctx, s.table, tokensFile, func(ctx context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state = snapshot{} // read it again, whatever its stamp
		if err := s.refreshLocked(ctx); err != nil {
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
		_, err = s.table.Put(ctx, tokensFile, append(data, '\n'), s.state.revision)
		return err
	})
}
