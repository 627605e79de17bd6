package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"paddock/guest"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm/linear"
)

func TestAnImageIsNamedByWhatItDependsOn(t *testing.T) {
	g := func(name, digest string) *guest.Guest {
		return &guest.Guest{Manifest: guest.Manifest{Name: name, Digest: digest}}
	}
	one := ImagePath("/cache", g("python", "1"))
	if again := ImagePath("/cache", g("python", "1")); again != one {
		t.Errorf("it lies at %s and at %s", one, again)
	}
	if dir := filepath.Dir(one); dir != filepath.Join("/cache", "images") {
		t.Errorf("it lies in %s", dir)
	}
	for name, other := range map[string]string{"another guest": ImagePath("/cache", g("python", "2")), "another language": ImagePath("/cache", g("javascript", "1"))} {
		if other == one {
			t.Errorf("%s has the same image", name)
		}
	}
}

func TestThereIsNoOtherRuntime(t *testing.T) {
	l := loaderIn(t, t.TempDir())
	for _, name := range []string{"", "cobol", "Python", "../python"} {
		if _, err := l.load(t.Context(), name, true); err == nil || !strings.Contains(err.Error(), "no runtime") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// loaderIn makes a loader that the test's end closes.
func loaderIn(t *testing.T, dir string) *loader {
	t.Helper()
	l, err := newLoader(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := l.engine.(*wazeroEngine); ok {
		t.Cleanup(func() { e.runtime.Close(context.Background()) })
	}
	return l
}

func TestACacheFolderThatCannotBeUsedIsAnErrorThatNamesIt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := newWazero(t.Context(), compiledDir(file)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file in its place: %v", err)
	}
	readOnly := filepath.Join(dir, "readonly")
	if err := os.Mkdir(readOnly, 0o555); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 && runtime.GOOS != "windows" { // who may write everywhere
		if err := Prepare(t.Context(), readOnly); !errors.Is(err, fs.ErrPermission) && (err == nil || !strings.Contains(err.Error(), "permission")) {
			t.Errorf("one that cannot be written: %v", err)
		}
	}
}

// answer is a module with a function f that gives 42.
var answer = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" + // type: () -> i32
	"\x03\x02\x01\x00" + "\x07\x05\x01\x01f\x00\x00" + // one function, exported
	"\x0a\x06\x01\x04\x00\x41\x2a\x0b") // i32.const 42

// compiledFile compiles answer into dir and gives the file of the cache.
func compiledFile(t *testing.T, dir string) (path string, content []byte) {
	t.Helper()
	if got, err := runAnswer(t, dir); err != nil || got != 42 {
		t.Fatalf("it gives %d, %v", got, err)
	}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path = p
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatalf("there is no compiled code in %s: %v", dir, err)
	}
	content, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

// runAnswer does in a fresh engine over the cache in dir what answer is for.
func runAnswer(t *testing.T, dir string) (uint64, error) {
	t.Helper()
	e, err := newWazero(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer e.runtime.Close(t.Context())
	c, err := e.compile(t.Context(), answer)
	if err != nil {
		return 0, err
	}
	m, err := e.runtime.Instantiate(t.Context(), answer)
	if err != nil {
		return 0, err
	}
	defer c.Close(t.Context())
	got, err := m.ExportedFunction("f").Call(t.Context())
	if err != nil {
		return 0, err
	}
	return got[0], nil
}

// Whatever became of a cached file, other code than the module's is never run.
func TestDamagedCompiledCodeIsNotRun(t *testing.T) {
	dir := t.TempDir()
	path, whole := compiledFile(t, dir)
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	try := func(what string, at int) {
		t.Helper()
		if got, err := runAnswer(t, dir); err == nil && got != 42 {
			t.Errorf("%s at %d of %d: it gives %d", what, at, len(whole), got)
		}
	}
	for at := 0; at < len(whole); at += 7 {
		put(whole[:at])
		try("cut", at)
	}
	for at := len(whole) / 3; at < len(whole); at += 7 { // behind the head
		broken := append([]byte(nil), whole...)
		broken[at] ^= 0x55
		put(broken)
		try("changed", at)
	}
	put(whole)
	if got, err := runAnswer(t, dir); err != nil || got != 42 {
		t.Errorf("the file as it was gives %d, %v", got, err)
	}
}

func TestManyCompileIntoOneCacheAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if got, err := runAnswer(t, dir); err != nil || got != 42 {
				t.Errorf("it gives %d, %v", got, err)
			}
		})
	}
	all.Wait()
	compiledFile(t, dir)
}

