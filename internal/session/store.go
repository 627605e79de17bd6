package session

import (
	"context"
	"iter"
	"time"

	"paddock/internal/history"
	"paddock/internal/sessionstore"
)

// sessionStore keeps sessions where other processes find them too: their records, which
// of them a process has, their index, and what is left of them to collect. What it
// promises stands at the methods of [sessionstore.Store], which keeps them in a folder of
// this machine. Nothing here names a folder or a file, so that several machines can share
// a store; what a session needs of this machine's state folder is in Manager.local.
type sessionStore interface {
	// Create, Open and Claim take a session that this process alone has then.
	Create(sessionstore.Key) (sessionstore.Claim, error)
	Open(sessionstore.Key) (sessionstore.Claim, sessionstore.Record, error)
	Claim(sessionstore.Key) (sessionstore.Claim, error)
	Held(sessionstore.Key) bool

	// Read, Records, Owners, IDs, Newest and EachCheckpoint read what any process may have.
	Read(sessionstore.Key) (sessionstore.Record, error)
	Records(owner string) ([]sessionstore.Record, error)
	Owners() ([]string, error)
	IDs(owner string) ([]string, error)
	Newest(sessionstore.Key) (*history.Manifest, error)
	EachCheckpoint(visit func(*history.Manifest)) error

	// Index has lists show a session as it is now.
	Index(sessionstore.Row)

	// BeginGroup and CommitGroup make sessions exist together or not at all.
	BeginGroup(owner, group string) (end func(), err error)
	CommitGroup(owner, group string) error

	// Expired, Places, PlaceOf, RemoveOrphans and RemoveContents are for collecting.
	Expired(ctx context.Context, now time.Time, search bool) iter.Seq[sessionstore.Key]
	Places() []sessionstore.Place
	PlaceOf(owner string) sessionstore.Place
	RemoveOrphans(sessionstore.Place) (checkpoints int, err error)
	RemoveContents(context.Context, sessionstore.Place) (n int, bytes int64, more bool, err error)

	Close() error
}

var _ sessionStore = (*sessionstore.Store)(nil)

// stored is the store's name of a session.
func (k key) stored() sessionstore.Key {
	return sessionstore.Key{Owner: string(k.owner), ID: string(k.id)}
}

func keyOf(k sessionstore.Key) key { return key{Owner(k.Owner), ID(k.ID)} }

func (id ID) check() error { return sessionstore.CheckID(string(id)) }

// errNotFound says the same whether a session never was, is gone, or belongs to another
// owner.
func errNotFound(id ID) error { return sessionstore.NotFound(string(id)) }

func errExists(id ID) error { return sessionstore.Exists(string(id)) }

// unusable makes a fault of an error of the disk.
func unusable(err error) error { return sessionstore.Unusable(err) }
