// Package checkpoint keeps on disk what a session is, and brings it back: its files,
// what its interpreters hold and, where that was saved, its machine.
//
// A [Kept] joins a session's line of checkpoints (history), the contents that they
// name (blob) and the folders that its programs see (workspace). It knows where in
// the line the session is, its head, and of the session itself only what its Config
// gives it. Whatever changes it is a draft: that begins as the head is, takes up what
// is different or makes the folders different, and becomes the head when its manifest
// is on the disk.
//
// What holds:
//
//   - A checkpoint is there when all that it names is; nothing of a draft is before.
//   - After an error the head is what it was. Folders that were being changed are
//     brought back; where that fails they are torn, and mended before anything is kept.
//   - Of a draft that takes nothing different up there is no checkpoint.
//   - A checkpoint of another session, whoever put it there, is as good as damaged.
//
// That nothing runs in an interpreter, and that files and interpreters are of one
// moment, is the caller's to see to.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// MaxListing bounds a list of files, in bytes: some hundred thousand of usual names.
const MaxListing = 64 << 20

// MaxLayers is how many layers an interpreter's state is read from: with more, it is
// written whole. Also when what changed takes more than twice of it.
const MaxLayers = 48

// Config says what a Kept is of. What it is told through its functions happens within
// the call that caused it.
type Config struct {
	Owner, Session string // whose checkpoints they are
	// Store has the contents, Folder the checkpoints, Files what is done to files of
	// theirs.
	Store  *blob.Store
	Folder string
	Files  blob.Files
	// Trees are the session's folders, by their names in checkpoints; Shown names the
	// one whose changes are told. They may be missing where checkpoints are only read.
	Trees map[string]*workspace.Tree
	Shown string
	// Ephemeral says that nothing is kept: the head stays where there is none.
	Ephemeral bool
	// Most is how many checkpoints without a label there are at most.
	Most int
	// Record gives what a checkpoint says of the session.
	Record func() ([]byte, error)
	// Moved is told that there is a new head.
	Moved func()
	// Undone is told that going elsewhere failed when the files were different
	// already: they are the head's again, or torn, and what was newer is gone.
	Undone func(ctx context.Context)
	// Littered is told of what was given up: contents may not be needed any more.
	// bytes is what a saved machine has of them on disk; zero: there was none.
	Littered func(bytes int64)
	Log      *slog.Logger // names the session
	// Commit makes a checkpoint last, and calls Local once; after an error the checkpoint is
	// not there, and what it adds is in the next one again. Nil: Local alone does.
	Commit func(context.Context, Committing) error
}

// Repo is what of a session is on disk. It is for one goroutine at a time.
type Repo struct {
	c     Config
	line  *history.Line
	head  *history.Manifest             // where the session is; nil: nothing is kept yet
	lists map[string]*workspace.Listing // what the trees were at head, and how their files looked
	// closed is why nothing is written any more; nil: it is.
	closed error
	// torn says that the files are neither what head says nor anything else that
	// was, as going elsewhere failed in the middle, and so did coming back.
	torn bool
	// mended says that they were brought back since.
	mended bool
	// missing is what the checkpoint did not hold that was gone to last.
	missing workspace.Unkept
	// older says that there were checkpoints after the head that was opened.
	older bool
}

// Open finds what there is. It reads no checkpoint: [Kept.OpenHead] or [Kept.Look] go
// to one, where it is not a new session's.
func Open(c Config) (*Repo, error) {
	line, err := history.Open(c.Folder, c.Files)
	return &Repo{c: c, line: line}, err
}

// OpenHead goes to the newest checkpoint that can be used; last is the newest that is
// known of, zero: none is. skipped is why it is not the newest of all, and unlisted
// tells that a list of files is as good as none: then the files are what they are.
func (r *Repo) OpenHead(last int64) (skipped error, unlisted bool, err error) {
	head, skipped, err := r.line.Head(r.usable)
	if err != nil {
		return nil, false, err
	}
	if skipped == nil && (head == nil && last > 0 || head != nil && last > head.Number) {
		skipped = fmt.Errorf("checkpoint %d: %w: it is not there", last, history.ErrDamaged)
	}
	if skipped != nil {
		r.c.Log.Error("a session's newest checkpoint is damaged", "cause", skipped)
	}
	r.head, r.lists, r.older = head, map[string]*workspace.Listing{}, skipped != nil
	if head == nil {
		return skipped, false, nil
	}
	for name, ref := range head.Trees {
		list, err := ReadListing(r.c.Store, ref)
		switch {
		case errors.Is(err, blob.ErrDamaged) || errors.Is(err, history.ErrDamaged):
			r.c.Log.Error("a list of files is damaged", "cause", err)
			unlisted = true
		case err != nil:
			return skipped, unlisted, err
		default:
			r.lists[name] = list
		}
	}
	return skipped, unlisted, nil
}

