package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/table"
)

// Options set a Store up. The zero Options are those of [Open].
type Options struct {
	// TTL is how long somebody may take to decide, and how long a grant counts; zero:
	// 24 h.
	TTL time.Duration
	// Pending bounds those of one owner that wait; zero: 100.
	Pending int
	// Keep is how long one that is over is kept, and Kept bounds how many of an owner
	// are; zero: 30 days, 1000.
	Keep time.Duration
	Kept int
	// Record is told of each approval that is asked for, decided, used or withdrawn
	// here, as it will be, before it is kept: its error keeps it from being so. It is
	// called with the owner's approvals locked. Nil: nobody is told.
	Record func(context.Context, Approval) error
	// Files are the file operations; nil: the system's. Tests put faults in.
	Files blob.Files
	// Now is the clock; nil: the system's.
	Now func() time.Time
	// Log takes what an operator should see; nil: nothing is logged.
	Log *slog.Logger
}

// Store is the approvals of a state folder, or of a cluster. It is safe for concurrent use,
// also by several processes, and there is nothing to close.
type Store struct {
	dir     string // empty: they are in no folder
	table   table.Table
	options Options

	using sync.Mutex // held while this process is at the files; locks between processes are tried in steps
}

const (
	lockFile    = "lock"
	lockTimeout = 10 * time.Second
	// again is when it is tried again to watch approvals that could not be.
	again = 2 * time.Second
)

// Open gives the approvals that are kept in dir, which is made when somebody asks for
// the first one.
func Open(dir string, o Options) *Store {
	if o.Files == nil {
		o.Files = blob.OS
	}
	s := In(folderOf(dir, o.Files), o)
	s.dir = dir
	return s
}

// In gives the approvals of a table, one in a document. There a change may be recorded that
// another one, elsewhere, was faster than.
func In(t table.Table, o Options) *Store {
	o.TTL, o.Pending = cmp.Or(o.TTL, 24*time.Hour), cmp.Or(o.Pending, 100)
	o.Keep, o.Kept = cmp.Or(o.Keep, 30*24*time.Hour), cmp.Or(o.Kept, 1000)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{table: t, options: o}
}

// Request gives the approval at a call's place, and makes it where there is none.
// Where there is one for another call it is a fault.Denied: what was granted is not to
// be had for something else.
func (s *Store) Request(ctx context.Context, r Request) (made Approval, err error) {
	if r.Arguments == nil {
		r.Arguments = json.RawMessage("{}")
	}
	if err := r.check(); err != nil {
		return Approval{}, err
	}
	folder := ownerFolder(r.Owner)
	if err := table.Make(s.table, folder); err != nil {
		return Approval{}, err
	}
	err = s.locked(folder, func(held context.Context) error {
		n, err := s.find(held, folder, func(n name) bool { return n.place == r.place() })
		if err == nil {
			if made, _, err = s.read(held, n); err == nil && !made.Call.same(r.Call) {
				err = fault.New(fault.Denied, "another call was asked for at this point of the program").
					WithHint("run the program again from its beginning")
			}
			return err
		}
		if fault.KindOf(err) != fault.NotFound {
			return err
		}
		if err := s.makeRoom(held, folder); err != nil {
			return err
		}
		now := s.now()
		made = Approval{
			ID: s.newID(r.Key), Key: r.Key, Call: r.Call, Description: cut(r.Description, maxDescription), ArgumentsDigest: r.Digest(),
			State: Pending, Created: now, Expires: now.Add(s.options.TTL),
		}
		return s.put(ctx, held, made, table.None)
	})
	return made, err
}

// newID gives the ID of a place's approval. Where several may make it at once, without a
// lock, it is the same for all of them: so there is one.
func (s *Store) newID(k Key) string {
	if s.dir == "" {
		return idOf(k)
	}
	return newID()
}

