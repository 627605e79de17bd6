package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// benchMCP measures the binary as a client over stdio sees it.
func benchMCP(ctx context.Context, binary, dir string, t *table, n int) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "paddock-bench", Version: "1"}, nil)
	cmd := exec.Command(binary, "mcp", "--state-dir", filepath.Join(dir, "state"))
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return fmt.Errorf("connecting to %s mcp: %w", binary, err)
	}
	defer session.Close()
	call := func(name string, arguments map[string]any) (map[string]any, error) {
		r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
		if err != nil {
			return nil, err
		}
		if r.IsError {
			return nil, fmt.Errorf("%s: %v", name, r.StructuredContent)
		}
		content, _ := r.StructuredContent.(map[string]any)
		return content, nil
	}
	var opened any
	fresh := func() error {
		made, err := call("create_session", map[string]any{"language": "python"})
		if err != nil {
			return err
		}
		ran, err := call("execute_code", map[string]any{"language": "python", "code": "print(1)", "session_id": made["session_id"]})
		if err == nil && ran["stdout"] != "1\n" {
			err = fmt.Errorf("it printed %q", ran["stdout"])
		}
		opened = made["session_id"]
		return err
	}
	destroy := func() error {
		_, err := call("destroy_session", map[string]any{"session_id": opened})
		return err
	}
	warm := func() error {
		_, err := call("execute_code", map[string]any{"language": "python", "code": "print(1)"})
		return err
	}
	noop := func() error { _, err := call("list_runtimes", nil); return err }
	for _, f := range []func() error{fresh, destroy, warm, noop} {
		if err := f(); err != nil { // warms up
			return err
		}
	}
	freshly, err := measure(n, fresh, destroy)
	if err != nil {
		return err
	}
	warmly, err := measure(n, warm)
	if err != nil {
		return err
	}
	idle, err := measure(n, noop)
	if err != nil {
		return err
	}
	host, err := measure(n/10, hostPrints("python3", "-c", "print(1)"))
	if err != nil {
		return err
	}
	t.add("create session, print (p50)", freshly.at(0.5), host.at(0.5), "new python3 process (p50)", "<= 3 ms")
	t.add("warm call (p50)", warmly.at(0.5), idle.at(0.5), "a tool that does nothing (p50)", "<= 1 ms above")
	t.add("warm call (p99)", warmly.at(0.99), idle.at(0.99), "a tool that does nothing (p99)", "")
	return nil
}
