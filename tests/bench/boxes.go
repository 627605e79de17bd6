package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"paddock/internal/image"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
	"paddock/internal/session"
)

// imageName is what the image is called here.
const imageName = "bench"

// boxes are what the isolation linux is measured with.
type boxes struct {
	binary string
	dir    string // of this part's files, on the disk of the sessions
	state  string // the servers' state folder, with the image
	root   string // the image, unpacked
	env    []string
	rounds int
	t      *table
}

// linux measures the isolation of that name. What it is compared with are the
// same programs of the same image, on this machine's own kernel.
func (b bench) linux(ctx context.Context, dir string, t *table) error {
	if b.image == "" || os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "bench: without the isolation linux: it needs an image (-image) and root")
		return nil
	}
	dir = filepath.Join(dir, "linux")
	x := boxes{binary: b.binary, dir: dir, state: filepath.Join(dir, "state"), rounds: b.rounds, t: t}
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(x.state, 0o755)); err != nil {
		return err
	}
	images, err := image.Open(image.Config{Dir: filepath.Join(x.state, "images")})
	if err != nil {
		return err
	}
	if _, err := images.Import(ctx, b.image, imageName, nil); err != nil {
		return fmt.Errorf("importing the image: %w", err)
	}
	root, release, err := images.Rootfs(ctx, imageName)
	if err != nil {
		return err
	}
	defer release()
	x.root, x.env = root.Dir, root.Settings.Env
	for _, do := range []func(context.Context) error{x.cold, x.served, x.burst, x.kept, x.programs} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open opens a state folder of its own for sessions in boxes.
func (x boxes) open(name string) (*place, error) {
	dir := filepath.Join(x.dir, name)
	b, err := linux.New(linux.Config{
		Dir: filepath.Join(dir, "boxes"), Image: imageName,
		Images: func(context.Context, string) (linux.Image, error) { return linux.Image{Dir: x.root, Env: x.env}, nil },
	})
	if err != nil {
		return nil, err
	}
	m, err := session.New(session.Config{
		Dir: dir, Backends: []sandbox.Backend{b}, MemoryBytes: 1 << 30, DiskBytes: 2 << 30, OwnerDiskBytes: 64 << 30, SleepAfter: -1,
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return &place{Manager: m, dir: dir, boxes: b}, nil
}

// say runs code that has to end well; what is told of its state besides, such as
// that variables are gone, is no error here.
func (p *place) say(ctx context.Context, id session.ID, language, code string) (session.Result, error) {
	r, err := p.Execute(ctx, session.Local, id, session.Request{Code: code, Language: language, Timeout: programTime})
	if err == nil && r.Exit.Error != nil {
		err = fmt.Errorf("%s: %s", r.Exit.Error.Type, r.Exit.Error.Message)
	}
	return r, err
}

// python is a new python3 of the image, on this machine's kernel, that prints.
func (x boxes) python() error {
	out, err := native(x.root, x.dir, x.env, "python3", "-c", "print(1)")
	if err == nil && out != "1\n" {
		err = fmt.Errorf("python3 printed %q", out)
	}
	return err
}

// begin makes a session and runs code in it.
func (p *place) begin(ctx context.Context, code string) (session.ID, error) {
	i, err := p.Create(ctx, session.Local, "", session.Settings{Language: "python"})
	if err == nil {
		_, err = p.say(ctx, i.ID, "python", code)
	}
	return i.ID, err
}

// kept measures what a session takes, and what becomes of sessions that are not
// new.
func (x boxes) kept(ctx context.Context) error {
	p, err := x.open("kept")
	if err != nil {
		return err
	}
	defer p.close()
	if err := x.memory(ctx, p); err != nil {
		return err
	}
	n := max(x.rounds/20, 5)
	var id session.ID
	end := func() error { return p.Destroy(ctx, session.Local, id) }
	fresh, err := measure(n, func() (err error) { id, err = p.begin(ctx, usual); return err }, end)
	if err != nil {
		return err
	}
	base := func(name string, s sample, target string) {
		x.t.add(name, s.at(0.5), fresh.at(0.5), "a new session's first result (p50)", target)
	}
	if id, err = p.begin(ctx, usual); err != nil {
		return err
	}
	var fork session.ID
	forked, err := measure(n, func() error {
		made, err := p.Fork(ctx, session.Local, id, "", 1)
		if err != nil {
			return err
		}
		fork = made[0].ID
		_, err = p.say(ctx, fork, "python", usualNext)
		return err
	}, func() error { return p.Destroy(ctx, session.Local, fork) })
	if err != nil {
		return err
	}
	base("fork of a live session to its first result (p50)", forked, "<= 200 ms")
	asleep := func() error { return p.Sleep(session.Local, id) }
	if err := asleep(); err != nil {
		return err
	}
	woken, err := measure(n, func() error { _, err := p.say(ctx, id, "python", usualNext); return err }, asleep)
	if err != nil {
		return err
	}
	base("wake from disk to a result (p50)", woken, "<= 1 s")
	return end()
}

// memory is what a session takes in which one small program has run.
func (x boxes) memory(ctx context.Context, p *place) error {
	id, err := p.begin(ctx, "1")
	if err != nil {
		return err
	}
	ours, err := p.privateOf(ctx, id)
	if err != nil {
		return err
	}
	theirs, err := privateMemory("python3", "-c", "print(1, flush=True)\nimport sys\nsys.stdin.read()")
	if err != nil {
		return err
	}
	x.t.rows = append(x.t.rows, []string{
		x.t.engine, "memory of an idle sandbox with python (unique)", mib(ours), "python3 process (private)", mib(theirs), fmt.Sprintf("%.2fx", ours/theirs), "",
	})
	return p.Destroy(ctx, session.Local, id)
}

func mib(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }

// privateOf is what a session's machine has that nothing else has: the memory that
// is in no file, of its two processes and what they started, and the file in which
// its programs' memory is.
func (p *place) privateOf(ctx context.Context, id session.ID) (float64, error) {
	u, err := p.Usage(ctx, session.Local, id)
	if err != nil {
		return 0, err
	}
	sum := float64(u.Memory)
	pids, err := children("self")
	if err != nil {
		return 0, err
	}
	for len(pids) > 0 {
		rollup, err := os.ReadFile("/proc/" + pids[0] + "/smaps_rollup")
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(rollup)) {
			if rest, ok := strings.CutPrefix(line, "Pss_Anon:"); ok {
				n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				if err != nil {
					return 0, err
				}
				sum += n * 1024
			}
		}
		more, err := children(pids[0])
		if err != nil {
			return 0, err
		}
		pids = append(pids[1:], more...)
	}
	return sum, nil
}

// children are the processes that a process has started.
func children(pid string) (all []string, err error) {
	lists, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	for _, list := range lists {
		if text, err := os.ReadFile(list); err == nil { // else the thread has ended
			all = append(all, strings.Fields(string(text))...)
		}
	}
	return all, err
}
