package wasm_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

// cpythonModules are CPython's own tests for what the guest claims to be
// (test_unicode is called test_str since 3.13).
var cpythonModules = []string{
	"test_json", "test_re", "test_math", "test_decimal", "test_datetime", "test_collections", "test_itertools",
	"test_dict", "test_list", "test_set", "test_str", "test_generators", "test_coroutines", "test_asyncgen",
	"test_dataclasses", "test_functools", "test_sqlite3", "test_zlib", "test_hashlib",
	"test_bz2", "test_lzma", "test_struct", "test_statistics", "test_enum", "test_textwrap", "test_csv", "test_pathlib",
}

// runTests runs one module of tests and prints a line for each that did not
// pass, then a line with the counts.
const runTests = `
import sys, unittest, io, os
sys.path.insert(0, '/workspace/cpython')
os.environ['PYTHONHASHSEED'] = '0'
os.chdir('/tmp')
from test import support
support.verbose = 0
support.use_resources = []  # not the tests that take minutes
support.requires_working_socket = lambda *, module=False: None if module else lambda test: test  # our loop needs none
name = sys.argv[1]
suite = unittest.defaultTestLoader.loadTestsFromName('test.' + name)
def each(s):
    for t in s:
        if isinstance(t, unittest.TestSuite): yield from each(t)
        else: yield t
class Result(unittest.TestResult):
    def report(self, kind, test, err):
        print(kind, test.id(), '|', type(err[1]).__name__ + ':', str(err[1]).split('\n')[0][:200])
    def addError(self, test, err): super().addError(test, err); self.report('ERROR', test, err)
    def addFailure(self, test, err): super().addFailure(test, err); self.report('FAIL', test, err)
    def addSubTest(self, test, sub, err):
        super().addSubTest(test, sub, err)
        if err: self.report('FAIL', test, err)
result = Result()
unittest.TestSuite(each(suite)).run(result)
print('COUNTS', result.testsRun, len(result.failures) + len(result.errors), len(result.skipped))
`

// TestCPythonsOwnTests runs CPython's tests inside the guest. What fails there
// is listed, each with its reason, in testdata/cpython.txt; nothing else may.
func TestCPythonsOwnTests(t *testing.T) {
	source := cpythonTests(t)
	owners := t.TempDir()
	b := newBackend(t, owners)
	dir := folder(t, owners, "o/w")
	tmp := folder(t, owners, "o/tmp")
	copyTests(t, source, filepath.Join(dir, "cpython", "test"))
	failures, total := map[string]string{}, 0
	for _, module := range cpythonModules {
		t.Run(module, func(t *testing.T) {
			in, err := b.Start(t.Context(), sandbox.Spec{
				Owner: "o", Runtime: "python", Dir: "/tmp", Limits: sandbox.Limits{MemoryBytes: 1 << 30},
				Env: map[string]string{"HOME": "/tmp", "TMPDIR": "/tmp"},
				Mounts: []sandbox.Mount{
					{Guest: "/workspace", Host: dir, ReadOnly: true},
					{Guest: "/tmp", Host: tmp, DiskBytes: 256 << 20},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var stdout, stderr bytes.Buffer
			exit, err := in.Run(ctx, sandbox.Command{
				Code: runTests, Args: []string{module}, Stdout: &stdout, Stderr: &stderr,
			})
			if err != nil || exit.Error != nil {
				t.Fatalf("%v %+v\n%s\n%s", err, exit, &stdout, &stderr)
			}
			total += report(t, stdout.String(), failures)
		})
	}
	compareFailures(t, failures, "testdata/cpython.txt")
	t.Logf("%d of CPython's own tests ran in the guest", total)
}

var (
	counts   = regexp.MustCompile(`(?m)^COUNTS (\d+) (\d+) (\d+)$`)
	unpassed = regexp.MustCompile(`(?m)^(?:ERROR|FAIL) (\S+) \|.*$`)
)

// report gives how many tests ran, and puts those that did not pass into
// failures.
func report(t *testing.T, out string, failures map[string]string) int {
	t.Helper()
	m := counts.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the run did not come to its end:\n%s", out)
	}
	var ran, skipped int
	fmt.Sscan(m[1], &ran)
	fmt.Sscan(m[3], &skipped)
	if ran -= skipped; ran < 10 {
		t.Errorf("only %d tests ran", ran)
	}
	for _, f := range unpassed.FindAllStringSubmatch(out, -1) {
		failures[f[1]] = f[0]
	}
	return ran
}

// cpythonTests is the folder of the tests that the guest's build left.
func cpythonTests(t *testing.T) string {
	t.Helper()
	path, err := os.ReadFile(filepath.Join(sandboxtest.BuildCache(t), "out", "python", "python.path"))
	sandboxtest.Require(t, "wasm", err == nil, "the guest was not built on this machine (make guests)")
	return filepath.Join(strings.TrimSpace(string(path)), "tests", "test")
}

func copyTests(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, body, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}
