package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"paddock/internal/fault"
)

func TestWhatManyTrustAtOnceIsAllKept(t *testing.T) {
	f := Files{Dir: filepath.Join(t.TempDir(), "state")}
	var all sync.WaitGroup
	place := t.TempDir()
	for k := range 20 {
		all.Go(func() {
			dir := filepath.Join(place, fmt.Sprint(k))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Error(err)
			}
			if _, err := (Files{Dir: f.Dir}).Trust(filepath.Join(dir, Name), []byte("text")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	list, err := f.List()
	if err != nil || len(list) != 20 {
		t.Errorf("%d files are trusted, %v", len(list), err)
	}
	if info, err := os.Stat(filepath.Join(f.Dir, File)); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the record is %v, %v", info.Mode(), err)
	}
}

func TestAFileIsTrustedWhereItIsAndAsItIs(t *testing.T) {
	f := Files{Dir: t.TempDir()}
	dir := t.TempDir()
	path, other := filepath.Join(dir, Name), filepath.Join(t.TempDir(), Name)
	trusts := func(path, text string) bool {
		t.Helper()
		ok, err := f.Trusts(path, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if trusts(path, "a") {
		t.Error("a file is trusted that nobody has trusted")
	}
	for _, text := range []string{"a", "b"} {
		if _, err := f.Trust(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for name, got := range map[string]bool{"as it was before": trusts(path, "a"), "elsewhere": trusts(other, "b"), "another text": trusts(path, "b\n")} {
		if got {
			t.Errorf("%s it is trusted", name)
		}
	}
	if !trusts(path, "b") {
		t.Error("it is not trusted as it is")
	}
	if _, err := f.Forget(path); err != nil || trusts(path, "b") {
		t.Errorf("it is trusted still, %v", err)
	}
	if _, err := f.Forget(path); fault.KindOf(err) != fault.NotFound {
		t.Errorf("forgetting it twice: %v", err)
	}
}
