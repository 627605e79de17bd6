// Package table keeps small documents by their names, each with a revision: what
// processes, or the machines of a cluster, have to agree on.
//
// A [Folder] is a table in a folder of this machine, with each document a file. Package
// natstable has the table of a cluster. A store that uses a table reads a document, and
// writes it only if it still has the revision that was read; [Alone] has it do so again
// where another was faster. A Folder is changed under a lock instead, so that nothing is
// done twice there.
package table

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"time"
)

// Revision names what a document was when it was read or written. Revisions of one
// document can be compared for equality, and nothing else.
type Revision uint64

const (
	// None is the revision of a document that is not there.
	None Revision = 0
	// Any is whatever revision a document has, None included.
	Any Revision = 1<<64 - 1
)

// ErrChanged says that a document does not have the revision that was expected. Nothing
// was written.
var ErrChanged = errors.New("table: the document has changed")

// Document is what a table has under a name.
type Document struct {
	// Data are its bytes; nil where they are those of the revision that the caller knows.
	// It is not to be changed.
	Data     []byte
	Revision Revision
	// Written is when it was written last, by the clock of who keeps it; zero where Data
	// is left out.
	Written time.Time
}

// Table keeps documents. Names are slash-separated, as [Check] has them. Its methods may be
// called from any number of goroutines and processes.
type Table interface {
	// Get gives a document as it is now. Where it still has the revision known, its data
	// may be nil; None asks for the data in any case. A document that is not there is an
	// fs.ErrNotExist.
	Get(ctx context.Context, name string, known Revision) (Document, error)
	// Put makes data the document of that name, whole or not at all, where it has the
	// revision was: None makes a new one, Any replaces what there is. Otherwise the error
	// is ErrChanged. After another error it is not known whether it was written.
	Put(ctx context.Context, name string, data []byte, was Revision) (Revision, error)
	// Delete removes a document that has the revision was, or with Any whatever it has. A
	// document that is not there is an fs.ErrNotExist.
	Delete(ctx context.Context, name string, was Revision) error
	// Names gives the documents below a folder, sorted; "" is the whole table. A folder
	// that is not there has none.
	Names(ctx context.Context, folder string) ([]string, error)
	// Watch calls told for each document below a folder that is there, and then, until ctx
	// ends, for each that is put or deleted here or elsewhere; once for several changes,
	// or more often than it changes. What it is then, Get says. told is called by one
	// goroutine. The error is ctx's cause, or why there is nothing to watch any more.
	Watch(ctx context.Context, folder string, told func(name string)) error
}

// Holder is a [Table] that can be had alone, such as a [Folder].
type Holder interface {
	Table
	// Alone calls do while no other has what the name's lock is for. What do does to the
	// table goes through the context that it is given.
	Alone(ctx context.Context, name string, do func(context.Context) error) error
}

var _ Holder = (*Folder)(nil)

// Check reports whether a name can be a document's: slash-separated words, none of which
// is "." or "..", and no backslash or colon, which some systems take for separators.
func Check(name string) error {
	if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\:\x00") {
		return &fs.PathError{Op: "name", Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

// Below reports whether a document is in a folder, or in one in it.
func Below(folder, name string) bool {
	return folder == "" || strings.HasPrefix(name, folder+"/")
}

// Alone has do change documents of a table: those that it reads and writes are of one
// moment. A [Holder] calls it once, under the lock of name. Elsewhere it is called again
// where it gave ErrChanged, and so begins by reading; it writes one document by its
// revision, the last one of those that it writes. It is given up when ctx ends.
func Alone(ctx context.Context, t Table, name string, do func(context.Context) error) error {
	if h, ok := t.(Holder); ok {
		return h.Alone(ctx, name, do)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := do(ctx)
		if !errors.Is(err, ErrChanged) {
			return err
		}
		timer := time.NewTimer(rand.N(pause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// Make makes a folder of a table that needs one for its locks: a [Folder]. Others need none.
func Make(t Table, folder string) error {
	if f, ok := t.(*Folder); ok {
		return f.Make(folder)
	}
	return nil
}

// In gives the part of a table below a folder as a table.
func In(t Table, folder string) Table { return part{t, folder} }

type part struct {
	whole  Table
	folder string
}

func (p part) at(name string) string { return path.Join(p.folder, name) }

func (p part) Get(ctx context.Context, name string, known Revision) (Document, error) {
	if err := Check(name); err != nil {
		return Document{}, err
	}
	return p.whole.Get(ctx, p.at(name), known)
}

func (p part) Put(ctx context.Context, name string, data []byte, was Revision) (Revision, error) {
	if err := Check(name); err != nil {
		return None, err
	}
	return p.whole.Put(ctx, p.at(name), data, was)
}

func (p part) Delete(ctx context.Context, name string, was Revision) error {
	if err := Check(name); err != nil {
		return err
	}
	return p.whole.Delete(ctx, p.at(name), was)
}

func (p part) Names(ctx context.Context, folder string) ([]string, error) {
	all, err := p.whole.Names(ctx, p.at(folder))
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], p.folder+"/")
	}
	return all, err
}

func (p part) Watch(ctx context.Context, folder string, told func(string)) error {
	return p.whole.Watch(ctx, p.at(folder), func(name string) { told(strings.TrimPrefix(name, p.folder+"/")) })
}
