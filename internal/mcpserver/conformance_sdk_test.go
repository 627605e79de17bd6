//lint:file-ignore SA1019 The suite asks for sampling, roots and logging as well, which the protocol is giving up.

package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/mcpserver/transport"
)

// fixtureOptions are what the suite wants of a server and paddock has no use for.
func fixtureOptions(o *mcp.ServerOptions) {
	o.Capabilities.Tools.ListChanged, o.Capabilities.Prompts.ListChanged = true, true
	o.CompletionHandler = func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
		return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"one"}, Total: 1}}, nil
	}
	o.SubscribeHandler = func(context.Context, *mcp.SubscribeRequest) error { return nil }
	o.UnsubscribeHandler = func(context.Context, *mcp.UnsubscribeRequest) error { return nil }
}

// addFixtures adds what goes past paddock: what a server may ask of its client,
// prompts, and resources of another kind.
func addFixtures(s *mcp.Server) {
	addQuestions(s)
	addRounds(s)
	addNotices(s)
	addPrompts(s)
	addDocuments(s)
}

type toolFunc = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)

func add(s *mcp.Server, name string, f toolFunc) {
	s.AddTool(&mcp.Tool{Name: name, Description: "A fixture of the conformance suite", InputSchema: &jsonschema.Schema{Type: "object"}}, f)
}

func words(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// addQuestions adds tools that ask a legacy client while they run.
func addQuestions(s *mcp.Server) {
	add(s, "test_sampling", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := req.Session.CreateMessage(ctx, question("Say something"))
		if err != nil {
			return nil, err
		}
		return words("LLM response: %s", transport.Encoded(res.Content)), nil
	})
	for name, schema := range map[string]any{"test_elicitation": object("username", "string"), "test_elicitation_sep1034_defaults": defaultsSchema, "test_elicitation_sep1330_enums": enumsSchema} {
		add(s, name, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Please answer", RequestedSchema: schema})
			if err != nil {
				return nil, err
			}
			return words("Elicitation result: action=%s, content=%s", res.Action, transport.Encoded(res.Content)), nil
		})
	}
	add(s, "test_reconnection", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.Extra != nil && req.Extra.CloseSSEStream != nil {
			req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
		}
		time.Sleep(100 * time.Millisecond) // the client comes back meanwhile
		return words("reconnected"), nil
	})
}

func question(text string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}, MaxTokens: 100}
}

func object(property, kind string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{property: {Type: kind}}, Required: []string{property}}
}

func asked(property, kind string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: "Please answer", RequestedSchema: object(property, kind)}
}

type fields = map[string]any

var defaultsSchema = fields{"type": "object", "properties": fields{
	"name":     fields{"type": "string", "default": "John Doe"},
	"age":      fields{"type": "integer", "default": 30},
	"score":    fields{"type": "number", "default": 95.5},
	"status":   fields{"type": "string", "enum": []string{"active", "inactive", "pending"}, "default": "active"},
	"verified": fields{"type": "boolean", "default": true},
}}

var enumsSchema = fields{"type": "object", "properties": fields{
	"untitledSingle": fields{"type": "string", "enum": []string{"option1", "option2", "option3"}},
	"titledSingle":   fields{"type": "string", "oneOf": titled},
	"legacyEnum":     fields{"type": "string", "enum": []string{"opt1", "opt2", "opt3"}, "enumNames": []string{"One", "Two", "Three"}},
	"untitledMulti":  fields{"type": "array", "minItems": 1, "maxItems": 3, "items": fields{"type": "string", "enum": []string{"option1", "option2", "option3"}}},
	"titledMulti":    fields{"type": "array", "minItems": 1, "maxItems": 3, "items": fields{"anyOf": titled}},
}}

var titled = []fields{{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}, {"const": "value3", "title": "Third"}}

// addRounds adds tools that need several requests of a modern client.
func addRounds(s *mcp.Server) {
	name, greeting, roots, ok := asked("name", "string"), question("Say hello"), &mcp.ListRootsParams{}, asked("ok", "boolean")
	for _, c := range []struct {
		name  string
		wants mcp.InputRequestMap
		state string
	}{
		{"elicitation", mcp.InputRequestMap{"user_name": name}, ""},
		{"sampling", mcp.InputRequestMap{"capital_question": greeting}, ""},
		{"list_roots", mcp.InputRequestMap{"client_roots": roots}, ""},
		{"request_state", mcp.InputRequestMap{"confirm": ok}, "a state"},
		{"tampered_state", mcp.InputRequestMap{"confirm": ok}, "another state"},
		{"multiple_inputs", mcp.InputRequestMap{"user_name": name, "greeting": greeting, "client_roots": roots}, "a third state"},
	} {
		add(s, "test_input_required_result_"+c.name, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := checkState(req.Params.RequestState, c.state); err != nil {
				return nil, err
			}
			for key := range c.wants {
				if !answered(req.Params.InputResponses[key]) {
					return &mcp.CallToolResult{InputRequests: c.wants, RequestState: c.state}, nil
				}
			}
			return words("state-ok: %s", transport.Encoded(req.Params.InputResponses)), nil
		})
	}
	add(s, "test_input_required_result_multi_round", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch req.Params.RequestState {
		case "":
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"step1": name}, RequestState: "1"}, nil
		case "1":
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"step2": asked("color", "string")}, RequestState: "2"}, nil
		}
		return words("done"), nil
	})
	add(s, "test_input_required_result_capabilities", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if len(req.Params.InputResponses) > 0 {
			return words("done"), nil
		}
		wants := mcp.InputRequestMap{}
		if c := req.ClientCapabilities(); c != nil && c.Elicitation != nil {
			wants["user_name"] = name
		}
		if c := req.ClientCapabilities(); c != nil && c.Sampling != nil {
			wants["greeting"] = greeting
		}
		return &mcp.CallToolResult{InputRequests: wants}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "test_input_required_result_prompt", Description: "Asks first"}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		if !answered(req.Params.InputResponses["user_context"]) {
			return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{"user_context": asked("context", "string")}}, nil
		}
		return prompt(&mcp.TextContent{Text: "Context"}), nil
	})
}

