package vault

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zalando/go-keyring"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// opening is the variable that has this test binary open a vault and seal with it.
const opening = "VAULT_TEST_OPEN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(opening); dir != "" {
		v, err := Open(dir)
		if err == nil {
			var sealed []byte
			if sealed, err = v.Seal("test", []byte("plain")); err == nil {
				fmt.Printf("%x", sealed)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ring is a keyring of a test's; broken: it takes nothing and gives nothing.
type ring struct {
	name   string
	broken error
	mu     sync.Mutex
	all    map[string]string
}

func (r *ring) Name() string { return r.name }

func (r *ring) Get(account string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return "", r.broken
	}
	if s, ok := r.all[account]; ok {
		return s, nil
	}
	return "", ErrNoKey
}

func (r *ring) Set(account, secret string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.all[account] = secret
	}
	return r.broken
}

func open(t *testing.T, dir string, rings ...Ring) *Vault {
	t.Helper()
	v, err := Open(dir, rings...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func seal(t *testing.T, v *Vault, purpose, plain string) []byte {
	t.Helper()
	sealed, err := v.Seal(purpose, []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// unavailable wants a fault that says a text, with a hint.
func unavailable(t *testing.T, err error, says string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Unavailable || !strings.Contains(f.Message, says) || f.Hint == "" {
		t.Errorf("it is %v, want a fault with a hint that says %q", err, says)
	}
}

func TestWhatIsSealedIsReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	v := open(t, dir)
	for _, plain := range []string{"", "a token", strings.Repeat("x", 1<<20)} {
		sealed := seal(t, v, "server/github", plain)
		if plain != "" && bytes.Contains(sealed, []byte(plain)) {
			t.Error("it is not encrypted")
		}
		if bytes.Equal(sealed, seal(t, v, "server/github", plain)) {
			t.Error("the same text is sealed the same way twice")
		}
		got, err := open(t, dir).Unseal("server/github", sealed)
		if err != nil || string(got) != plain {
			t.Errorf("it is %.20q (%v), want %.20q", got, err, plain)
		}
	}
	if v.Kept() != "the key file vault.key" {
		t.Errorf("the key is in %s", v.Kept())
	}
	if info, err := os.Stat(filepath.Join(dir, KeyFile)); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o600) {
		t.Errorf("the key file's mode is %v (%v)", info.Mode(), err)
	}
}

func TestWhatWasChangedOrMovedIsNotRead(t *testing.T) {
	v := open(t, t.TempDir())
	sealed := seal(t, v, "server/a", "a token")
	_, err := v.Unseal("server/b", sealed)
	unavailable(t, err, "in another's place")
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := v.Unseal("server/a", changed); err == nil {
			t.Errorf("byte %d can be changed", i)
		}
		if _, err := v.Unseal("server/a", sealed[:i]); err == nil {
			t.Errorf("%d bytes are enough", i)
		}
	}
}

func TestAnotherKeyIsSaidToBeAnother(t *testing.T) {
	dir := t.TempDir()
	sealed := seal(t, open(t, dir), "p", "a token")
	if err := os.Remove(filepath.Join(dir, KeyFile)); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, dir).Unseal("p", sealed)
	unavailable(t, err, "with another key")
}

func TestAKeyFileThatIsNoneIsNotReplaced(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "garbage": "garbage\n", "a short key": inFile + " YWJj\n", "no base64": inFile + " ???\n"} {
		dir := t.TempDir()
		path := filepath.Join(dir, KeyFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir)
		unavailable(t, err, "holds no key")
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("%s: it was changed to %q", name, got)
		}
	}
}

func TestAKeyThatOthersReadIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes")
	}
	dir := t.TempDir()
	open(t, dir)
	if err := os.Chmod(filepath.Join(dir, KeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir)
	unavailable(t, err, "can be read or changed by other users")
}

func TestAKeyringThatWorksHoldsTheKey(t *testing.T) {
	dir := t.TempDir()
	broken := &ring{name: "a broken one", broken: errors.New("no bus")}
	good := &ring{name: "a good one", all: map[string]string{}}
	v := open(t, dir, broken, good)
	if v.Kept() != "a good one" || len(good.all) != 1 {
		t.Fatalf("the key is in %s, and there are %d", v.Kept(), len(good.all))
	}
	for id, key := range good.all {
		text, err := os.ReadFile(filepath.Join(dir, KeyFile))
		if err != nil || strings.Contains(string(text), key) || !strings.Contains(string(text), id) {
			t.Errorf("the file has %q (%v)", text, err)
		}
	}
	sealed := seal(t, v, "p", "a token")
	if got, err := open(t, dir, good).Unseal("p", sealed); err != nil || string(got) != "a token" {
		t.Errorf("it is %q (%v)", got, err)
	}
	if kept, err := Kept(dir); kept != "a good one" || err != nil {
		t.Errorf("it is kept in %s (%v)", kept, err)
	}
}

func TestAKeyringThatDoesNotGiveTheKeyIsNoReasonForAnother(t *testing.T) {
	dir := t.TempDir()
	r := &ring{name: "a ring", all: map[string]string{}}
	open(t, dir, r)
	before, _ := os.ReadFile(filepath.Join(dir, KeyFile))
	for name, rings := range map[string][]Ring{
		"none is there": nil, "another one is": {&ring{name: "another", all: r.all}},
		"it is locked": {&ring{name: "a ring", broken: errors.New("locked")}}, "it has lost it": {&ring{name: "a ring", all: map[string]string{}}},
	} {
		_, err := Open(dir, rings...)
		unavailable(t, err, "is in a ring, which does not give it")
		if after, _ := os.ReadFile(filepath.Join(dir, KeyFile)); !bytes.Equal(before, after) {
			t.Errorf("%s: the file was changed", name)
		}
	}
	for id := range r.all {
		r.all[id] = strings.Repeat("A", 43) + "="
	}
	_, err := Open(dir, r)
	unavailable(t, err, "holds no key")
}

