package history

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// ErrPerhaps is for a manifest that could not be written, and may be there all the same
// after a crash.
var ErrPerhaps = errors.New("the checkpoint may be there all the same")

// ErrDamaged is for a manifest that is not what was written.
var ErrDamaged = errors.New("the checkpoint is damaged")

// Line is one session's checkpoints: files in a folder of their own, whose
// names are their numbers, and end in ".kept" where they have a label. It is for
// one goroutine at a time of the process that has the session.
type Line struct {
	dir      string
	files    blob.Files
	numbers  []int64        // of what is there, in order
	labelled map[int64]bool // which of them have a label
	last     int64          // the highest number that was ever seen
	rest     []string       // what interrupted writes had left when it was opened
}

const keptSuffix = ".kept"

// Open finds what a folder holds, which need not exist. Nothing is read.
func Open(dir string, files blob.Files) (*Line, error) {
	l := &Line{dir: dir, files: files, labelled: map[int64]bool{}}
	names, err := files.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the checkpoints: %w", err)
	}
	for _, e := range names {
		digits, labelled := strings.CutSuffix(e.Name(), keptSuffix)
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != digits {
			if strings.HasPrefix(e.Name(), blob.TempPrefix) {
				l.rest = append(l.rest, e.Name())
			}
			continue
		}
		l.numbers = append(l.numbers, n)
		if labelled {
			l.labelled[n] = true
		}
	}
	slices.Sort(l.numbers)
	if len(l.numbers) > 0 {
		l.last = l.numbers[len(l.numbers)-1]
	}
	return l, nil
}

// Labelled tells whether a checkpoint has a label, and so stays.
func (l *Line) Labelled(number int64) bool { return l.labelled[number] }

// Labels is how many have one.
func (l *Line) Labels() int { return len(l.labelled) }

// Len is how many there are.
func (l *Line) Len() int { return len(l.numbers) }

// Steps is how many there are to go back to, where the session is at head; nil: it
// is not known where. A head that repeats another is no further one.
func (l *Line) Steps(head *Manifest) int64 {
	n := int64(len(l.numbers))
	if head != nil && head.Of != head.Number {
		n--
	}
	return n
}

// Numbers gives the numbers of what is there, in order.
func (l *Line) Numbers() []int64 { return slices.Clone(l.numbers) }

// Next is the number of the next one.
func (l *Line) Next() int64 { return l.last + 1 }

// Get reads one; a fault.NotFound says that it is not there.
func (l *Line) Get(number int64) (*Manifest, error) {
	if _, ok := slices.BinarySearch(l.numbers, number); !ok {
		return nil, fault.New(fault.NotFound, "there is no checkpoint %d", number).WithHint("list the checkpoints; old ones without a label are given up")
	}
	m, err := read(l.path(number), l.files)
	if err == nil && m.Number != number {
		return nil, fmt.Errorf("reading the checkpoint %d: %w: it is number %d", number, ErrDamaged, m.Number)
	}
	return m, err
}

func (l *Line) path(number int64) string {
	name := strconv.FormatInt(number, 10)
	if l.labelled[number] {
		name += keptSuffix
	}
	return filepath.Join(l.dir, name)
}

func read(path string, files blob.Files) (*Manifest, error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a checkpoint: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading a checkpoint: %w", err)
	}
	m, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoint %s: %w", filepath.Base(path), err)
	}
	m.Bytes += int64(len(data))
	return m, nil
}

// Head is the last one that is whole and that usable agrees with; nil: none.
// skipped are those after it, and why nil was not the answer to them.
func (l *Line) Head(usable func(*Manifest) error) (head *Manifest, skipped error, err error) {
	for _, n := range slices.Backward(l.numbers) {
		m, err := l.Get(n)
		if err == nil {
			err = usable(m)
		}
		switch {
		case err == nil:
			return m, skipped, nil
		case errors.Is(err, ErrDamaged), errors.Is(err, blob.ErrMissing), errors.Is(err, blob.ErrDamaged):
			skipped = errors.Join(skipped, fmt.Errorf("checkpoint %d: %w", n, err))
		default:
			return nil, nil, err // it may be there: the disk or an older paddock says no
		}
	}
	return nil, skipped, nil
}

