package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/tests/mcp/suite"
)

// The official suite asks for tools, prompts and resources that paddock does not
// have. Here it has them: what paddock can express is defined as paddock's own
// tools are, and the rest, which is between the SDK and a client, in
// conformance_sdk_test.go.
func TestConformanceWithFixtures(t *testing.T) {
	packages := suite.Install(t)
	for _, revision := range suite.Revisions {
		t.Run(revision, func(t *testing.T) {
			packages.Conformance(t, serveFixtures(t), revision, "testdata/conformance")
		})
	}
}

// serveFixtures serves them over HTTP, and gives where.
func serveFixtures(t *testing.T) (url string) {
	t.Helper()
	sets["fixtures"] = func(*Server, []session.Runtime) []tool { return append(fixtures(), taskFixtures()...) }
	t.Cleanup(func() { delete(sets, "fixtures") })
	// All requests share a session, so that there is a file to be listed.
	mine := func(context.Context, transport.Caller) (Bound, error) {
		return Bound{Owner: "suite", Default: "suite"}, nil
	}
	s := newServer(t, Config{Tools: append(slices.Clone(usual), "fixtures"), Skills: skillsFor(t, "suite"), Binding: mine, options: fixtureOptions, extend: addFixtures}, session.Config{})
	h, err := s.Handler(transport.Config{TasksDir: t.TempDir(), TaskAfter: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	url = serveWeb(t, h)
	if body := bodyOf(t, post(t, url, called(1, "write('a.txt', 'here')", ""))); !strings.Contains(body, `"success":true`) {
		t.Fatal(body)
	}
	return url
}

// serveWeb puts paddock's own web server before it, which checks hosts.
func serveWeb(t *testing.T, h *transport.Handler) (url string) {
	t.Helper()
	server, err := web.New(web.Config{Dev: true, MCP: h})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- server.Run(ctx, func(url string) { listening <- url }) }()
	t.Cleanup(func() {
		h.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case url = <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	return url
}

// said is the structured result of every fixture.
type said struct {
	Text string `json:"text"`
}

// fixture is a tool without arguments that always gives this answer.
func fixture(name string, a answer) tool {
	return define(name, name, "A fixture of the conformance suite", hints{readOnly: true}, func(*struct{}) []param { return nil },
		func(context.Context, *call, struct{}) (said, answer, error) { return said{name}, a, nil })
}

// fixtures are what a tool of paddock's can do.
func fixtures() []tool {
	embedded := &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "test://embedded-resource", MIMEType: "text/plain", Text: "This is an embedded resource"}}
	picture := shown{Display: Display{MIMEType: "image/png", Size: len(onePixel)}, image: onePixel}
	return []tool{
		fixture("test_simple_text", answer{texts: []string{"This is a simple text response for testing."}}),
		fixture("test_image_content", answer{shown: []shown{picture}}),
		fixture("test_audio_content", answer{extra: []mcp.Content{&mcp.AudioContent{MIMEType: "audio/wav", Data: silence}}}),
		fixture("test_embedded_resource", answer{extra: []mcp.Content{embedded}}),
		fixture("test_multiple_content_types", answer{texts: []string{"Multiple content types test:"}, shown: []shown{picture}, extra: []mcp.Content{embedded}}),
		define("test_error_handling", "Fails", "A tool that fails", hints{readOnly: true}, func(*struct{}) []param { return nil },
			func(context.Context, *call, struct{}) (said, answer, error) {
				return said{}, answer{}, fault.New(fault.Invalid, "This tool intentionally returns an error for testing")
			}),
		define("test_tool_with_progress", "Takes a while", "A tool that tells how far it is", hints{readOnly: true}, func(*struct{}) []param { return nil },
			func(_ context.Context, c *call, _ struct{}) (said, answer, error) {
				for _, done := range []float64{0, 50, 100} {
					if c.Notify != nil {
						c.Notify(done, fmt.Sprintf("%.0f of 100", done))
					}
				}
				return said{"done"}, answer{}, nil
			}),
		define("test_x_mcp_header", "By region", "A tool with an argument for whoever passes requests on", hints{readOnly: true},
			func(region *string) []param {
				p := text("region", region, 0, 100, "A region")
				p.schema.Extra = map[string]any{"x-mcp-header": "Region"}
				return []param{p}
			},
			func(_ context.Context, _ *call, region string) (said, answer, error) {
				return said{region}, answer{}, nil
			}),
		{
			definition: &mcp.Tool{Name: "json_schema_2020_12_tool", Description: "A tool with much of JSON Schema", InputSchema: json.RawMessage(fullSchema)},
			run: func(_ context.Context, _ *call, raw json.RawMessage) (answer, error) {
				return answer{texts: []string{string(raw)}, data: transport.Encoded(said{string(raw)})}, nil
			},
		},
	}
}

// taskFixtures are what may take long.
func taskFixtures() []tool {
	greet := define("greet", "Greet", "A tool that is quick", hints{readOnly: true},
		func(name *string) []param { return []param{text("name", name, 0, 100, "Whom")} },
		func(_ context.Context, _ *call, name string) (said, answer, error) {
			return said{name}, answer{texts: []string{"Hello, " + name + "!"}}, nil
		})
	type seconds struct {
		n     int64
		label string
	}
	slow := define("slow_compute", "Compute slowly", "A tool that may become a task", hints{readOnly: true},
		func(in *seconds) []param {
			return []param{number("seconds", &in.n, 0, 3600, "How long"), text("label", &in.label, 0, 100, "What for")}
		},
		func(ctx context.Context, _ *call, in seconds) (said, answer, error) {
			return said{in.label}, answer{}, wait(ctx, time.Duration(in.n)*time.Second)
		})
	failing := define("failing_job", "Fail", "A task that fails", hints{readOnly: true}, func(*struct{}) []param { return nil },
		func(ctx context.Context, _ *call, _ struct{}) (said, answer, error) {
			if err := wait(ctx, 200*time.Millisecond); err != nil {
				return said{}, answer{}, err
			}
			return said{}, answer{}, fault.New(fault.Invalid, "the job failed")
		})
	slow.mayTakeLong, failing.mayTakeLong = true, true
	return []tool{greet, slow, failing}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var (
	onePixel = must(base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="))
	silence  = must(base64.StdEncoding.DecodeString("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// fullSchema is the one that the suite looks for.
const fullSchema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
	"properties": {
		"name": {"type": "string"},
		"address": {"$ref": "#/$defs/address"},
		"contactMethod": {"type": "string", "enum": ["phone", "email"]},
		"phone": {"type": "string"},
		"email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]},
	"else": {"required": ["email"]},
	"additionalProperties": false
}`