func TestWithoutAKeyringThatWorksThereIsAFile(t *testing.T) {
	v := open(t, t.TempDir(), &ring{name: "a broken one", broken: errors.New("no bus")}, forgetful{ErrNoKey}, forgetful{})
	if v.Kept() != "the key file vault.key" {
		t.Errorf("the key is in %s", v.Kept())
	}
}

// forgetful takes everything and keeps nothing, or another text.
type forgetful struct{ err error }

func (forgetful) Name() string                 { return "a forgetful one" }
func (f forgetful) Get(string) (string, error) { return "another key", f.err }
func (forgetful) Set(string, string) error     { return nil }

func TestProcessesThatComeAtOnceMakeOneKey(t *testing.T) {
	dir := t.TempDir()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var sealed [8]bytes.Buffer
	var work sync.WaitGroup
	for i := range sealed {
		work.Go(func() {
			c := exec.CommandContext(t.Context(), path)
			c.Env = append(os.Environ(), opening+"="+dir)
			c.Stdout = &sealed[i]
			if err := c.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	v := open(t, dir)
	for i := range sealed {
		var text []byte
		if _, err := fmt.Sscanf(sealed[i].String(), "%x", &text); err != nil {
			t.Fatal(err)
		}
		if got, err := v.Unseal("test", text); err != nil || string(got) != "plain" {
			t.Errorf("process %d sealed with another key: %v", i, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, KeyFile+".*")); len(left) > 0 {
		t.Errorf("there is %v left", left)
	}
}

func TestAFolderThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Join(file, "state"))
	unavailable(t, err, "cannot be read or made")
}

func TestFilesAreSealed(t *testing.T) {
	dir := t.TempDir()
	f := &Files{Dir: filepath.Join(dir, "tokens"), Sealer: open(t, dir)}
	if data, err := f.Load(t.Context(), "a"); data != nil || err != nil {
		t.Errorf("there is %q (%v)", data, err)
	}
	if err := f.Save(t.Context(), "a", nil); err != nil {
		t.Errorf("removing nothing: %v", err)
	}
	for _, text := range []string{"first", "second"} {
		if err := f.Save(t.Context(), "../a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if data, err := f.Load(t.Context(), "../a"); string(data) != text || err != nil {
			t.Errorf("there is %q (%v)", data, err)
		}
	}
	all, err := os.ReadDir(f.Dir)
	if err != nil || len(all) != 1 {
		t.Fatalf("the folder has %d files (%v)", len(all), err)
	}
	if text, _ := os.ReadFile(filepath.Join(f.Dir, all[0].Name())); bytes.Contains(text, []byte("second")) {
		t.Error("it lies there in the clear")
	}
	// One file in another's place is not taken for it.
	if err := os.Rename(filepath.Join(f.Dir, all[0].Name()), f.path("b")); err != nil {
		t.Fatal(err)
	}
	_, err = f.Load(t.Context(), "b")
	unavailable(t, err, "in another's place")
	if err := f.Save(t.Context(), "b", nil); err != nil {
		t.Fatal(err)
	}
	if data, err := f.Load(t.Context(), "b"); data != nil || err != nil {
		t.Errorf("there is %q (%v)", data, err)
	}
}

// disk notes which folders were brought to it.
type disk struct {
	blob.Files
	synced []string
	err    error
}

func (d *disk) SyncDir(name string) error {
	d.synced = append(d.synced, name)
	return errors.Join(d.err, d.Files.SyncDir(name))
}

func TestWhatIsRemovedStaysAwayAfterAPowerCut(t *testing.T) {
	dir := t.TempDir()
	d := &disk{Files: blob.OS}
	f := &Files{Dir: filepath.Join(dir, "tokens"), Sealer: open(t, dir), disk: d}
	if err := f.Save(t.Context(), "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"something", "what is gone, maybe not for good"} {
		d.synced = nil
		if err := f.Save(t.Context(), "a", nil); err != nil || !slices.Equal(d.synced, []string{f.Dir}) {
			t.Errorf("removing %s brings %q to the disk: %v", what, d.synced, err)
		}
	}
	d.err = errors.New("the disk is broken")
	if err := f.Save(t.Context(), "a", nil); !errors.Is(err, d.err) {
		t.Errorf("that it is gone is said although it may come back: %v", err)
	}
}

func TestWithoutABusNoKeyringIsLookedFor(t *testing.T) {
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		t.Skip("the system has its own")
	}
	dir := t.TempDir()
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	expect := func(about string, want int) {
		t.Helper()
		if got := len(System(getenv)); got != want {
			t.Errorf("%s: there are %d keyrings, want %d", about, got, want)
		}
	}
	expect("nothing is set", 0)
	env["XDG_RUNTIME_DIR"] = dir
	expect("there is no socket", 0)
	if err := os.WriteFile(filepath.Join(dir, "bus"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("there is one", 1)
	env["DBUS_SESSION_BUS_ADDRESS"] = "autolaunch:"
	expect("one would have to be started", 0)
	env["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=" + filepath.Join(dir, "bus")
	expect("its address is set", 1)
}

func TestTheSystemsKeyringIsAskedByAccount(t *testing.T) {
	keyring.MockInit()
	s := system{"a ring"}
	if _, err := s.Get("a"); !errors.Is(err, ErrNoKey) {
		t.Errorf("of a key that is not there it says %v", err)
	}
	if err := s.Set("a", "secret"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get("a"); got != "secret" || err != nil {
		t.Errorf("it gives %q (%v)", got, err)
	}
}
