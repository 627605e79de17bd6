package sessionstore

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"sync"

	"paddock/internal/blob"
	"paddock/internal/commitlog"
)

// The folders and files of a state folder.
const (
	ownersFolder      = "owners"
	checkpointsFolder = "checkpoints"
	blobsFolder       = "blobs"
	sharedFolder      = "shared"
	indexFile         = "index.db"
)

// The files in a session's folder that are the store's; all others are package session's.
// Without its record a folder is not a session: it is being made or removed.
const (
	recordFile = "session.json"
	lockFile   = "lock"
)

// localOwner is the owner whose folder is called by its own name.
const localOwner = "local"

// Local tells where this machine has the local parts of sessions. It makes none of these
// folders. It is safe for concurrent use.
type Local struct {
	dir   string
	log   *commitlog.Log
	files blob.Files // the log's

	mu    sync.Mutex // guards blobs
	blobs map[string]*blob.Store
}

func newLocal(dir string, log *commitlog.Log) *Local {
	return &Local{dir: dir, log: log, files: log.Files(), blobs: map[string]*blob.Store{}}
}

// Files are the file operations of what has to last.
func (l *Local) Files() blob.Files { return l.files }

// Seen are the contents of an owner, and the files of what has to last, as who looks at a
// session sees them that another process may have.
func (l *Local) Seen(owner string) (*blob.Store, blob.Files, error) {
	files := l.log.Shared()
	b, err := blob.Open(l.contents(owner), blob.Options{Files: files})
	if err != nil {
		return nil, nil, Unusable(err)
	}
	return b, files, nil
}

// Session is a session's folder, in which package session has its workspace.
func (l *Local) Session(k Key) string { return filepath.Join(l.ownerFolder(k.Owner), k.ID) }

// Checkpoints is the folder of a session's manifests.
func (l *Local) Checkpoints(k Key) string {
	return filepath.Join(l.place(checkpointsFolder, l.placeOf(k.Owner)), k.ID)
}

// Shared is the folder of what all sessions of an owner share.
func (l *Local) Shared(owner string) string { return l.place(sharedFolder, l.placeOf(owner)) }

// Of is a folder of the state folder that has a purpose of its own.
func (l *Local) Of(purpose string) string { return filepath.Join(l.dir, purpose) }

// Blobs returns an owner's contents. It opens them when they are first asked for.
func (l *Local) Blobs(owner string) (*blob.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.blobs[owner]; b != nil {
		return b, nil
	}
	b, err := blob.Open(l.contents(owner), blob.Options{Files: l.files})
	if err != nil {
		return nil, Unusable(err)
	}
	l.blobs[owner] = b
	return b, nil
}

// contents is the folder of an owner's contents.
func (l *Local) contents(owner string) string { return l.place(blobsFolder, l.placeOf(owner)) }

// placeOf is the name of an owner's folders.
func (l *Local) placeOf(owner string) Place {
	if owner == localOwner {
		return localOwner
	}
	sum := sha256.Sum256([]byte(owner))
	return Place(hex.EncodeToString(sum[:16]))
}

// place is an owner's folder of one kind.
func (l *Local) place(kind string, p Place) string { return filepath.Join(l.dir, kind, string(p)) }

// ownerFolder is the folder of an owner's sessions.
func (l *Local) ownerFolder(owner string) string { return l.place(ownersFolder, l.placeOf(owner)) }

// groups is the folder of the markers of an owner's groups of forks.
func (l *Local) groups(p Place) string {
	return filepath.Join(l.place(checkpointsFolder, p), ".groups")
}
