package tools

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// teller is the variable that has this test binary be a server that tells its variables.
const teller = "TOOLS_TEST_TELLER"

func TestMain(m *testing.M) {
	if os.Getenv(teller) != "" {
		if err := telling().Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// telling is a server that says its environment wherever it can.
func telling() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "teller", Version: "1"}, &sdk.ServerOptions{Instructions: "with " + os.Getenv("API_KEY")})
	all := strings.Join(os.Environ(), "\n")
	fmt.Fprintln(os.Stderr, all)
	schema := json.RawMessage(`{"type":"object","properties":{"how":{"type":"string","description":` + fmt.Sprintf("%q", os.Getenv("THING")) + `}}}`)
	s.AddTool(&sdk.Tool{Name: "tell", Description: "Tells the key " + os.Getenv("API_KEY"), InputSchema: schema}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var a struct{ How string }
		if err := json.Unmarshal(r.Params.Arguments, &a); err != nil {
			return nil, err
		}
		if token := r.Params.GetProgressToken(); token != nil {
			_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: all})
		}
		res := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: all}}}
		switch a.How {
		case "fail":
			res.IsError = true
		case "refuse":
			return nil, errors.New(all)
		case "resource":
			res.Content = []sdk.Content{
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "env://text", Text: all}},
				&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "env://blob", Blob: []byte(all), MIMEType: "application/octet-stream"}},
				&sdk.TextContent{Text: base64.StdEncoding.EncodeToString([]byte(all))},
			}
		case "structured":
			res.StructuredContent = map[string]any{"key": os.Getenv("API_KEY"), os.Getenv("THING"): true, "region": os.Getenv("REGION")}
		}
		return res, nil
	})
	return s
}

// TestVariablesOfAServerStayOnTheHost has a program ask a server for its variables, in
// every way, and looks for the credentials among them wherever a program, a client or an
// operator could find them. What is not a credential is told.
func TestVariablesOfAServerStayOnTheHost(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("[servers.teller]\ncommand = %q\nenv = { %s = \"1\", API_KEY = \"k3y-s3cr3t-one\", THING = \"a ${OF_THE_HOST}\", REGION = \"eu-west-1\", MODE = \"ordinary\" }\n", self, teller)
	inEach(t, everywhere, func(*testing.T) options {
		return options{config: config, env: []string{"OF_THE_HOST=th1ng-s3cr3t-two"}}
	}, func(t *testing.T, m *model) {
		m.waitFor(t, "teller")
		e := m.run(t, "python", `
import os
from servers import teller, ToolError
said = []
for how in "", "fail", "refuse", "resource", "structured":
    try:
        said.append(teller.tell(how=how))
    except ToolError as e:
        said.append([str(e), e.kind])
for top in "/servers", "/workspace", "/tmp":
    for folder, _, names in os.walk(top):
        for name in names:
            said.append(open(os.path.join(folder, name), "rb").read())
text = repr(said) + repr([getattr(s, "__dict__", None) for s in said])
print(text)
import base64
print([n for n in ("s3cr"+"3t", (b"s3cr"+b"3t").hex()) if n in text],
    [base64.b64encode(b"."*k + v)[4:12].decode() in text for v in (b"k3y-s3cr"+b"3t-one", b"th1ng-s3cr"+b"3t-two") for k in range(3)],
    len(said) > 5, "API_KEY=(hidden)" in text, "THING=a (hidden)" in text, "REGION=eu-west-1" in text, "MODE=ordinary" in text)
`)
		lines := strings.Split(strings.TrimSpace(e.Stdout), "\n")
		if want := "[] [False, False, False, False, False, False] True True True True True"; !e.Success || lines[len(lines)-1] != want {
			t.Errorf("it finds %s; %.5000s %+v", lines[len(lines)-1], e.Stdout+e.Stderr, e.Error)
		}
		info := m.call(t, "get_workspace_info", map[string]any{}, &struct{}{})
		found := m.call(t, "search_tools", map[string]any{"query": "tells the key", "limit": 3}, &struct{}{})
		for _, told := range []any{e, info, found} {
			if text, err := json.Marshal(told); err != nil || strings.Contains(string(text), "s3cr3t") {
				t.Errorf("it is told: %s, %v", text, err)
			}
		}
		m.Close()
		if strings.Contains(m.logged(), "s3cr3t") {
			t.Error("it is in the log")
		}
		err := filepath.WalkDir(filepath.Join(m.dir, "state"), func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if strings.Contains(string(data), "s3cr3t") {
				t.Errorf("it is in %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