// Check goes to the newest checkpoint that can be used, for who only reads: nothing is
// known of the files then.
func (r *Repo) Check() (err error) {
	r.head, _, err = r.line.Head(r.usable)
	return err
}

// Head is where the session is; its number is zero where nothing is kept yet. It is
// not to be changed, and does not change.
func (r *Repo) Head() *history.Manifest {
	if r.head == nil {
		return new(history.Manifest)
	}
	return r.head
}

// Unsaved is what the head does not hold of the files; see [workspace.Listing.Unkept].
func (r *Repo) Unsaved() (u workspace.Unkept) {
	for name, list := range r.lists {
		u = both(u, name, list.Unkept())
	}
	return u
}

// Missing is what the checkpoint did not hold that the files were made of last, by
// Begin or RestoreTo.
func (r *Repo) Missing() workspace.Unkept { return r.missing }

// both is what two have together; the other's lies in a folder.
func both(u workspace.Unkept, folder string, other workspace.Unkept) workspace.Unkept {
	if u.Count += other.Count; u.First == "" && other.Count > 0 {
		u.First = folder + "/" + other.First
	}
	return u
}

// Resume gives what an interpreter is to begin with; nil: it begins afresh.
func (k *Repo) Resume(runtime string) *sandbox.Resume {
	in, ok := k.Head().Interpreters[runtime]
	if !ok {
		return nil
	}
	r := &sandbox.Resume{State: in.State, Reseed: in.Anew}
	for _, ref := range in.Layers {
		r.Layers = append(r.Layers, k.opener(ref))
	}
	return r
}

// Machine gives what the session's machine is to begin as; nil: it begins afresh.
func (r *Repo) Machine() *sandbox.MachineState {
	m := r.Head().Machine
	if m == nil {
		return nil
	}
	return &sandbox.MachineState{State: m.State, Reseed: m.Anew, Open: r.opener(m.Content)}
}

func (r *Repo) opener(ref blob.Ref) func() (io.ReadCloser, error) {
	store := r.c.Store
	return func() (io.ReadCloser, error) { return store.Open(ref) }
}

// adopt makes an error of another session's checkpoint.
func (r *Repo) adopt(m *history.Manifest) error {
	if m.Owner != r.c.Owner || m.Session != r.c.Session {
		return fmt.Errorf("%w: it is another session's", history.ErrDamaged)
	}
	return nil
}

// usable tells whether a checkpoint is the session's, and all that it needs there.
func (r *Repo) usable(m *history.Manifest) error {
	if err := r.adopt(m); err != nil {
		return err
	}
	return r.c.Store.Check(slices.Collect(m.Needs()))
}

// RestoreFiles makes the files what they are at head, as far as they look otherwise than
// they did then. Where that fails they are torn.
func (r *Repo) RestoreFiles() error {
	err := r.restore(true)
	if err != nil {
		r.torn = true
	}
	return err
}

// restore makes the files what they are at head; untorn: what looks as it
// did then is what it was then.
func (r *Repo) restore(untorn bool) error {
	for name, tree := range r.c.Trees {
		want := r.lists[name]
		if want == nil {
			continue // what it was cannot be read: nil would be an empty tree's
		}
		var known *workspace.Listing
		if untorn {
			known = want
		}
		list, _, err := tree.Apply(want, known, r.c.Store.Open)
		if err != nil {
			return err
		}
		r.lists[name] = list
	}
	return nil
}

// RepairFiles brings files back to the head that a failure left torn.
func (r *Repo) RepairFiles() error {
	if !r.torn {
		return nil
	}
	if err := r.restore(false); err != nil {
		return fault.New(fault.Unavailable, "the session's files are not whole since a restore failed, and cannot be brought back now").
			WithHint("try again; restore another checkpoint if it stays so; the server's log says more").WithCause(err)
	}
	r.torn, r.mended = false, true
	return nil
}

// NeedsRepair tells, once, that torn files were brought back: what a live interpreter has
// open may be what lay there before.
func (r *Repo) NeedsRepair() bool {
	was := r.mended
	r.mended = false
	return was
}

// Close has nothing written any more: what would write is told why. It tells whether
// the files are whole.
func (r *Repo) Close(why error) (whole bool) {
	r.closed = why
	return !r.torn
}

// ReadListing reads a list of files; that of the zero Ref is empty.
func ReadListing(store *blob.Store, ref blob.Ref) (*workspace.Listing, error) {
	list := new(workspace.Listing)
	if ref == (blob.Ref{}) {
		return list, nil
	}
	data, err := store.Load(ref, MaxListing)
	if err != nil {
		return nil, fmt.Errorf("reading a list of files: %w", err)
	}
	if err := list.UnmarshalBinary(data); err != nil {
		return nil, fmt.Errorf("reading a list of files: %w: %w", history.ErrDamaged, err)
	}
	return list, nil
}
