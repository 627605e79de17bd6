package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// What a checkpoint was made after.
const (
	causeCreate  = "create"
	causeExecute = "execute"
	causeFiles   = "files"
	causeReset   = "reset"
	causeAsked   = "checkpoint"
	causeFork    = "fork"
	causeImport  = "import"
	causeRecover = "recover"
	causeRestore = "restore"
	causeSleep   = "sleep"
	causeIdle    = "idle"
)

// kept is what of a session is on disk: its line of checkpoints, the contents
// that they name, and where the session is in it. Of the session it knows what
// it is given, and what changes it is a draft. It belongs to whoever holds
// session.keeping.
type kept struct {
	// Given when it is opened:
	key
	trees  map[string]*workspace.Tree  // the session's folders, by their names in checkpoints
	record func() ([]byte, error)      // what a checkpoint says of the session
	moved  func(was *history.Manifest) // told of a new head, and the one before it
	log    *slog.Logger                // names the session

	blobs *blob.Store
	line  *history.Line
	head  *history.Manifest             // where the session is; nil: nothing is kept yet
	lists map[string]*workspace.Listing // what the trees were at head, and how their files looked
	// unsure are the runtimes whose live interpreter is not what head says,
	// because keeping it failed.
	unsure map[string]bool
	// apart are the runtimes whose live interpreter wrote something that is not in
	// the line: what it writes next has to be whole.
	apart  map[string]bool
	failed error // why; nil: all is kept
	// closed says that the session is let go of: nothing is written any more.
	closed bool
	// torn says that the files are neither what head says nor anything else that
	// was, as a restore failed in the middle, and so did taking it back.
	torn bool
	// mended says that they were brought back since: what a live interpreter has
	// open may be what lay there before.
	mended bool
}

// open finds what there is in the store and in the folder of the checkpoints.
func (k *kept) open(store *blob.Store, folder string, files blob.Files) (err error) {
	k.blobs, k.unsure, k.apart = store, map[string]bool{}, map[string]bool{}
	k.line, err = history.Open(folder, files)
	return err
}

// openHead goes to the newest checkpoint that can be used; last is the newest
// that is known of, zero: none is. skipped is why it is not the newest of all, and
// damaged tells that a list of files is as good as none: then the files are what
// they are.
func (k *kept) openHead(last int64) (skipped error, damaged bool, err error) {
	head, skipped, err := k.line.Head(k.usable)
	if err != nil {
		return nil, false, err
	}
	if skipped == nil && (head == nil && last > 0 || head != nil && last > head.Number) {
		skipped = fmt.Errorf("checkpoint %d: %w: it is not there", last, history.ErrDamaged)
	}
	if skipped != nil {
		k.log.Error("a session's newest checkpoint is damaged", "cause", skipped)
	}
	k.head, k.lists = head, map[string]*workspace.Listing{}
	if head == nil {
		return skipped, false, nil
	}
	for name, ref := range head.Trees {
		list, err := k.listing(ref)
		switch {
		case errors.Is(err, blob.ErrDamaged) || errors.Is(err, history.ErrDamaged):
			k.log.Error("a list of files is damaged", "cause", err)
			damaged = true
		case err != nil:
			return skipped, damaged, err
		default:
			k.lists[name] = list
		}
	}
	return skipped, damaged, nil
}

// note is what a checkpoint says of the call that it was made after.
type note struct {
	cause, label              string
	execution, language, code string
	always                    bool // also when nothing changed
	// moved says that the session's machine is not what it was at head any more, and
	// save saves what it is; nil: it is not saved.
	moved bool
	save  saveMachine
	// resting says that this is the session at rest, and no step of its.
	resting bool
}

// keep makes a checkpoint of the files and of these live interpreters, by their
// runtimes; nil stands for one that is gone. Where nothing changed there is
// none. After an error these interpreters are unsure.
func (k *kept) keep(ctx context.Context, n note, live map[string]sandbox.Instance) (files []workspace.Change, err error) {
	defer func() {
		for runtime, in := range live {
			if err != nil {
				k.unsure[runtime] = in == nil || keeps(in) // of others head says nothing
				continue
			}
			delete(k.unsure, runtime)
			delete(k.apart, runtime)
		}
	}()
	d, err := k.draft(ctx, n.cause)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.captureWith(ctx, n); err != nil {
		return nil, err
	}
	for runtime, in := range live {
		if in != nil {
			err = d.snapshot(ctx, runtime, in)
		} else if _, there := d.next.Interpreters[runtime]; there {
			delete(d.next.Interpreters, runtime)
			d.changed = true
		}
		if err != nil {
			return d.files, err
		}
	}
	if !d.changed && !n.always {
		k.lists = d.lists
		return d.files, nil
	}
	if n.resting {
		d.rest()
	}
	d.next.Label, d.next.Execution, d.next.Language, d.next.Code = n.label, n.execution, n.language, firstLine(n.code)
	return d.files, d.persist(ctx)
}

// keepPaths makes a checkpoint of files of the workspace that were written from
// outside of programs. Interpreters and other files stay as at head.
func (k *kept) keepPaths(ctx context.Context, paths []string) error {
	d, err := k.draft(ctx, causeFiles)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.capture(paths); err != nil || !d.changed {
		return err
	}
	return d.persist(ctx)
}