// Wait gives an approval once it is not pending any more, of several the first that is
// found so, or ctx's cause when that ends before.
func (s *Store) Wait(ctx context.Context, owner string, ids ...string) (a Approval, err error) {
	watched, stop := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	for first := true; ; first = false {
		until := s.options.TTL
		for _, id := range ids {
			if a, err = s.Get(owner, id); err != nil || a.State != Pending {
				return a, err
			}
			until = min(until, max(a.Expires.Sub(s.now()), time.Millisecond))
		}
		if first {
			watching.Go(func() {
				s.watch(watched, ownerFolder(owner), func(string) {
					select {
					case changed <- struct{}{}:
					default:
					}
				})
			})
		}
		timer := time.NewTimer(until)
		select {
		case <-ctx.Done():
			timer.Stop()
			return a, context.Cause(ctx)
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// Decision is what somebody decided.
type Decision struct {
	By     string // whose ID it is
	Grant  bool
	Reason string // for the program and the record; may be empty
}

// Decide decides about a pending approval. The first decision counts: any other is a
// fault.Conflict, as it is for one that has expired or was withdrawn.
func (s *Store) Decide(ctx context.Context, owner, id string, d Decision) (Approval, error) {
	return s.alter(ctx, owner, id, func(a *Approval) error {
		if a.State != Pending {
			return alreadyOver(*a)
		}
		a.State = Denied
		if a.By, a.Decided, a.Reason = cut(d.By, maxWord), s.now(), cut(d.Reason, maxReason); d.Grant {
			a.State, a.Expires = Granted, a.Decided.Add(s.options.TTL)
		}
		return nil
	})
}

func alreadyOver(a Approval) error {
	switch a.State {
	case Expired:
		return fault.New(fault.Conflict, "the question about %s has expired without a decision", a.ID).WithHint("the program has to ask again")
	case Withdrawn:
		return fault.New(fault.Conflict, "%s is not needed any more: the program or its session has ended", a.ID)
	}
	return fault.New(fault.Conflict, "%s was decided already: it is %s", a.ID, a.State).WithHint("the first decision counts")
}

// Use uses a grant up: it may be called for exactly r's call, and once. Whatever else
// the approval is, the error says what the program should know. Nothing may be sent
// after an error.
func (s *Store) Use(ctx context.Context, id string, r Request) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx) // who gave up calls nothing
	}
	_, err := s.alter(ctx, r.Owner, id, func(a *Approval) error {
		switch {
		case a.Key != r.Key || !a.Call.same(r.Call):
			return fault.New(fault.Denied, "what was granted is another call").WithHint("run the program again from its beginning")
		case a.State != Granted:
			return a.Refusal()
		}
		a.State = Used
		return nil
	})
	return err
}

// ThroughClient is the reason in the record where the client that runs the program asked
// its user. It is nobody's words.
const ThroughClient = "asked through the client that runs the program"

// Refusal is why an approval lets no call through; nil for one that does.
func (a Approval) Refusal() error {
	called := a.Server + "." + a.Tool
	switch a.State {
	case Granted:
		return nil
	case Used:
		return fault.New(fault.Conflict, "%s was granted and used already: whether the tool was called is not known", called).
			WithHint("look at what it was to change before you call it again")
	case Denied:
		f := fault.New(fault.Denied, "a person denied the call of %s", called)
		if a.Reason != "" && a.Reason != ThroughClient {
			return f.WithHint("they say: %s", a.Reason)
		}
		return f.WithHint("do not ask for it again unless the person says so")
	case Expired:
		return fault.New(fault.Denied, "the call of %s was not allowed in time", called).WithHint("run the program again, and have a person decide: paddock approvals ls")
	case Withdrawn:
		return fault.New(fault.Denied, "the call of %s was given up before anybody allowed it", called)
	}
	return fault.New(fault.Denied, "the call of %s is not allowed yet", called).WithHint("a person decides: paddock approvals show %s", a.ID)
}

// Withdraw gives up what nobody waits for any more: the open approvals of an execution,
// or with an empty one of all of a session. It tells how many there were.
func (s *Store) Withdraw(ctx context.Context, owner, session, execution string) (n int, err error) {
	folder := ownerFolder(owner)
	err = s.locked(folder, func(held context.Context) error {
		names, err := s.names(held, folder)
		for _, at := range names {
			a, was, failed := s.read(held, at)
			if failed != nil {
				s.warn(at, failed)
				continue
			}
			if a.Session != session || execution != "" && a.Execution != execution || !a.State.Open() {
				continue
			}
			a.State = Withdrawn
			failed = s.put(ctx, held, a, was)
			if errors.Is(failed, table.ErrChanged) {
				return failed // from the beginning: those that were withdrawn are not open any more
			}
			n, err = n+1, errors.Join(err, failed)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// withdrawOne gives up one open approval; of one that is over it is a fault.Conflict.
func (s *Store) withdrawOne(ctx context.Context, owner, id string) error {
	_, err := s.alter(ctx, owner, id, func(a *Approval) error {
		if !a.State.Open() {
			return alreadyOver(*a)
		}
		a.State = Withdrawn
		return nil
	})
	return err
}

// Get gives an owner's approval. What is another owner's does not exist.
func (s *Store) Get(owner, id string) (a Approval, err error) {
	a, err = s.get(ownerFolder(owner), id)
	if err == nil && a.Owner != owner {
		return Approval{}, unknown(id)
	}
	return a, err
}

// Find gives an approval, whosesoever it is.
func (s *Store) Find(id string) (Approval, error) {
	folders, err := s.folders()
	for _, folder := range folders {
		a, missed := s.get(folder, id)
		if fault.KindOf(missed) != fault.NotFound {
			return a, missed
		}
	}
	return Approval{}, cmp.Or(err, unknown(id))
}

// List gives an owner's approvals, the oldest first, with those that are over.
func (s *Store) List(owner string) ([]Approval, error) { return s.listed(ownerFolder(owner)) }

// All gives those of all owners, the oldest first.
func (s *Store) All() (all []Approval, err error) {
	folders, err := s.folders()
	for _, folder := range folders {
		some, failed := s.listed(folder)
		all, err = append(all, some...), errors.Join(err, failed)
	}
	slices.SortStableFunc(all, earlier)
	return all, err
}

func earlier(a, b Approval) int { return a.Created.Compare(b.Created) }

// now is a moment as records have it.
func (s *Store) now() time.Time { return s.options.Now().UTC().Truncate(time.Millisecond) }
