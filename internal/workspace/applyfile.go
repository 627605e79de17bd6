package workspace

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// link makes a link. Where it leads to is not looked at.
func (a *apply) link(s *place, w *entry) error {
	target, now := "", time.Now()
	if s.info != nil && s.info.Mode()&fs.ModeSymlink != 0 {
		target, _ = s.dir.Readlink(s.name) // it may be something else now
	}
	if target != w.target {
		temp := tempPrefix + rand.Text()
		err := s.dir.Symlink(w.target, temp)
		if err == nil {
			err = a.give(s.dir, temp)
		}
		if err == nil {
			err = a.replace(s, temp)
		}
		if err != nil {
			_ = s.dir.Remove(temp) // it may not be there
			return s.explain(err)
		}
	}
	a.sum = add(a.sum, weight(s.info))
	e := entry{name: w.name, kind: isLink, target: w.target, stamp: stampOf(s.info)}
	e.racy = racy(e.stamp, now)
	a.add(e)
	return nil
}

// replace puts what was made under the name temp in its place.
func (a *apply) replace(s *place, temp string) error {
	made, err := s.dir.Lstat(temp)
	if err != nil {
		return err
	}
	if s.info != nil && (s.info.IsDir() || s.info.Mode().IsRegular() && !made.Mode().IsRegular()) {
		if err := a.remove(s); err != nil {
			return err
		}
	}
	if err := s.dir.Rename(temp, s.name); err != nil {
		return err
	}
	s.info, err = s.dir.Lstat(s.name) // with another time of change
	return err
}

// file makes a file. n is what is known of it; nil: nothing.
func (a *apply) file(s *place, w, n *entry) error {
	there := s.info != nil && s.info.Mode().IsRegular()
	e := entry{name: w.name, mode: w.mode, ref: w.ref, unknown: w.unknown}
	now := time.Now()
	switch {
	case w.unknown && !there:
		return a.remove(s)
	case w.unknown:
		e.mode = s.info.Mode().Perm()
	case there && a.holds(s, w, n):
		if err := a.retouch(s, w); err != nil {
			return err
		}
	default:
		if err := a.write(s, w); err != nil {
			return err
		}
		change := Added
		if there {
			change = Modified
		}
		a.diff.add(s.path(), change, w.ref.Size)
	}
	e.stamp = stampOf(s.info)
	e.racy = racy(e.stamp, now)
	a.sum = add(a.sum, weight(s.info))
	a.add(e)
	return nil
}

// holds tells whether the content of a file is the wanted one.
func (a *apply) holds(s *place, w, n *entry) bool {
	if n != nil && n.kind == isFile && !n.racy && !n.unknown && n.stamp == stampOf(s.info) {
		return n.ref.Digest == w.ref.Digest
	}
	if s.info.Size() != w.ref.Size {
		return false
	}
	f, err := openFile(s.dir, s.name, s.info)
	if err != nil {
		return false // it is written again
	}
	defer f.Close()
	digest, err := a.digest(f)
	return err == nil && digest == w.ref.Digest
}

// retouch gives a file whose content is right its mode and its time. One that
// has other names is written again: they would get them too.
func (a *apply) retouch(s *place, w *entry) error {
	mode, modified := s.info.Mode().Perm() != w.mode, s.info.ModTime().UnixNano() != w.stamp.modified
	if !mode && !modified {
		return nil
	}
	if mode {
		a.diff.add(s.path(), Modified, w.ref.Size)
	}
	if namesOf(s.info) > 1 {
		return a.write(s, w)
	}
	var err error
	if modified {
		err = s.dir.Chtimes(s.name, time.Time{}, time.Unix(0, w.stamp.modified))
	}
	if err == nil && mode {
		err = s.dir.Chmod(s.name, w.mode)
	}
	if err == nil {
		s.info, err = s.dir.Lstat(s.name)
	}
	return s.explain(err)
}

// write writes a file beside the one that is there, and puts it in its place
// when its content is right.
func (a *apply) write(s *place, w *entry) error {
	src, err := a.open(w.ref)
	if err != nil {
		return fmt.Errorf("bringing back %s: %w", s.path(), err)
	}
	defer src.Close()
	temp := tempPrefix + rand.Text()
	f, err := s.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s.explain(err)
	}
	err = a.fill(f, s, src, w)
	if closeErr := f.Close(); err == nil {
		err = s.explain(closeErr)
	}
	if err == nil {
		err = s.explain(s.dir.Chtimes(temp, time.Time{}, time.Unix(0, w.stamp.modified)))
	}
	if err == nil {
		err = s.explain(a.replace(s, temp))
	}
	if err != nil {
		_ = s.dir.Remove(temp) // it may not be there
	}
	return err
}

// fill writes a content, if it is the right one, and gives the file its owner
// and mode.
func (a *apply) fill(f *os.File, s *place, src io.Reader, w *entry) error {
	if a.piece == nil {
		a.piece = make([]byte, pieceBytes)
	}
	h := sha256.New()
	from := &source{r: io.LimitReader(src, w.ref.Size+1)} // one byte more, to see the end
	n, err := io.CopyBuffer(io.MultiWriter(f, h), from, a.piece)
	switch {
	case errors.Is(from.err, blob.ErrDamaged) || from.err == nil && err == nil && (n != w.ref.Size || blob.Digest(h.Sum(nil)) != w.ref.Digest):
		return fault.New(fault.Internal, "what was kept of %s is damaged", s.path()).
			WithHint("go back to another checkpoint, and look after the disk").WithCause(errors.Join(blob.ErrDamaged, from.err))
	case from.err != nil:
		return fmt.Errorf("bringing back %s: %w", s.path(), from.err)
	case err != nil:
		return s.explain(err)
	}
	if a.tree.options.UID != 0 {
		if err := f.Chown(a.tree.options.UID, a.tree.options.GID); err != nil {
			return s.explain(err)
		}
	}
	return s.explain(f.Chmod(w.mode))
}
