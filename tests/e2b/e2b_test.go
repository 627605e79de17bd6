// Package e2b drives the built paddock with E2B's own SDKs, unmodified.
package e2b

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// service is a running paddock serve, with keys of two principals.
type service struct {
	url         string
	key, second string
}

// serve starts one in a new state folder, which has to end well when the test does.
func serve(t *testing.T) service {
	t.Helper()
	state := t.TempDir()
	s, _ := serveIn(t, sandboxtest.Binary(t), state)
	for name, key := range map[string]*string{"first": &s.key, "second": &s.second} {
		create := exec.CommandContext(t.Context(), sandboxtest.Binary(t), "token", "create", name, "--e2b")
		create.Env = paddocktest.Environment(t, state)
		text, err := create.Output()
		if err != nil {
			t.Fatal(err)
		}
		*key = strings.TrimSpace(string(text))
	}
	return s
}

// serveIn starts one of this program, which has to end well when end is called, or else with the test.
func serveIn(t *testing.T, binary, state string) (s service, end func()) {
	t.Helper()
	paddocktest.Require(t, "linux")
	paddocktest.Admit(t, filepath.Dir(state), state)
	env := paddocktest.Environment(t, state)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "serve", "--port", "0")
	cmd.Env = env
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	for s.url == "" {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("paddock serve ended: %s", line)
		}
		if url, ok := strings.CutPrefix(line, "paddock: MCP is served at "); ok {
			s.url = strings.TrimSuffix(strings.TrimSpace(url), "/mcp")
		}
	}
	var log strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&log, said) }) // its end is the process's
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("paddock serve: %v", err)
		}
		if t.Failed() {
			t.Logf("paddock serve said: %s", log.String())
		}
	})
	t.Cleanup(end)
	return s, end
}

// installed is where install.sh put the SDKs.
func installed(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "install.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// drive runs a program of an SDK's against a service.
func (s service) drive(t *testing.T, dir string, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "E2B_API_URL="+s.url+"/e2b", "E2B_SANDBOX_URL="+s.url+"/e2b", "E2B_API_KEY="+s.key, "OTHER_KEY="+s.second)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", command, err, out)
	}
}

// copyTo copies a file of this folder to where modules are found.
func copyTo(t *testing.T, dir, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheSDKForJavaScript(t *testing.T) {
	s, from := serve(t), installed(t)
	dir := t.TempDir()
	copyTo(t, dir, "suite.mjs")
	if err := os.Symlink(filepath.Join(from, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	s.drive(t, dir, "node", "--test-timeout=60000", "suite.mjs")
}

func TestTheSDKForPython(t *testing.T) {
	s, from := serve(t), installed(t)
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s.drive(t, wd, filepath.Join(from, "venv", "bin", "python"), "-B", "suite.py")
}

// TestASandboxOutlivesTheServer has one that runs and one that is paused go on after a restart,
// with the processes that they had.
func TestASandboxOutlivesTheServer(t *testing.T) {
	// A saved machine goes on with the file of paddock that it has.
	state, binary := t.TempDir(), sandboxtest.Binary(t)
	s, end := serveIn(t, binary, state)
	create := exec.CommandContext(t.Context(), binary, "token", "create", "one", "--e2b")
	create.Env = paddocktest.Environment(t, state)
	key, err := create.Output()
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(installed(t), "venv", "bin", "python")
	s.key = strings.TrimSpace(string(key))
	s.drive(t, state, python, "-c", `
from e2b import Sandbox
for name in ("running", "paused"):
    sbx = Sandbox.create(metadata={"name": name}, envs={"NAME": name}, timeout=3600)
    sbx.files.write("name", name)
    sbx.commands.run("sleep 100000", background=True, timeout=0)
    if name == "paused":
        sbx.pause()
`)
	end()
	again, _ := serveIn(t, binary, state)
	again.key = s.key
	again.drive(t, state, python, "-c", `
from e2b import Sandbox, SandboxQuery
for name in ("running", "paused"):
    [found] = Sandbox.list(query=SandboxQuery(metadata={"name": name})).next_items()
    assert found.state.value == name, found
    sbx = Sandbox.connect(found.sandbox_id)
    assert sbx.files.read("name") == name
    assert [p.args[-1] for p in sbx.commands.list()] == ["sleep 100000"], sbx.commands.list()
    assert sbx.commands.run("echo $NAME").stdout == name + "\n"
    sbx.kill()
`)
}
