package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
)

// grown is a line on a disk that can fail, with n checkpoints.
func grown(t *testing.T, n int) (dir string, disk *blobtest.Disk, l *Line) {
	t.Helper()
	root := t.TempDir()
	disk, err := blobtest.New(root)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, "checkpoints", "s")
	if l, err = Open(dir, disk); err != nil {
		t.Fatal(err)
	}
	for k := range n {
		if err := l.Append(&Manifest{Cause: "execute", Code: fmt.Sprint(k + 1)}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return dir, disk, l
}

// Whatever operation fails, the line goes on, and a later checkpoint is the head:
// never one that was refused.
func TestACheckpointThatWasRefusedIsNotTheHead(t *testing.T) {
	faults := map[string]func(int) func(blobtest.Op) error{
		"an error":                   func(n int) func(blobtest.Op) error { return blobtest.At(n, syscall.EIO) },
		"an error after it was done": func(n int) func(blobtest.Op) error { return blobtest.At(n, blobtest.Torn{Err: syscall.EIO}) },
		"names that cannot be synced or removed": func(n int) func(blobtest.Op) error {
			return func(op blobtest.Op) error {
				if op.N >= n && (op.Kind == "syncdir" || op.Kind == "remove") {
					return syscall.EIO
				}
				return nil
			}
		},
	}
	for name, fails := range faults {
		for n := range 8 {
			for _, last := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s at operation %d, nothing follows: %v", name, n, last), func(t *testing.T) {
					dir, disk, l := grown(t, 2)
					disk.SetFault(fails(disk.Ops() + 1 + n))
					refused := l.Append(&Manifest{Cause: "execute", Code: "refused", Label: "it has a label"}, nil, nil)
					disk.SetFault(nil)
					want := "2"
					if _, err := os.Stat(filepath.Join(dir, "3.kept")); err == nil { // it was not, or cannot be removed now
						want = "refused"
					}
					if refused == nil && want != "refused" {
						t.Error("it is not there")
					}
					if !last {
						if err := l.Append(&Manifest{Cause: "execute", Code: "later"}, nil, nil); err != nil {
							t.Fatal(err)
						}
						want = "later"
					}
					again, err := Open(dir, disk)
					if err != nil {
						t.Fatal(err)
					}
					head, skipped, err := again.Head(usable)
					switch {
					case err != nil:
						t.Errorf("the head: %v", err)
					case skipped != nil:
						t.Errorf("the head: skipped = %v, want nil: %+v, %q", skipped, head, want)
					case head.Code != want:
						t.Errorf("the head: head.Code = %v, want %v: %+v, %v", head.Code, want, head, skipped)
					}
				})
			}
		}
	}
}

// What Append acknowledged outlasts a power cut.
func TestAPowerCutLeavesTheLineThatWasAcknowledged(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir, disk, l := grown(t, 1)
		disk.SetFault(blobtest.From(disk.Ops()+1+r.IntN(40), blobtest.ErrCut))
		acknowledged := "1"
		for k := 2; ; k++ {
			if err := l.Append(&Manifest{Cause: "execute", Code: fmt.Sprint(k)}, nil, nil); err != nil {
				break
			}
			acknowledged = fmt.Sprint(k)
		}
		if err := disk.Cut(r); err != nil {
			t.Fatal(err)
		}
		again, err := Open(dir, disk)
		if err != nil {
			t.Fatal(err)
		}
		head, skipped, err := again.Head(usable)
		switch {
		case err != nil:
			t.Errorf("seed %d: the head: %v", seed, err)
		case skipped != nil:
			t.Errorf("seed %d: the head: skipped = %v, want nil: %+v, %s", seed, skipped, head, acknowledged)
		case head.Code != acknowledged && again.Len() != l.Len()+1:
			t.Errorf("seed %d: head.Code = %q, want %q, or one entry more than %d: %+v",
				seed, head.Code, acknowledged, l.Len(), head)
		}
	}
}

