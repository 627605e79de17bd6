package mcpserver

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// approvalRig is a server whose programs' calls a person has to allow.
type approvalRig struct {
	t      *testing.T
	server *Server
	store  *approval.Store
	made   atomic.Int64 // how many calls were let through
	asked  chan string  // gets the id of each approval that is waited for
}

func newApprovalRig(t *testing.T, config Config) *approvalRig {
	return newApprovalRigIn(t, config, t.TempDir())
}

func newApprovalRigIn(t *testing.T, config Config, approvals string) *approvalRig {
	t.Helper()
	d := &approvalRig{t: t, asked: make(chan string, 100)}
	d.store = approval.Open(approvals, approval.Options{Record: func(_ context.Context, a approval.Approval) error {
		if a.State == approval.Pending {
			d.asked <- a.ID
		}
		return nil
	}})
	config.Approvals, config.AskClient = d.store, true
	if config.Binding == nil {
		config.Binding = func(_ context.Context, c transport.Caller) (Bound, error) {
			return Bound{Owner: "ann", Default: c.SessionID}, nil
		}
	}
	d.server = newServer(t, config, session.Config{Tools: &sessiontest.Tools{OnCall: d.call}, WaitInPlace: 20 * time.Millisecond})
	t.Cleanup(d.server.Close)
	return d
}

// call answers a program once a person has allowed it, with what it was given.
func (d *approvalRig) call(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	var body struct {
		Tool      string
		Arguments json.RawMessage
	}
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return nil
	}
	err := d.store.Approve(approval.WithSuspend(ctx, run.Suspend), approval.Request{
		Key:  approval.Key{Owner: string(run.Owner), Session: string(run.Session), Execution: run.Execution, Number: c.Number},
		Call: approval.Call{Server: "mail", Definition: "d", Tool: body.Tool, Arguments: body.Arguments},
	}, session.ErrSuspended)
	if err != nil {
		return transport.Encoded(map[string]any{"error": map[string]any{"kind": fault.KindOf(err), "message": err.Error()}})
	}
	d.made.Add(1)
	var arguments struct{ Text string }
	if json.Unmarshal(body.Arguments, &arguments) != nil {
		return nil
	}
	return transport.Encoded(map[string]any{"value": arguments.Text})
}

func (d *approvalRig) decide(id string, grant bool) {
	d.t.Helper()
	a, err := d.store.Find(id)
	if err == nil {
		_, err = d.store.Decide(d.t.Context(), a.Owner, id, approval.Decision{By: "boss", Grant: grant})
	}
	if err != nil {
		d.t.Error(err)
	}
}

// connect gives a client of an era over a transport, whose user answers so; nil: it has
// none.
func (d *approvalRig) connect(over, era string, answer func(*mcp.ElicitParams) *mcp.ElicitResult) *mcp.ClientSession {
	d.t.Helper()
	options := &mcp.ClientOptions{}
	if answer != nil {
		options.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) { return answer(r.Params), nil }
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	cs, err := client.Connect(d.t.Context(), d.transport(over), &mcp.ClientSessionOptions{ProtocolVersion: era})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = cs.Close() }) // the server's end is looked at elsewhere
	return cs
}

func (d *approvalRig) transport(over string) mcp.Transport {
	if over == "http" {
		return &mcp.StreamableClientTransport{Endpoint: d.serveHTTP(transport.Config{}), DisableStandaloneSSE: true}
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ctx, cancel := context.WithCancel(d.t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = d.server.ServeStdio(ctx, in, out) })
	d.t.Cleanup(func() { cancel(); _ = toServer.Close(); serving.Wait() })
	return &mcp.IOTransport{Reader: fromServer, Writer: toServer}
}

func (d *approvalRig) serveHTTP(c transport.Config) (url string) {
	d.t.Helper()
	h, err := d.server.Handler(c)
	if err != nil {
		d.t.Fatal(err)
	}
	return serveWeb(d.t, h)
}

func execute(t *testing.T, cs *mcp.ClientSession, args map[string]any) (out Execution, text string) {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "execute_code", Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := json.Marshal(res.StructuredContent); err != nil {
		t.Fatal(err)
	} else if json.Unmarshal(data, &out) != nil {
		t.Fatal("json.Unmarshal(data, &out): got an error, want none")
	}
	for _, c := range res.Content {
		if one, ok := c.(*mcp.TextContent); ok {
			text += one.Text + "\n"
		}
	}
	if res.IsError {
		t.Fatal(text)
	}
	return out, text
}

// What clients write, spelled here once more.
const (
	modern        = "2026-07-28"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerSession = "Mcp-Session-Id"
)

var eras = []string{"2025-06-18", "2025-11-25", modern}

// A program that waits in its call, and one that can be suspended, of three calls.
var (
	blocking = map[string]any{"language": "python", "code": `print(call("send", "7"))`}
	quietly  = map[string]any{"language": "python", "code": "x = gather(\"send\", 3)\nprint(x)"}
)

func says(action, decision string) func(*mcp.ElicitParams) *mcp.ElicitResult {
	return func(*mcp.ElicitParams) *mcp.ElicitResult {
		r := &mcp.ElicitResult{Action: action}
		if decision != "" {
			r.Content = map[string]any{"decision": decision}
		}
		return r
	}
}
