// Package bindings is other MCP servers as functions that programs in a sandbox
// call: what their tools are called, what they take and what they give.
package bindings

import "encoding/json"

// Tool is one tool of a server, as the server describes it. All of it is the
// server's word: it is shown and checked, and never executed or believed.
type Tool struct {
	Name        string
	Title       string
	Description string
	// Input and Output are JSON Schemas, byte for byte as they came. An Output of
	// nil says that the server gave none.
	Input, Output json.RawMessage
	Annotations   Annotations
}

// Annotations are a server's hints about a tool; nil: it gave none.
type Annotations struct {
	ReadOnly    *bool // it changes nothing
	Destructive *bool // it may remove or overwrite
	Idempotent  *bool // calling it twice is calling it once
	OpenWorld   *bool // it deals with more than what its server holds
}
