// Package blob keeps contents on disk under the SHA-256 of what they hold, so
// that whatever was once synced is there whole, or said not to be.
//
// A [Store] is a folder that several processes may use at once. Writers put
// contents through a [Batch], whose lock they share, and refer to them only
// after [Batch.Sync]; [Store.Collect] keeps all of them out and removes what
// nobody refers to. A name in a store is only ever given to a file that is
// whole and synced, so neither a crash nor a power cut leaves a half one that
// somebody could take for good.
//
// Locks, in this order: the store's file lock, Batch.mu, Store.mu.
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/fault"
)

// ErrMissing is in the tree of an error about a content that the store has not.
var ErrMissing = errors.New("blob: missing")

// ErrDamaged is in the tree of an error about a content that is not what it was
// when it was put.
var ErrDamaged = errors.New("blob: damaged")

// Digest is the SHA-256 of a content. As text it is 64 lower case hex digits.
type Digest [sha256.Size]byte

// String gives the hex digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText gives the hex digits.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText reads what MarshalText gave and nothing else.
func (d *Digest) UnmarshalText(text []byte) error {
	var read Digest
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("a digest has %d hex digits, and not %d", hex.EncodedLen(len(d)), len(text))
	}
	if _, err := hex.Decode(read[:], text); err != nil {
		return fmt.Errorf("reading a digest: %w", err)
	}
	if read.String() != string(text) {
		return errors.New("a digest is in lower case")
	}
	*d = read
	return nil
}

// Ref refers to a content in a store.
type Ref struct {
	Digest Digest `json:"digest"`
	Size   int64  `json:"size"`   // of the content, in bytes
	Stored int64  `json:"stored"` // of the file that keeps it, in bytes
}

// Options of a Store.
type Options struct {
	// Files is where the store lies; nil: the operating system's.
	Files Files
	// Timeout bounds the wait for the store's lock; zero: 10 seconds.
	LockTimeout time.Duration
}

// The names in a store's folder. What lies in newFolder is being written, or
// was when a process died.
const (
	lockFile    = "lock"
	newFolder   = "new"
	changesFile = "changes"
)

const lockTimeout = 10 * time.Second

// Store is one folder of contents. It is safe for concurrent use, and holds
// nothing open by itself.
type Store struct {
	dir         string
	files       Files
	lockTimeout time.Duration

	unfinished atomic.Bool // the last collection left some

	mu     sync.Mutex
	linked [256]bool // the shards whose own names are known to be durable
	tally  tally
}

// Open gives the store in dir, and makes dir and the folders above it durably
// where they are not there; see [MakeFolder].
func Open(dir string, o Options) (*Store, error) {
	s := &Store{dir: dir, files: o.Files, lockTimeout: o.LockTimeout}
	if s.files == nil {
		s.files = OS
	}
	if s.lockTimeout <= 0 {
		s.lockTimeout = lockTimeout
	}
	if err := MakeFolder(s.files, dir); err != nil {
		return nil, err
	}
	// What is in it need not outlast a power cut, so neither need the folder.
	if err := s.files.Mkdir(filepath.Join(dir, newFolder)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, Explain(err, "making a folder for the state")
	}
	return s, nil
}

func (s *Store) shard(k byte) string {
	return filepath.Join(s.dir, hex.EncodeToString([]byte{k}))
}

func (s *Store) path(d Digest) string {
	return filepath.Join(s.shard(d[0]), hex.EncodeToString(d[1:]))
}

func missing(d Digest) error {
	return fault.New(fault.Internal, "a part of the stored state is missing").
		WithHint("go back to an earlier checkpoint").WithCause(fmt.Errorf("%w: %s", ErrMissing, d))
}

func damaged(d Digest, why string) error {
	return fault.New(fault.Internal, "a part of the stored state is damaged").
		WithHint("go back to an earlier checkpoint, and look after the disk").WithCause(fmt.Errorf("%w: %s: %s", ErrDamaged, d, why))
}

// diskBlock is what a file's size is rounded up to, as file systems do.
const diskBlock = 4 << 10

// onDisk is what a file of so many bytes takes.
func onDisk(size int64) int64 { return (size + diskBlock - 1) / diskBlock * diskBlock }
