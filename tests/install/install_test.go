// Package install installs paddock from each file of a release and uses it, in an
// environment that holds nothing else: no settings, an empty home folder, and on the PATH
// what the way of installing needs.
//
// Without $PADDOCK_DIST, a folder that `make release` has filled, it packs the binary under
// test for this machine.
package install

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// packed is the folder that release has filled; empty: none yet.
var packed string

func TestMain(m *testing.M) {
	code := m.Run()
	if packed != "" {
		os.RemoveAll(packed)
	}
	os.Exit(code)
}

// release gives the folder with a release's files, which is packed once for all tests.
func release(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("PADDOCK_DIST"); dir != "" {
		return dir
	}
	if packed != "" {
		return packed
	}
	dir, err := os.MkdirTemp("", "paddock-release-")
	if err != nil {
		t.Fatal(err)
	}
	packed = dir
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "-out", dir, "-source", "../..", "-version", "0.0.1-rc.1",
		runtime.GOOS+"-"+runtime.GOARCH+"="+sandboxtest.Binary(t))
	cmd.Dir = filepath.Join("..", "..", "packaging", "release")
	cmd.Env = append(cmd.Environ(), "SOURCE_DATE_EPOCH=1700000000", "PADDOCK_REGISTRY_NAME=io.github.me/paddock")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("packing: %v\n%s", err, out)
	}
	return dir
}

// one is the release's file that a pattern names.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s names %q (%v), want one file", pattern, found, err)
	}
	return found[0]
}

// tool is an installed paddock: how it is called, and with which variables.
type tool struct {
	args []string
	env  []string
}

// bare gives the variables of a user who has nothing but programs, by name and path, and
// interpreters that are compiled already.
func bare(t *testing.T, programs map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"home", "bin", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range programs {
		if err := os.Symlink(path, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"HOME=" + filepath.Join(dir, "home"), "PATH=" + filepath.Join(dir, "bin"), "TMPDIR=" + filepath.Join(dir, "tmp"), "PADDOCK_CACHE_DIR=" + sandboxtest.PreparedCache(t)}
}

// where finds a program of this machine.
func where(t *testing.T, feature, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	sandboxtest.Require(t, feature, err == nil, "there is no "+program+" on this machine")
	return path
}

// command is a command line of the tool.
func (p tool) command(ctx context.Context, args ...string) *exec.Cmd {
	all := append(append([]string{}, p.args...), args...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Env = p.env
	return cmd
}

// use does what a user does first: it asks for the version, runs a program, and calls a tool
// as an MCP client, which starts paddock with args.
func (p tool) use(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), paddocktest.Timeout)
	defer cancel()
	out, err := p.command(ctx, "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "paddock ") {
		t.Fatalf("paddock version prints %q (%v)", out, err)
	}
	var stderr bytes.Buffer
	cmd := p.command(ctx, "run", "-c", "import sys; print(6 * 7); sys.exit(3)")
	cmd.Stderr = &stderr
	out, err = cmd.Output()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 3 || string(out) != "42\n" {
		t.Errorf("a program prints %q and ends with %v, want 42 and the exit code 3\n%s", out, err, stderr.String())
	}
	client := paddocktest.Open(t, &sdk.CommandTransport{Command: p.command(context.WithoutCancel(ctx), args...), TerminateDuration: paddocktest.Timeout})
	var answer struct{ Stdout string }
	if _, failed := paddocktest.Call(t, client, "execute_code", map[string]any{"language": "python", "code": "print(6 * 7)"}, &answer); failed != nil || answer.Stdout != "42\n" {
		t.Errorf("execute_code answers %+v (%+v)", answer, failed)
	}
	if err := client.Close(); err != nil {
		t.Errorf("the server does not end when its client does: %v", err)
	}
}

func TestPaddockIsInstalledFromEachFile(t *testing.T) {
	paddocktest.Require(t, "wasm")
	dir := release(t)
	for _, way := range []struct {
		name    string
		install func(t *testing.T, dir string) tool
	}{
		{"an archive", fromArchive},
		{"npx", fromNPM},
		{"pip", fromWheel},
		{"uvx", fromUVX},
		{"a Debian package", fromDeb},
		{"an image", fromImage},
	} {
		t.Run(way.name, func(t *testing.T) { way.install(t, dir).use(t, "mcp") })
	}
	t.Run("an MCP bundle", func(t *testing.T) {
		p := fromBundle(t, dir)
		server := p.args
		p.args = server[:1]
		p.use(t, server[1:]...)
	})
}