// preparedCache makes a cache with the guests' compiled code, which all tests
// share, and without images.
func preparedCache(t *testing.T) string {
	t.Helper()
	sandboxtest.Require(t, "wasm", len(guest.Available()) == len(guest.Names()), "this binary was built without the guests (make guests)")
	compiled := filepath.Join(sandboxtest.PreparedCache(t), "compiled")
	if err := os.MkdirAll(compiled, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(compiled, filepath.Join(dir, "compiled")); err != nil {
		t.Skip("links cannot be made here:", err)
	}
	return dir
}

func openGuest(t *testing.T, name string) *guest.Guest {
	t.Helper()
	g, err := guest.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestTwoPrepareOneCacheAtOnce(t *testing.T) {
	dir := preparedCache(t)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := Prepare(t.Context(), dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	names, err := filepath.Glob(filepath.Join(dir, "images", "*"))
	if err != nil || len(names) != len(guest.Names()) {
		t.Errorf("there are %v, %v", names, err)
	}
	if rest, _ := filepath.Glob(filepath.Join(dir, "images", ".*")); len(rest) != 0 {
		t.Errorf("they left %v behind", rest)
	}
	before := map[string]fs.FileInfo{}
	l := loaderIn(t, dir)
	for _, name := range guest.Names() {
		p, err := l.load(t.Context(), name, false)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := l.load(t.Context(), name, false); again != p || err != nil {
			t.Errorf("%s was loaded twice: %v", name, err)
		}
		before[name], _ = os.Stat(ImagePath(dir, p.guest))
	}
	if err := Prepare(t.Context(), dir); err != nil {
		t.Error(err)
	}
	for name, info := range before {
		if now, err := os.Stat(ImagePath(dir, openGuest(t, name))); err != nil || !os.SameFile(info, now) {
			t.Errorf("%s was prepared again", name)
		}
	}
}

func TestADamagedImageIsNotUsedAndCanBeMadeAnew(t *testing.T) {
	dir := preparedCache(t)
	path := ImagePath(dir, openGuest(t, "javascript"))
	if _, err := loaderIn(t, dir).load(t.Context(), "javascript", false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is missing: %v", err)
	}
	if _, err := loaderIn(t, dir).load(t.Context(), "javascript", true); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{
		"empty": nil, "cut in its head": whole[:100], "cut at its end": whole[:len(whole)-1], "of another version": append([]byte("paddock image 0\n"), whole[16:]...),
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.Remove(path), os.WriteFile(path, damaged, 0o444)); err != nil {
				t.Fatal(err)
			}
			if _, err := loaderIn(t, dir).load(t.Context(), "javascript", false); err == nil || !strings.Contains(err.Error(), "the javascript image") {
				t.Errorf("it was used: %v", err)
			}
			p, err := loaderIn(t, dir).load(t.Context(), "javascript", true)
			if err != nil || p.image == nil {
				t.Fatalf("it was not made anew: %v", err)
			}
			if _, err := linear.Open(path); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAFolderForImagesThatCannotBeMadeIsAnError(t *testing.T) {
	dir := preparedCache(t)
	if err := os.WriteFile(filepath.Join(dir, "images"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := loaderIn(t, dir).load(t.Context(), "javascript", true); err == nil || !strings.Contains(err.Error(), "images") {
		t.Errorf("%v", err)
	}
}