// Append writes the next one, whose number it sets, and Of where that is zero.
// When it returns it is on the disk; after an error it is not there, and its
// number is not used again once it may have been; where the disk does not even say that
// it is gone, the error is an [ErrPerhaps]. It is written by commit, with what it names;
// nil: by [blob.Commit], alone. The manifests called dropped are removed with it.
func (l *Line) Append(m *Manifest, dropped []int64, commit func(...blob.Write) error) error {
	m.Version, m.Number = Version, l.Next()
	m.Of = cmp.Or(m.Of, m.Number)
	data, err := encode(m)
	if err != nil {
		return err
	}
	if commit == nil {
		commit = func(writes ...blob.Write) error { return blob.Commit(l.files, writes) }
	}
	var writes []blob.Write
	for _, n := range dropped {
		writes = append(writes, blob.Write{Name: l.path(n), Remove: true})
	}
	if m.Label != "" {
		l.labelled[m.Number] = true
	}
	writes = append(writes, blob.Write{Name: l.path(m.Number), Data: data, Deferred: true})
	if err := commit(writes...); err != nil {
		if errors.Is(err, blob.ErrNamed) {
			l.last = m.Number // where it cannot be removed either, a later one is right
			if blob.Withdraw(l.files, l.path(m.Number)) != nil {
				err = errors.Join(err, ErrPerhaps)
			}
		}
		delete(l.labelled, m.Number)
		return fmt.Errorf("writing a checkpoint: %w", err)
	}
	m.Bytes += int64(len(data))
	l.last = m.Number
	l.numbers = append(l.numbers, m.Number)
	for _, n := range dropped {
		l.dropped(n)
	}
	return nil
}

// dropped notes that a manifest is not there any more.
func (l *Line) dropped(number int64) {
	delete(l.labelled, number)
	l.numbers = slices.DeleteFunc(l.numbers, func(n int64) bool { return n == number })
}

// Sweep removes what interrupted writes had left when the line was opened. It is for
// the process that has the session: of any other's it might be under way.
func (l *Line) Sweep() error {
	var errs []error
	for _, name := range l.rest {
		if err := l.files.Remove(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	l.rest = nil
	return errors.Join(errs...)
}

// Remove deletes some. What is gone already is no error.
func (l *Line) Remove(numbers ...int64) error {
	var errs []error
	for _, n := range numbers {
		if err := l.files.Remove(l.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		l.dropped(n)
	}
	return errors.Join(errs...)
}

// RemoveAll deletes a session's folder of checkpoints. The newest goes last, so
// that what is interrupted leaves a line that can be read.
func RemoveAll(dir string, files blob.Files) error {
	l, err := Open(dir, files)
	if err != nil {
		return err
	}
	if err := l.Remove(l.Numbers()...); err != nil {
		return err
	}
	return os.RemoveAll(dir) // with what an interrupted write left
}

// SyncAll makes what was removed below an owner's folder of checkpoints stay so
// after a power cut.
func SyncAll(dir string, files blob.Files) error {
	sessions, err := files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) { // also the names of what was in it
		err = nil
	}
	for _, session := range sessions {
		if err == nil && session.IsDir() {
			if err = files.SyncDir(filepath.Join(dir, session.Name())); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
	}
	if err == nil {
		if err = files.SyncDir(dir); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// Each calls visit with every manifest below an owner's folder of checkpoints
// (one folder for each session), and tells which is its session's newest. A
// damaged one is left out, as nothing can be restored from it, but for a newest
// one: what comes after it may need what it names. That, and any other error, such
// as a disk that does not answer, ends it.
func Each(dir string, files blob.Files, visit func(m *Manifest, newest bool) error) error {
	sessions, err := files.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the sessions with checkpoints: %w", err)
	}
	for _, session := range sessions {
		if !session.IsDir() {
			continue
		}
		l, err := Open(filepath.Join(dir, session.Name()), files)
		if err != nil {
			return err
		}
		for _, n := range l.numbers {
			newest := n == l.last
			m, err := l.Get(n)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) && !newest {
				continue
			}
			if err == nil {
				err = visit(m, newest)
			}
			if err != nil {
				return fmt.Errorf("session %s: %w", session.Name(), err)
			}
		}
	}
	return nil
}
