package pkgproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/pkgproxy"
)

// workEnv makes the test binary a process that is in the middle of an installation, in a
// cache, until its standard input ends.
const workEnv = "PADDOCK_TEST_WORKPLACE"

func holdWorkplace(dir string) {
	place, remove, err := pkgproxy.Workplace(dir)
	if err == nil {
		err = os.WriteFile(filepath.Join(place, "file"), []byte("x"), 0o600)
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(place)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = remove()
	os.Exit(0)
}

// worker begins one; kill ends it as kill -9 does.
func worker(t *testing.T, dir string) (place string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), workEnv+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the worker: got error %v, want none: %s", err, line)
	}
	if strings.HasPrefix(line, "error") {
		t.Fatalf("the worker: line: got %q, want it not to begin with %q", line, "error")
	}
	return strings.TrimSpace(line), func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func TestWhatAKilledInstallationLeftIsRemovedAtTheNextStart(t *testing.T) {
	dir := t.TempDir()
	dead, kill := worker(t, dir)
	alive, end := worker(t, dir)
	defer end()
	kill()
	others := filepath.Join(filepath.Dir(dead), "of-somebody-else")
	if err := os.Mkdir(others, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := open(t, pkgproxy.Config{Dir: dir}).Close(); err != nil { // waits for the sweep
		t.Fatal(err)
	}
	for path, want := range map[string]bool{dead: false, dead + ".lock": false, filepath.Join(alive, "file"): true, alive + ".lock": true, others: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v", filepath.Base(path), err == nil)
		}
	}
	end()
	if err := open(t, pkgproxy.Config{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := filepath.Glob(filepath.Join(filepath.Dir(dead), "*")); err != nil {
		t.Errorf("in the end: got error %v, want none", err)
	} else if !slices.Equal(list, []string{others}) {
		t.Errorf("in the end: got %q, want %q", list, []string{others})
	}
}

// Modules are made in the cache and nowhere else, wherever that lies, and nothing is left
// of the making.
func TestModulesAreMadeInTheCache(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "link")
	if err := os.Mkdir(filepath.Join(top, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(top, "real"), dir); err != nil {
		dir = filepath.Join(top, "real") // Windows lets few make links
	}
	r := newRegistry(t)
	r.Add(`{"name":"a","version":"1.0.0","dependencies":{"b":"1"}}`, file{Name: "package/index.js", Text: `export { default } from "b"`})
	r.Add(`{"name":"b","version":"1.0.0"}`, index0)
	p := open(t, pkgproxy.Config{Dir: dir, NPM: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: r.Server.URL}}, Allow: []string{"*"}}})
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, filepath.Join(top, "nowhere"))
	}
	made, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	if packOf(made, "a") == nil {
		t.Errorf("there is no module among %d files", len(made.Files))
	}
	if list, err := filepath.Glob(filepath.Join(dir, "work", "*")); err != nil {
		t.Error(err)
	} else if len(list) != 0 {
		t.Errorf(`filepath.Glob(filepath.Join(dir, "work", "*")): got %v, want none`, list)
	}
}

// Who begins an installation while another process sweeps has a folder of its own.
func TestAWorkplaceIsMadeBesideSweeps(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				place, end, err := pkgproxy.Workplace(dir) // another one sweeps meanwhile
				if err == nil {
					_, err = os.Stat(place)
					err = errors.Join(err, end())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
