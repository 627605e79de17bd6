package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// refill is how long a server gets, unused, to prepare for the next session.
const refill = 1500 * time.Millisecond

// command is paddock with the image as its default.
func (x boxes) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, x.binary, args...)
	cmd.Env = append(os.Environ(), "PADDOCK_STATE_DIR="+x.state, "PADDOCK_SANDBOX_ISOLATION=linux", "PADDOCK_SANDBOX_IMAGE="+imageName,
		"PADDOCK_SESSIONS_MAX_SESSIONS_PER_CLIENT=100", "PADDOCK_LIMITS_MAX_QUEUE_SECONDS=600")
	cmd.Stderr = os.Stderr
	return cmd
}

// cold is from no process of paddock to the end of one that has run a program.
func (x boxes) cold(ctx context.Context) error {
	run := func() error {
		out, err := x.command(ctx, "run", "-c", "print(1)").Output()
		if err == nil && string(out) != "1\n" {
			err = fmt.Errorf("it printed %q", out)
		}
		return err
	}
	if err := run(); err != nil { // finds out what the machine can do
		return err
	}
	n := max(x.rounds/20, 5)
	whole, err := measure(n, run)
	if err != nil {
		return err
	}
	base, err := measure(n, x.python)
	if err != nil {
		return err
	}
	x.t.add("paddock run, print, whole (p50)", whole.at(0.5), base.at(0.5), "new python3 process (p50)", "<= 250 ms")
	return nil
}

// client is one of a server's.
type client struct {
	*mcp.ClientSession
}

func (x boxes) connect(ctx context.Context) (client, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "paddock-bench", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.CommandTransport{Command: x.command(ctx, "mcp")}, nil)
	if err != nil {
		return client{}, fmt.Errorf("connecting to %s mcp: %w", x.binary, err)
	}
	return client{session}, nil
}

func (c client) call(ctx context.Context, name string, arguments map[string]any) (map[string]any, error) {
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		return nil, err
	}
	content, _ := r.StructuredContent.(map[string]any)
	if r.IsError {
		return nil, fmt.Errorf("%s: %v", name, content)
	}
	return content, nil
}

// first makes a session with these settings and gives its id when it has printed.
func (c client) first(ctx context.Context, settings map[string]any) (any, error) {
	made, err := c.call(ctx, "create_session", settings)
	if err != nil {
		return nil, err
	}
	ran, err := c.call(ctx, "execute_code", map[string]any{"language": "python", "code": "print(1)", "session_id": made["session_id"]})
	if err == nil && ran["stdout"] != "1\n" {
		err = fmt.Errorf("it printed %q", ran["stdout"])
	}
	return made["session_id"], err
}

// served measures what a client of a server over stdio sees.
func (x boxes) served(ctx context.Context) error {
	c, err := x.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	n := max(x.rounds/10, 5)
	var opened any
	memory := 400 // of a machine, MiB; one that nobody had before is not there already
	cold := func() (err error) {
		memory++
		opened, err = c.first(ctx, map[string]any{"language": "python", "memory_mb": memory})
		return err
	}
	prepared := func() (err error) {
		opened, err = c.first(ctx, map[string]any{"language": "python"})
		return err
	}
	end := func() error {
		_, err := c.call(ctx, "destroy_session", map[string]any{"session_id": opened})
		return err
	}
	rest := func() error { time.Sleep(refill); return nil }
	base, err := measure(n, x.python)
	if err != nil {
		return err
	}
	colds, err := measure(n, cold, end)
	if err != nil {
		return err
	}
	x.t.add("create session, print, cold (p50)", colds.at(0.5), base.at(0.5), "new python3 process (p50)", "<= 300 ms")
	if _, err := measure(1, prepared, end, rest); err != nil {
		return err
	}
	rested, err := measure(n, prepared, end, rest)
	if err != nil {
		return err
	}
	x.t.add("create session, print, from the pool (p50)", rested.at(0.5), base.at(0.5), "new python3 process (p50)", "<= 30 ms")
	return x.warm(ctx, c)
}

// warm measures calls of sessions that live, each with its synced checkpoint.
func (x boxes) warm(ctx context.Context, c client) error {
	n := x.rounds
	idle, err := measure(n, func() error { _, err := c.call(ctx, "list_runtimes", nil); return err })
	if err != nil {
		return err
	}
	for _, l := range []struct{ language, code string }{{"python", "print(1)"}, {"javascript", "console.log(1)"}, {"bash", "echo 1"}} {
		made, err := c.call(ctx, "create_session", map[string]any{"language": l.language})
		if err != nil {
			return err
		}
		run := func() error {
			ran, err := c.call(ctx, "execute_code", map[string]any{"language": l.language, "code": l.code, "session_id": made["session_id"]})
			if err == nil && ran["stdout"] != "1\n" {
				err = fmt.Errorf("it printed %q", ran["stdout"])
			}
			return err
		}
		if err := run(); err != nil {
			return err
		}
		s, err := measure(n, run)
		if err != nil {
			return err
		}
		x.t.add("warm call, "+l.language+" (p50)", s.at(0.5), idle.at(0.5), "a tool that does nothing (p50)", "<= 5 ms")
		if _, err := c.call(ctx, "destroy_session", map[string]any{"session_id": made["session_id"]}); err != nil {
			return err
		}
	}
	return nil
}

// burstSize is how many sessions begin at once.
const burstSize = 50

// burst is how long as many sessions take that a client makes all at once.
func (x boxes) burst(ctx context.Context) error {
	c, err := x.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ours, err := together(func() error {
		_, err := c.first(ctx, map[string]any{"language": "python"})
		return err
	})
	if err != nil {
		return err
	}
	theirs, err := together(x.python)
	if err != nil {
		return err
	}
	x.t.add(fmt.Sprintf("%d sessions at once, print (wall)", burstSize), ours, theirs, fmt.Sprintf("%d python3 processes (wall)", burstSize), "<= 8 s")
	return nil
}

// together calls f from that many goroutines at once.
func together(f func() error) (time.Duration, error) {
	errs := make([]error, burstSize)
	var all sync.WaitGroup
	begin := time.Now()
	for i := range errs {
		all.Go(func() { errs[i] = f() })
	}
	all.Wait()
	wall := time.Since(begin)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return wall, nil
}