func TestAManifestUnderAnotherNumberIsDamaged(t *testing.T) {
	dir, disk, _ := grown(t, 3)
	data, err := os.ReadFile(filepath.Join(dir, "1"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "3"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir, disk)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := l.Get(3); !errors.Is(err, ErrDamaged) {
		t.Errorf("%+v, %v", m, err)
	}
	switch head, skipped, err := l.Head(usable); {
	case err != nil:
		t.Error(err)
	case head.Number != 2:
		t.Errorf("head.Number = %v, want 2: %+v, %v", head.Number, head, skipped)
	case !errors.Is(skipped, ErrDamaged):
		t.Errorf("error %v, want %v", skipped, ErrDamaged)
	}
}

// A checkpoint that its commit refuses never was, and its number is the next one's.
func TestACheckpointThatItsCommitRefusesNeverWas(t *testing.T) {
	for _, n := range []int{0, 2} { // the first one makes the folder as well
		dir, disk, l := grown(t, n)
		refusal := errors.New("not yet")
		refused := l.Append(&Manifest{Cause: "execute", Label: "refused"}, nil, func(...blob.Write) error { return refusal })
		if !errors.Is(refused, refusal) {
			t.Errorf("error %v, want %v", refused, refusal)
		}
		if got := l.Next(); got != int64(n+1) {
			t.Errorf("the next number is %d, want %d", got, n+1)
		}
		if got := l.Labels(); got != 0 {
			t.Errorf("there are %d labels, want none", got)
		}
		found, err := Open(dir, disk)
		if err != nil {
			t.Fatal(err)
		}
		if got := found.Len(); got != n {
			t.Errorf("there are %d checkpoints, want %d", got, n)
		}
		m := &Manifest{Cause: "execute", Code: "taken"}
		if err := l.Append(m, nil, nil); err != nil {
			t.Fatal(err)
		}
		if m.Number != int64(n+1) {
			t.Errorf("it is number %d, want %d", m.Number, n+1)
		}
		again, err := Open(dir, disk)
		if err != nil {
			t.Fatal(err)
		}
		head, skipped, err := again.Head(usable)
		if err != nil {
			t.Fatal(err)
		}
		if skipped != nil {
			t.Errorf("skipped: %v, want none", skipped)
		}
		if head.Code != "taken" {
			t.Errorf("the head is %q, want %q", head.Code, "taken")
		}
	}
}

// Whoever reads what an interrupted removal left finds the newest checkpoint, and
// nothing where it came to its end.
func TestTheNewestCheckpointIsRemovedLast(t *testing.T) {
	for n := range 5 {
		dir, disk, _ := grown(t, 4)
		removed := 0
		disk.SetFault(func(op blobtest.Op) error {
			if op.Kind != "remove" {
				return nil
			}
			if removed++; removed > n {
				return blobtest.ErrCut
			}
			return nil
		})
		if err := RemoveAll(dir, disk); (err == nil) != (n == 4) {
			t.Errorf("with %d removed it says %v", n, err)
		}
		disk.SetFault(nil)
		left, err := Open(dir, disk)
		if err != nil {
			t.Fatal(err)
		}
		if numbers := left.Numbers(); len(numbers) != 4-n || n < 4 && numbers[len(numbers)-1] != 4 {
			t.Errorf("with %d removed there are %v", n, numbers)
		}
	}
}

// Of a checkpoint that could not be written it is told whether it may be there.
func TestACheckpointThatMayBeThereIsToldOf(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(blobtest.Op) bool
		want  bool
	}{
		"there is no room":                 {func(op blobtest.Op) bool { return op.Kind == "write" }, false},
		"it cannot get its name":           {func(op blobtest.Op) bool { return op.Kind == "rename" }, false},
		"its name cannot be synced":        {func(op blobtest.Op) bool { return op.Kind == "syncdir" }, true},
		"nor be removed":                   {func(op blobtest.Op) bool { return op.Kind == "syncdir" || op.Kind == "remove" }, true},
		"what it needs is not on the disk": {func(blobtest.Op) bool { return false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, disk, l := grown(t, 2)
			disk.SetFault(func(op blobtest.Op) error {
				if c.fails(op) {
					return syscall.EIO
				}
				return nil
			})
			var commit func(...blob.Write) error
			if name == "what it needs is not on the disk" {
				commit = func(...blob.Write) error { return syscall.EIO }
			}
			err := l.Append(&Manifest{Cause: "execute"}, nil, commit)
			if !errors.Is(err, syscall.EIO) || errors.Is(err, ErrPerhaps) != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}
