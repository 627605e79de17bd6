package mcp

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/sandbox/sandboxtest"
)

func TestTheGoSDK(t *testing.T) {
	s := serve(t)
	client := &http.Client{Transport: bearer(s.token)}
	for name, dial := range map[string]func(*testing.T) sdk.Transport{
		"HTTP": func(*testing.T) sdk.Transport {
			return &sdk.StreamableClientTransport{Endpoint: s.url, HTTPClient: client}
		},
		"stdio": func(t *testing.T) sdk.Transport {
			cmd := exec.Command(sandboxtest.Binary(t), "mcp")
			cmd.Env = append(os.Environ(), environment(t, sandboxtest.Memory(t))...)
			return &sdk.CommandTransport{Command: cmd}
		},
	} {
		for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
			t.Run(name+" "+version, func(t *testing.T) { useGoSDK(t, dial(t), version) })
		}
	}
}

// bearer is a token that goes with each request.
type bearer string

// RoundTrip sends a request.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// timeout is how long a call may take here: less than a run is given.
const timeout = 4 * time.Minute

// goClient is one client, which names its session once it knows it.
type goClient struct {
	*sdk.ClientSession
	session  any
	progress chan string
}

func useGoSDK(t *testing.T, transport sdk.Transport, version string) {
	c := &goClient{progress: make(chan string, 100)}
	client := sdk.NewClient(&sdk.Implementation{Name: "paddock-tests", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) { c.progress <- req.Params.Message },
	})
	var err error
	if c.ClientSession, err = client.Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if got := c.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("it speaks %s", got)
	}
	listed, err := c.ListTools(t.Context(), nil)
	if err != nil || !slices.ContainsFunc(listed.Tools, func(t *sdk.Tool) bool { return t.Name == "execute_code" }) {
		t.Fatalf("the tools are %v, %v", listed, err)
	}
	c.run(t, "x = 42\nopen('a.txt', 'w').write('here')")
	if out := c.run(t, "print(x)"); out["stdout"] != "42\n" {
		t.Errorf("the second run: %v", out)
	}
	read, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "paddock://sessions/" + c.session.(string) + "/files/a.txt"})
	if err != nil || read.Contents[0].Text != "here" {
		t.Errorf("the file is %v, %v", read, err)
	}
	c.isCancelled(t)
}

func (c *goClient) call(ctx context.Context, code string) (*sdk.CallToolResult, error) {
	params := &sdk.CallToolParams{Name: "execute_code", Arguments: map[string]any{"language": "python", "code": code, "timeout": 600}}
	if c.session != nil {
		params.Arguments.(map[string]any)["session_id"] = c.session
	}
	params.SetProgressToken(code)
	return c.CallTool(ctx, params)
}

func (c *goClient) run(t *testing.T, code string) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	res, err := c.call(ctx, code)
	if err != nil || res.IsError {
		t.Fatalf("%q: %v, %v", code, res, err)
	}
	out := res.StructuredContent.(map[string]any)
	c.session = out["session_id"]
	return out
}

// isCancelled cancels a run once it tells of itself. The next one of its session
// could not begin before it has ended.
func (c *goClient) isCancelled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := c.call(ctx, "import time\nprint('begun')\ny = 1\ntime.sleep(600)"); ended <- err }()
	for message := ""; !strings.Contains(message, "begun"); {
		select {
		case message = <-c.progress:
		case err := <-ended:
			t.Fatalf("it ended with %v before it told of itself", err)
		case <-time.After(timeout):
			t.Fatal("there is no progress")
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a cancelled call has a result")
	}
	if out := c.run(t, "print(x + y)"); out["stdout"] != "43\n" {
		t.Errorf("the state after it: %v", out)
	}
}
