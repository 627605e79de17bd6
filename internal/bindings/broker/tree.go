package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"paddock/internal/bindings/stub"
	"paddock/internal/blob"
	"paddock/internal/linkfarm"
)

// provided is what a session's folder was made to hold the last time.
type provided struct {
	dir  string
	what string      // packages and digests
	info os.FileInfo // of the folder then: whoever puts something into it changes its time
}

// maxProvided is how many sessions' folders are kept in mind; others are looked at again.
const maxProvided = 10_000

// Provide makes a folder hold what a session's programs find at /servers: a folder for
// each of its servers. It is cheap where nothing has changed since the last time, and
// waits for no server whose tools are known; for one that has never been listed it waits
// five seconds at most, and not again and again. A server that cannot be asked for its
// tools keeps the files that it has, or has a module that says why it cannot. Only one goroutine may provide a folder at a time;
// programs may read it meanwhile, and find a server's old files or its new ones, or none
// for an instant. After an error each server has its old files, its new ones, or none.
func (b *Broker) Provide(ctx context.Context, s Session, dir string) error {
	all := b.serversOf(s)
	names := slices.Sorted(maps.Keys(all))
	pending := make([]pendingListing, len(names))
	for i, name := range names {
		pending[i] = b.listings.lookup(all[name], false) // all of them are asked at the same time
	}
	views, whys := make([]*view, len(names)), make([]string, len(names))
	var what strings.Builder
	for i, name := range names {
		l, err := pending[i].listing, error(nil)
		if l == nil || !pending[i].deadline.IsZero() {
			l, err = b.listings.wait(ctx, pending[i]) // the cache has logged why
		}
		what.WriteString(name)
		if l != nil {
			views[i] = b.view(all[name], s.Owner, l)
			what.WriteString(" " + views[i].named())
		} else {
			whys[i] = failed(err).Error.Message
			fmt.Fprintf(&what, " %q", whys[i])
		}
		what.WriteByte('\n')
	}
	if b.hasProvided(s, dir, what.String()) {
		return nil
	}
	if err := b.arrange(ctx, s.Owner, dir, names, views, whys); err != nil {
		return err
	}
	return b.noteProvided(s, dir, what.String())
}

// Await waits for the tools of those of a session's servers that a program names and that
// have never been listed, half a minute at most. Without them it could not import a server
// in the one run that it may have.
func (b *Broker) Await(ctx context.Context, s Session, program string) {
	if program == "" {
		return
	}
	all := b.serversOf(s)
	var pending []pendingListing
	for name, one := range all {
		if names(program, name) || names(program, stub.Package(name)) {
			if a := b.listings.lookup(one, true); a.listing == nil && a.done != nil {
				a.deadline = time.Now().Add(b.listings.namedTimeout)
				pending = append(pending, a)
			}
		}
	}
	for _, a := range pending { // they are asked at the same time
		_, _ = b.listings.wait(ctx, a) // what is missing, Provide says
	}
}

// names reports whether a word stands in a text, not as a part of another one.
func names(text, word string) bool {
	inWord := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for at := 0; ; {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return false
		}
		at += i
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(word):])
		if !inWord(before) && !inWord(after) {
			return true
		}
		at += len(word)
	}
}

func (b *Broker) hasProvided(s Session, dir, what string) bool {
	b.mu.Lock()
	was, ok := b.provided[s]
	b.mu.Unlock()
	if !ok || was.dir != dir || was.what != what {
		return false
	}
	info, err := os.Stat(dir)
	return err == nil && os.SameFile(info, was.info) && info.ModTime().Equal(was.info.ModTime())
}

func (b *Broker) noteProvided(s Session, dir, what string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("looking at the servers' files: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.provided) >= maxProvided {
		clear(b.provided)
	}
	b.provided[s] = provided{dir, what, info}
	return nil
}

// arrange makes a folder hold the files of these servers, where there is a view of them,
// and no others. Where there is none, they say why.
func (b *Broker) arrange(ctx context.Context, owner, dir string, names []string, views []*view, whys []string) error {
	if err := linkfarm.MakeFolder(dir); err != nil {
		return fmt.Errorf("making the folder for the servers' files: %w", err)
	}
	wanted := map[string]bool{}
	var errs []error
	for i, name := range names {
		wanted[stub.Package(name)] = true
		var err error
		if views[i] != nil {
			err = b.place(ctx, owner, dir, views[i])
		} else {
			err = explain(dir, name, whys[i])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("writing the files of the server %q: %w", name, err))
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("looking at the servers' files: %w", err))...)
	}
	for _, entry := range there {
		if wanted[entry.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			errs = append(errs, fmt.Errorf("removing what is not a server's any more: %w", err))
		}
	}
	return errors.Join(errs...)
}

// place makes a server's folder in dir hold a view's files, where it does not.
func (b *Broker) place(ctx context.Context, owner, dir string, v *view) error {
	of := stub.Package(v.name)
	if linkfarm.MadeOf(filepath.Join(dir, of)) == v.named() {
		return nil
	}
	return linkfarm.Swap(dir, []string{of}, func(fresh string) error {
		return b.stubs.Link(ctx, v.tree(owner), filepath.Join(fresh, of))
	})
}

// unknown begins the stamps of folders that say why a server's files are not there.
const unknown = "unknown "

// explain makes a server's folder in dir hold what tells programs why its tools are not
// there, unless it has their files from before.
func explain(dir, name, why string) error {
	of := stub.Package(name)
	stamp := unknown + nameOf(stub.Version(), name, why)
	was := linkfarm.MadeOf(filepath.Join(dir, of))
	if was == stamp || was != "" && !strings.HasPrefix(was, unknown) {
		return nil
	}
	files := append(treeFiles(stub.Missing(name, why)), linkfarm.File{Path: linkfarm.Stamp, Data: []byte(stamp + "\n")})
	return linkfarm.Swap(dir, []string{of}, func(fresh string) error {
		return linkfarm.Disk{Files: blob.OS, Public: true}.Fill(filepath.Join(fresh, of), files)
	})
}
