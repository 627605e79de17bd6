package mcpserver

import (
	"cmp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/mcpserver/transport"
)

// quirks are what a client needs that others do not. The zero quirks are the
// form for everyone: structured content and, besides it, the same as text and
// pictures. docs/clients.md tells where each comes from.
type quirks struct {
	// structuredHidesImages: given structured content, the client shows its
	// model nothing else. A result with pictures has none then; its first text
	// block is what would have been in it.
	structuredHidesImages bool
	// noResources: the client gives its model an embedded resource as raw JSON.
	// Documents are text blocks then.
	noResources bool
	// blocksOnly: for a tool with an output schema the client shows its model the
	// texts of a result and no picture. Its tools have none, and its results no
	// structured content.
	blocksOnly bool
}

// clients is keyed by the beginning of the name that a client gives for itself;
// bridges append theirs.
var clients = []struct {
	prefix string
	quirks quirks
}{
	{"codex", quirks{structuredHidesImages: true, noResources: true}},
}

// quirksOf are those of a client.
func quirksOf(c transport.Client) quirks {
	if c.UntypedApps {
		return quirks{blocksOnly: true}
	}
	if c.Info != nil {
		for _, known := range clients {
			if strings.HasPrefix(strings.ToLower(c.Info.Name), known.prefix) {
				return known.quirks
			}
		}
	}
	return quirks{}
}

// clientOf is the client that makes a request.
func clientOf(req interface {
	ClientInfo() *mcp.Implementation
	ClientCapabilities() *mcp.ClientCapabilities
}) transport.Client {
	if can := req.ClientCapabilities(); can != nil {
		return transport.ClientOf(req.ClientInfo(), can.Extensions)
	}
	return transport.ClientOf(req.ClientInfo(), nil)
}

// result makes of an answer what this client shows best.
func (q quirks) result(a answer) *mcp.CallToolResult {
	if a.inputs != nil {
		return &mcp.CallToolResult{InputRequests: a.inputs, RequestState: a.state}
	}
	res := &mcp.CallToolResult{StructuredContent: a.data, Content: []mcp.Content{}}
	if q.blocksOnly {
		res.StructuredContent = nil
	}
	var shown []mcp.Content
	pictured := false
	for _, s := range a.shown {
		if s.image != nil {
			pictured = true
		}
		if c := q.content(s); c != nil {
			shown = append(shown, c)
		}
	}
	texts := a.texts
	if pictured && q.structuredHidesImages {
		res.StructuredContent, texts = nil, []string{string(a.data)}
	} else if len(texts) == 0 && len(shown) == 0 {
		texts = []string{string(a.data)}
	}
	for _, t := range texts {
		res.Content = append(res.Content, &mcp.TextContent{Text: t})
	}
	res.Content = append(append(res.Content, shown...), a.extra...)
	return res
}

// content is how one display is shown; nil: the texts tell why it is not.
func (q quirks) content(s shown) mcp.Content {
	switch {
	case s.image != nil:
		return &mcp.ImageContent{MIMEType: cmp.Or(s.shownAs, s.MIMEType), Data: s.image}
	case s.Problem != "":
		return nil
	case s.Path != "" && s.Text == "":
		return nil
	case q.noResources, s.Path != "", s.Text == "", s.MIMEType == "text/plain", s.MIMEType == "text/markdown":
		return &mcp.TextContent{Text: s.Text}
	}
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: s.uri, MIMEType: s.MIMEType, Text: s.Text}}
}

// definitions are a list of tools as this client needs them.
func (q quirks) definitions(tools []*mcp.Tool) []*mcp.Tool {
	if !q.blocksOnly {
		return tools
	}
	own := make([]*mcp.Tool, len(tools))
	for i, t := range tools {
		without := *t
		without.OutputSchema = nil
		own[i] = &without
	}
	return own
}
