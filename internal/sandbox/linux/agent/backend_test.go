//go:build linux

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/typescript"
	"paddock/internal/sandbox/wire"
)

// rootVariable has, for a test's agent, what its file system is to be.
const rootVariable = "PADDOCK_TEST_ROOT"

func TestMain(m *testing.M) {
	if agent.Requested(os.Args) {
		if text := os.Getenv(rootVariable); text != "" {
			if err := enter(text); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(agent.Main(os.Args))
	}
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, typescript.Job))
	}
	code := m.Run()
	helpers.Close()
	os.Exit(code)
}

// helpers translate what the tests run.
var helpers = helper.NewRunner(os.Args[0])

// root is a file system made of folders of the host: not a wall, but enough for
// programs to find what they look for. It takes the place of a box.
type root struct {
	Dir     string // an empty folder
	Mounts  []sandbox.Mount
	Private bool   // no network
	Listen  uint16 // where the agent listens for programs; 0: nowhere
}

// shared is what of the host a root has.
var shared = []string{"/usr", "/bin", "/lib", "/lib64", "/sbin"}

// enter makes this process's root what text says. It is in namespaces of its own.
func enter(text string) error {
	var r root
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""), unix.Mount("root", r.Dir, "tmpfs", 0, "mode=755")); err != nil {
		return err
	}
	bind := func(from, to string, flags uintptr) error {
		to = filepath.Join(r.Dir, to)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("binding %s: %w", from, err)
		}
		if flags == 0 {
			return nil
		}
		return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
	}
	image := os.Getenv("PADDOCK_TEST_ROOTFS") // an unpacked image, in the place of the host's
	folders := append([]string{}, shared...)
	if image != "" {
		folders = append(folders, "/etc", "/var")
	}
	for _, dir := range folders {
		from := filepath.Join(image, dir)
		if _, err := os.Stat(from); err != nil {
			continue
		}
		if err := bind(from, dir, 0); err != nil {
			return err
		}
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PADDOCK_TEST_FOLDERS")), "/dev", "/proc") {
		if err := bind(dir, dir, 0); err != nil {
			return err
		}
	}
	for _, m := range r.Mounts {
		var flags uintptr
		if m.ReadOnly {
			flags = unix.MS_RDONLY
		}
		for _, guest := range append([]string{m.Guest}, m.Aliases...) {
			if err := bind(m.Host, guest, flags); err != nil {
				return err
			}
		}
	}
	os.Unsetenv(rootVariable)
	if r.Private {
		if err := loopback(); err != nil {
			return err
		}
	}
	return errors.Join(unix.Chroot(r.Dir), unix.Chdir("/"), unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
}

// loopback has this process's own network reach itself.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// backend runs an agent without a box for each instance, or for all of a Box.
type backend struct {
	t *testing.T

	mu     sync.Mutex
	agents map[*process]int // and how many instances are in each
	boxes  map[string]*process
	closed bool
	probe  sandbox.Probe
}

// process is one agent.
type process struct {
	client *wire.Client
	cmd    *exec.Cmd
	log    *strings.Builder
	dir    string
	box    string // by which the backend knows it; empty: it is one instance's
	ended  chan struct{}
}

func setup() agent.Setup {
	path := "/usr/local/bin:/usr/bin:/bin"
	if first := os.Getenv("PADDOCK_TEST_PATH"); first != "" {
		path = first + ":" + path
	}
	return agent.Setup{Image: "tested", Env: []string{"PATH=" + path, "HOME=/tmp"}, OpenFiles: 1024}
}

// startAgent starts one; root may be nil.
func startAgent(ctx context.Context, r *root) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "agent")
	defer theirs.Close()
	p := &process{cmd: exec.Command("/proc/self/exe"), log: &strings.Builder{}, ended: make(chan struct{})}
	p.cmd.Args = []string{agent.Role}
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stderr = p.log
	p.cmd.Env = append(os.Environ(), rootVariable+"=")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: 0}
	if r != nil {
		if p.dir, err = os.MkdirTemp("", "root-"); err != nil {
			return nil, err
		}
		r.Dir = p.dir
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		p.cmd.Env = append(os.Environ(), rootVariable+"="+string(text))
		p.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
		if r.Private {
			p.cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
		}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	set := setup()
	if r != nil {
		set.Listen = r.Listen
	}
	p.client, _, err = wire.NewClient(ctx, ours, set)
	if err != nil {
		p.close()
		return nil, fmt.Errorf("%w\n%s", err, p.log)
	}
	translate := typescript.NewTranslator(helpers)
	p.client.Translate(func(ctx context.Context, s sandbox.Source) (sandbox.Translation, error) {
		return translate(ctx, "o", s)
	})
	return p, nil
}

