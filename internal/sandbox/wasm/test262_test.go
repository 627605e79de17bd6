package wasm_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm"
)

// The subset of test262 that runs here: every eighth test, in the order of
// their paths, of test/language and test/built-ins, in sloppy mode unless a
// test asks for strict. Not among them are
//   - what needs a host's $262 or shares memory: realms, agents, detached
//     buffers, Atomics;
//   - the top-level declarations of scripts, which a cell changes on purpose
//     (RATIONALE.md), and modules, which have tests of their own;
//   - the tables of Unicode 11, where the engine has a later Unicode;
//   - what was proposed in 2019 and never became part of the language.
const (
	test262Every = 8
	test262Time  = 20 * time.Second // for one test; a few hundred milliseconds at most are needed
)

var test262Skips = []string{"test/language/global-code/", "test/language/module-code/", "test/built-ins/Atomics/", "test/built-ins/RegExp/property-escapes/generated/", "test/built-ins/SharedArrayBuffer/"}

var test262Without = []string{"tail-call-optimization", "IsHTMLDDA", "cross-realm", "SharedArrayBuffer", "Atomics", "caller"}

// TestTheLanguagesOwnTests runs them inside the guest. What fails there is
// listed, each with its reason, in testdata/test262.txt; nothing else may, and
// what is listed must.
func TestTheLanguagesOwnTests(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "bash", "../../../tests/conformance/fetch.sh").Output()
	sandboxtest.Require(t, "wasm", err == nil, "test262 cannot be fetched here (make suites)")
	suite := strings.TrimSpace(string(out))
	tests := test262Subset(t, suite)
	b := newBackend(t, t.TempDir())
	var ran, skipped, next atomic.Int64
	failures := map[string]string{}
	var mu sync.Mutex // guards failures
	var wg sync.WaitGroup
	for k := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1); int(i) <= len(tests); i = next.Add(1) {
				c := parse262(t, suite, tests[i-1])
				if c.skip {
					skipped.Add(1)
					continue
				}
				ran.Add(1)
				if why := c.run(t, b, fmt.Sprint("o", k)); why != "" {
					mu.Lock()
					failures[c.path] = why
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	compareFailures(t, failures, "testdata/test262.txt")
	t.Logf("%d of test262's tests ran in the guest, %d need what a sandbox does not have", ran.Load(), skipped.Load())
	if ran.Load() < 2500 {
		t.Errorf("only %d tests ran", ran.Load())
	}
}

func test262Subset(t *testing.T, suite string) (tests []string) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(filepath.Join(suite, "test"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".js") || strings.Contains(path, "_FIXTURE") {
			return err
		}
		rel, err := filepath.Rel(suite, path)
		if err != nil || slices.ContainsFunc(test262Skips, func(s string) bool { return strings.HasPrefix(rel, s) }) {
			return err
		}
		if n++; n%test262Every == 0 {
			tests = append(tests, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// case262 is one test and what its front matter says of it.
type case262 struct {
	path, source, harness string
	negative              string // the type of the error it has to end with
	async, skip           bool
}

var (
	meta262  = regexp.MustCompile(`(?s)/\*---(.*?)---\*/`)
	list262  = regexp.MustCompile(`(?m)^\s*(flags|includes|features):\s*\[(.*?)\]`)
	error262 = regexp.MustCompile(`(?s)negative:.*?type:\s*(\w+)`)
)

func parse262(t *testing.T, suite, path string) case262 {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(suite, name))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	c := case262{path: path, source: read(path)}
	about := ""
	if m := meta262.FindStringSubmatch(c.source); m != nil {
		about = m[1]
	}
	lists := map[string][]string{}
	for _, m := range list262.FindAllStringSubmatch(strings.ReplaceAll(about, "\n", " \n"), -1) {
		for _, item := range strings.Split(m[2], ",") {
			lists[m[1]] = append(lists[m[1]], strings.TrimSpace(item))
		}
	}
	if m := error262.FindStringSubmatch(about); m != nil {
		c.negative = m[1]
	}
	flag := func(name string) bool { return slices.Contains(lists["flags"], name) }
	c.async = flag("async")
	c.skip = flag("module") || flag("CanBlockIsFalse") || strings.Contains(c.source, "$262") ||
		slices.ContainsFunc(lists["features"], func(f string) bool { return slices.Contains(test262Without, f) })
	if flag("onlyStrict") {
		c.source = "\"use strict\";\n" + c.source
	}
	c.harness = "var print = console.log;\n"
	if !flag("raw") {
		for _, name := range append([]string{"assert.js", "sta.js", "doneprintHandle.js"}, lists["includes"]...) {
			if name == "detachArrayBuffer.js" {
				c.skip = true
				continue
			}
			c.harness += read("harness/" + name)
		}
	}
	return c
}

// run gives why the test fails, or nothing. The test is evaluated as a script
// by an indirect eval: a cell's own top level is not the language's.
func (c case262) run(t *testing.T, b *wasm.Backend, owner string) string {
	ctx, cancel := context.WithTimeout(t.Context(), test262Time)
	defer cancel()
	in, err := b.Start(ctx, sandbox.Spec{Owner: owner, Runtime: "javascript"})
	if err != nil {
		return err.Error()
	}
	defer in.Close()
	var out bytes.Buffer
	if exit, err := in.Run(ctx, sandbox.Command{Code: c.harness, Stdout: &out}); err != nil || exit.Error != nil {
		return fmt.Sprint("the harness: ", err, exit.Error)
	}
	exit, err := in.Run(ctx, sandbox.Command{Code: "(0, eval)(process.argv[2]); undefined", Args: []string{c.source}, Stdout: &out})
	switch {
	case err != nil:
		return err.Error()
	case c.negative != "" && (exit.Error == nil || exit.Error.Type != c.negative):
		return fmt.Sprintf("it does not end with %s: %+v", c.negative, exit.Error)
	case c.negative == "" && exit.Error != nil:
		return fmt.Sprintf("%v: %s: %.300s", exit.Cause, exit.Error.Type, exit.Error.Message)
	case c.async && c.negative == "" && !strings.Contains(out.String(), "Test262:AsyncTestComplete"):
		return "it is not done: " + strings.TrimSpace(out.String())
	}
	return ""
}

// compareFailures holds the failures, by their names, against a list of what
// is expected to fail: nothing else may, and what is listed must.
func compareFailures(t *testing.T, failures map[string]string, list string) {
	t.Helper()
	expected := reasons(t, list)
	hit := make([]bool, len(expected))
	for name, why := range failures {
		known := false
		for i, e := range expected {
			if e.MatchString(name) {
				known, hit[i] = true, true
			}
		}
		if !known {
			t.Errorf("%s: %s", name, why)
		}
	}
	for i, e := range expected {
		if !hit[i] {
			t.Errorf("nothing that %v names fails any more", e)
		}
	}
}

// reasons reads patterns of what is expected to fail: lines of "pattern # reason".
func reasons(t *testing.T, name string) (patterns []*regexp.Regexp) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		pattern, reason, ok := strings.Cut(lines.Text(), "#")
		pattern = strings.TrimSpace(pattern)
		if pattern == "" {
			continue
		}
		if !ok || strings.TrimSpace(reason) == "" {
			t.Fatalf("%s: %q has no reason", name, pattern)
		}
		patterns = append(patterns, regexp.MustCompile("^(?:"+pattern+")$"))
	}
	return patterns
}
