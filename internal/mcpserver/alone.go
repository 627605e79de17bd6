package mcpserver

import (
	"maps"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What definitions say of sessions, and what is true in its place for a client each of
// whose calls is alone: one over HTTP without Mcp-Session-Id, as all are that speak
// 2026-07-28, at an address that names no session.
const (
	staying      = "Variables, imports and files stay."
	aloneStaying = "Variables, imports and files stay in the result's session: pass session_id on."
	aloneSession = "From a result; else a new one"
)

// aloneDefinition is a tool's definition for such a client.
func aloneDefinition(t *mcp.Tool) *mcp.Tool {
	own := *t
	own.Description = strings.Replace(t.Description, staying, aloneStaying, 1)
	in, ok := t.InputSchema.(*jsonschema.Schema)
	if !ok || in.Properties["session_id"] == nil || in.Properties["session_id"].Description != aboutSession {
		return &own
	}
	schema, id := *in, *in.Properties["session_id"]
	id.Description = aloneSession
	schema.Properties = maps.Clone(in.Properties)
	schema.Properties["session_id"] = &id
	own.InputSchema = &schema
	return &own
}

// instructionsFor are what a model is told of it all.
func (s *Server) instructionsFor(alone bool) string {
	if alone {
		return s.aloneInstructions
	}
	return s.instructions
}