func (p *process) close() {
	if p.client != nil {
		p.client.Close()
	}
	select {
	case <-p.ended:
	case <-time.After(timeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	os.Remove(p.dir)
}

// quiet fails the test when the agent complained of anything, which the race
// detector does in it as well.
func (p *process) quiet(t *testing.T) {
	t.Helper()
	if said := p.log.String(); said != "" {
		t.Errorf("the agent said: %s", said)
	}
}

func newBackend(t *testing.T) *backend {
	return &backend{t: t, agents: map[*process]int{}, boxes: map[string]*process{}}
}

func (b *backend) Name() string { return "linux" }

func (b *backend) Probe(ctx context.Context) sandbox.Probe {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probe.Available {
		return b.probe
	}
	p, err := startAgent(ctx, nil)
	if err != nil {
		return sandbox.Probe{Reason: err.Error()}
	}
	defer p.close()
	b.probe = sandbox.Probe{Available: true, Engine: "linux"}
	if b.probe.Runtimes, err = p.client.Runtimes(ctx); err != nil {
		return sandbox.Probe{Reason: err.Error()}
	}
	return b.probe
}

func (b *backend) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	if spec.Limits.Metered {
		return nil, fault.New(fault.Unsupported, "fuel is not counted")
	}
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return nil, fault.New(fault.Unavailable, "closed")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := b.agentOf(ctx, spec)
	if err != nil {
		return nil, err
	}
	in, err := p.client.Start(ctx, bodyOf(spec))
	if err != nil {
		b.leave(p)
		return nil, err
	}
	return &instance{in: in, backend: b, process: p, ProcessManager: in.Overseer()}, nil
}

// agentOf gives the agent of a Spec, and counts the caller as one who is in it.
func (b *backend) agentOf(ctx context.Context, spec sandbox.Spec) (*process, error) {
	box := spec.Owner + " " + spec.Box
	b.mu.Lock()
	if p := b.boxes[box]; spec.Box != "" && p != nil {
		b.agents[p]++
		b.mu.Unlock()
		return p, nil
	}
	b.mu.Unlock()
	r := &root{Mounts: spec.Mounts, Private: true}
	if spec.Proxy != nil {
		r.Listen = sandbox.ProxyPort
	}
	p, err := startAgent(context.WithoutCancel(ctx), r)
	if err != nil {
		return nil, err
	}
	p.client.Accept(spec.Proxy)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.agents[p]++
	if spec.Box != "" {
		p.box, b.boxes[box] = box, p
	}
	return p, nil
}

// leave counts one less in an agent, and ends it after the last.
func (b *backend) leave(p *process) {
	b.mu.Lock()
	b.agents[p]--
	last := b.agents[p] == 0
	if last && b.boxes[p.box] == p {
		delete(b.boxes, p.box)
	}
	b.mu.Unlock()
	if last {
		b.end(p)
	}
}

func bodyOf(spec sandbox.Spec) wire.StartBody {
	body := wire.StartBody{Runtime: spec.Runtime, Dir: spec.Dir, Env: spec.Env, MemoryBytes: spec.Limits.MemoryBytes}
	for _, m := range spec.Mounts {
		body.Mounts = append(body.Mounts, wire.MountBody{Guest: m.Guest, ReadOnly: m.ReadOnly, DiskBytes: m.DiskBytes})
	}
	return body
}

func (b *backend) end(p *process) {
	p.close()
	p.quiet(b.t)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.agents, p)
}

func (b *backend) Close() error {
	b.mu.Lock()
	b.closed = true
	var all []*process
	for p := range b.agents {
		all = append(all, p)
	}
	b.mu.Unlock()
	for _, p := range all {
		b.end(p)
	}
	return nil
}

// instance is one in an agent of its own.
type instance struct {
	sandbox.ProcessManager
	in      *wire.Instance
	backend *backend
	process *process
	left    sync.Once
}

func (i *instance) Run(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	if cmd.Limits.Fuel > 0 {
		return sandbox.Exit{}, fault.New(fault.Unsupported, "fuel is not counted")
	}
	exit, err := i.in.Run(ctx, cmd)
	exit.Engine = "linux"
	return exit, err
}

func (i *instance) Inspect(ctx context.Context) (sandbox.Inspection, error) { return i.in.Inspect(ctx) }
func (i *instance) Done() <-chan struct{}                                   { return i.in.Done() }

func (i *instance) Close() error {
	err := i.in.Close()
	i.left.Do(func() { i.backend.leave(i.process) })
	return err
}

func requireRoot(t *testing.T) {
	sandboxtest.Require(t, "root", os.Geteuid() == 0, "a file system of the test's own needs root")
}

func TestAnAgentWithoutABoxKeepsTheContract(t *testing.T) {
	requireRoot(t)
	sandboxtest.Run(t, sandboxtest.Suite{
		New:     func(t *testing.T, _ string) sandbox.Backend { return newBackend(t) },
		Machine: true,
		Programs: map[string]sandboxtest.Programs{
			"python": sandboxtest.Python(), "javascript": sandboxtest.JavaScript(), "bash": sandboxtest.Bash(),
		},
	})
}
