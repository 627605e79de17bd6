package mcpserver

import (
	"context"
	"crypto/rand"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
)

var _ transport.Server = (*Server)(nil)

// ServeStdio serves the local user over a pair of streams, and closes both
// ([transport.ServeStdio]). The requests of one ServeStdio share a default session.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	whose := Bound{Owner: session.Local, Default: "stdio-" + rand.Text()}
	return transport.ServeStdio(context.WithValue(ctx, stdioKey{}, whose), s.mcp, in, out)
}

// Handler serves over HTTP. It ends with its Close.
func (s *Server) Handler(config transport.Config) (*transport.Handler, error) {
	return transport.NewHandler(s, transport.Base{
		Log: s.log, Memory: s.config.Memory, Implementation: s.implementation(), AskClient: s.config.AskClient,
	}, config)
}

// Owner implements [transport.Server].
func (s *Server) Owner(ctx context.Context, from transport.Caller) (session.Owner, error) {
	b, err := s.bind(ctx, from)
	return b.Owner, err
}

// Tool implements [transport.Server].
func (s *Server) Tool(name string) (transport.Tool, bool) {
	t, ok := s.tools[name]
	return transport.Tool{Set: t.set, MayTakeLong: t.mayTakeLong}, ok
}

// Call implements [transport.Server].
func (s *Server) Call(ctx context.Context, c transport.Call) *mcp.CallToolResult {
	return (&call{server: s, Call: c}).serve(ctx, s.tools[c.Tool])
}

// SessionEnded implements [transport.Server]. A default session that no call has named makes
// room for others.
func (s *Server) SessionEnded(owner session.Owner, id string) {
	if id := s.defaults.drop(Bound{Owner: owner, Default: id}); id != "" {
		s.passing.add(owner, id)
	}
}