// firstLine is what a list shows of a program.
func firstLine(code string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
	line = strings.TrimSpace(line)
	const most = 80
	if utf8.RuneCountInString(line) > most {
		line = string([]rune(line)[:most-1]) + "…"
	}
	return line
}

// at reads a checkpoint; one of another session is a history.ErrDamaged.
func (k *kept) at(number int64) (*history.Manifest, error) {
	m, err := k.line.Get(number)
	if err != nil {
		return nil, err
	}
	if !k.line.Labelled(number) {
		m.Label = "" // it was taken off
	}
	return m, k.own(m)
}

// own makes an error of another session's checkpoint.
func (k *kept) own(m *history.Manifest) error {
	if m.Owner != string(k.owner) || m.Session != string(k.id) {
		return fmt.Errorf("%w: it is another session's", history.ErrDamaged)
	}
	return nil
}

// usable tells whether a checkpoint is the session's, and all that it needs there.
func (k *kept) usable(m *history.Manifest) error {
	if err := k.own(m); err != nil {
		return err
	}
	return k.blobs.Check(slices.Collect(m.Needs()))
}

// previous gives the checkpoint that undo leads to.
func (k *kept) previous() (*history.Manifest, error) {
	if k.head.Previous == 0 {
		return nil, fault.New(fault.Conflict, "there is nothing to undo").WithHint("the session is at its first checkpoint")
	}
	target, err := k.at(k.head.Previous)
	if fault.KindOf(err) == fault.NotFound {
		return nil, fault.New(fault.Conflict, "the checkpoint before this one is no longer kept").WithHint("restore one that is listed")
	}
	if errors.Is(err, history.ErrDamaged) {
		return nil, damaged(err)
	}
	return target, err
}

// named gives the checkpoint with this number, or the latest with this label.
func (k *kept) named(name string) (*history.Manifest, error) {
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		target, err := k.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			return nil, damaged(err)
		case err == nil && target.Of != n: // it only says that the session went back
			return nil, fault.New(fault.NotFound, "there is no checkpoint %d", n).WithHint("list the checkpoints")
		}
		return target, err
	}
	for _, n := range slices.Backward(k.line.Numbers()) {
		if !k.line.Labelled(n) {
			continue
		}
		target, err := k.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			return nil, damaged(err) // its label may be this one
		case err != nil:
			return nil, unusable(err)
		case target.Label == name:
			return target, nil
		}
	}
	return nil, fault.New(fault.NotFound, "there is no checkpoint with the label %q", name).WithHint("list the checkpoints and give the id or the label of one")
}

func damaged(err error) error {
	return fault.New(fault.Unavailable, "the checkpoint is damaged and cannot be used").WithHint("restore another one; the server's log says more").WithCause(err)
}

// state gives what an interpreter is to begin with; nil: it begins afresh.
func (k *kept) state(runtime string) *sandbox.Resume {
	if k.head == nil {
		return nil
	}
	in, ok := k.head.Interpreters[runtime]
	if !ok {
		return nil
	}
	r := &sandbox.Resume{State: in.State, Anew: in.Anew}
	for _, ref := range in.Layers {
		blobs := k.blobs
		r.Layers = append(r.Layers, func() (io.ReadCloser, error) { return blobs.Open(ref) })
	}
	return r
}

// restoreFiles makes the files what they are at head; untorn: what looks as it
// did then is what it was then.
func (k *kept) restoreFiles(untorn bool) error {
	for name, tree := range k.trees {
		want := k.lists[name]
		if want == nil {
			continue // what it was cannot be read: nil would be an empty tree's
		}
		var known *workspace.Listing
		if untorn {
			known = want
		}
		list, _, err := tree.Apply(want, known, k.blobs.Open)
		if err != nil {
			return err
		}
		k.lists[name] = list
	}
	return nil
}

// mend brings files back to the head that a failure left torn.
func (k *kept) mend() error {
	if !k.torn {
		return nil
	}
	if err := k.restoreFiles(false); err != nil {
		return fault.New(fault.Unavailable, "the session's files are not whole since a restore failed, and cannot be brought back now").
			WithHint("try again; restore another checkpoint if it stays so; the server's log says more").WithCause(err)
	}
	k.torn, k.mended = false, true
	return nil
}

// listing reads a kept one; that of the zero Ref is empty.
func (k *kept) listing(ref blob.Ref) (*workspace.Listing, error) {
	if ref == (blob.Ref{}) {
		return new(workspace.Listing), nil
	}
	return readListing(k.blobs, ref)
}

// maxListing bounds a list of files: some hundred thousand of usual names.
const maxListing = 64 << 20

func readListing(store *blob.Store, ref blob.Ref) (*workspace.Listing, error) {
	data, err := store.Load(ref, maxListing)
	if err != nil {
		return nil, fmt.Errorf("reading a list of files: %w", err)
	}
	list := new(workspace.Listing)
	if err := list.UnmarshalBinary(data); err != nil {
		return nil, fmt.Errorf("reading a list of files: %w: %w", history.ErrDamaged, err)
	}
	return list, nil
}