func checkState(got, want string) error {
	if got == "" || got == want {
		return nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: this requestState is not from here"}
}

// answered tells whether a client gave what it was asked for.
func answered(r mcp.InputResponse) bool {
	if e, ok := r.(*mcp.ElicitResult); ok {
		return e.Action == "accept" && len(e.Content) > 0
	}
	return r != nil
}

// addNotices adds tools that send a client notifications in addition to their result.
func addNotices(s *mcp.Server) {
	for _, name := range []string{"test_tool_with_logging", "test_logging_tool"} {
		add(s, name, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
				if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: text}); err != nil {
					return nil, err
				}
			}
			return words("logged"), nil
		})
	}
	add(s, "test_streaming_elicitation", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return words("done"), nil })
	add(s, "test_missing_capability", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if c := req.ClientCapabilities(); c != nil && c.Sampling != nil {
			return words("done"), nil
		}
		needs := mcp.MissingRequiredClientCapabilityData{RequiredCapabilities: &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}}
		return nil, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "sampling is not declared", Data: transport.Encoded(needs)}
	})
	add(s, "test_trigger_tool_change", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		add(s, "test_streaming_elicitation", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return words("done"), nil })
		return words("changed"), nil
	})
	add(s, "test_trigger_prompt_change", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		addPrompts(s)
		return words("changed"), nil
	})
}

func prompt(parts ...mcp.Content) *mcp.GetPromptResult {
	res := &mcp.GetPromptResult{Description: "A fixture"}
	for _, p := range parts {
		res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: p})
	}
	return res
}

func addPrompts(s *mcp.Server) {
	for name, c := range map[string]struct {
		arguments []string
		parts     func(map[string]string) []mcp.Content
	}{
		"test_simple_prompt": {nil, func(map[string]string) []mcp.Content {
			return []mcp.Content{&mcp.TextContent{Text: "This is a simple prompt for testing."}}
		}},
		"test_prompt_with_arguments": {[]string{"arg1", "arg2"}, func(a map[string]string) []mcp.Content {
			return []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"])}}
		}},
		"test_prompt_with_embedded_resource": {[]string{"resourceUri"}, func(a map[string]string) []mcp.Content {
			return []mcp.Content{
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: a["resourceUri"], MIMEType: "text/plain", Text: "Embedded"}},
				&mcp.TextContent{Text: "Please process the embedded resource above."},
			}
		}},
		"test_prompt_with_image": {nil, func(map[string]string) []mcp.Content {
			return []mcp.Content{&mcp.ImageContent{MIMEType: "image/png", Data: onePixel}, &mcp.TextContent{Text: "Please analyze the image above."}}
		}},
	} {
		p := &mcp.Prompt{Name: name, Description: "A fixture of the conformance suite"}
		for _, a := range c.arguments {
			p.Arguments = append(p.Arguments, &mcp.PromptArgument{Name: a, Description: "An argument", Required: true})
		}
		s.AddPrompt(p, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return prompt(c.parts(req.Params.Arguments)...), nil
		})
	}
}

// addDocuments adds resources that are no workspace's files.
func addDocuments(s *mcp.Server) {
	read := func(c mcp.ResourceContents) mcp.ResourceHandler {
		return func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
			got := c
			got.URI, got.Text = req.Params.URI, strings.ReplaceAll(c.Text, "{id}", id)
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&got}}, nil
		}
	}
	for _, uri := range []string{"test://static-text", "test://watched-resource"} {
		s.AddResource(&mcp.Resource{URI: uri, Name: uri, MIMEType: "text/plain"}, read(mcp.ResourceContents{MIMEType: "text/plain", Text: "This is the content of the static text resource."}))
	}
	s.AddResource(&mcp.Resource{URI: "test://static-binary", Name: "static-binary", MIMEType: "image/png"}, read(mcp.ResourceContents{MIMEType: "image/png", Blob: onePixel}))
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template", MIMEType: "application/json"},
		read(mcp.ResourceContents{MIMEType: "application/json", Text: `{"id":"{id}","templateTest":true}`}))
}
