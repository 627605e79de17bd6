package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"paddock/internal/bindings"
	"paddock/internal/bindings/upstream"
	"paddock/tests/mcp/suite"
)

// asClient is the variable that has this test binary be the suite's client.
const asClient = "PADDOCK_CONFORMANCE_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asClient) != "" {
		if err := beClient(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// The official suite looks at what a client sends, over HTTP and in a login.
func TestConformance(t *testing.T) {
	packages := suite.Install(t)
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asClient, "1")
	for _, revision := range suite.Revisions {
		t.Run(revision, func(t *testing.T) { packages.ClientConformance(t, path, revision, "testdata") })
	}
}

// redirect is where the suite's issuer sends browsers.
const redirect = "http://localhost:3000/callback"

// beClient does what a scenario wants to see.
func beClient(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var given struct {
		ClientID     string          `json:"client_id"`
		ClientSecret string          `json:"client_secret"`
		Calls        json.RawMessage `json:"toolCalls"`
	}
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			return err
		}
	}
	scenario := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	client, err := New(Config{
		Server: "suite", URL: url, Transport: http.DefaultTransport, Redirect: redirect,
		ClientID: given.ClientID, ClientSecret: given.ClientSecret,
		MetadataURL: "https://conformance-test.local/client-metadata.json",
		Machine:     scenario == "auth/client-credentials-basic",
	})
	if err != nil {
		return err
	}
	defer client.Close()
	for range 3 {
		err = visit(ctx, url, client, given.Calls)
		var needs *upstream.NeedsAuthorization
		if !errors.As(err, &needs) {
			return err
		}
		if err := logIn(ctx, client, Challenge{needs.ResourceMetadata, needs.Scope, needs.Code}); err != nil {
			return err
		}
	}
	return err
}

// visit lists the tools and calls them.
func visit(ctx context.Context, url string, tokens upstream.TokenSource, calls json.RawMessage) error {
	c, err := upstream.Dial(ctx, upstream.Server{Name: "suite", URL: url}, upstream.Options{Transport: http.DefaultTransport, Tokens: tokens})
	if err != nil {
		return err
	}
	defer c.Close()
	tools, err := c.Tools(ctx)
	if err != nil {
		return err
	}
	var wanted []struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if calls != nil {
		if err := json.Unmarshal(calls, &wanted); err != nil {
			return err
		}
		for _, w := range wanted {
			if _, err := c.Call(ctx, w.Name, w.Arguments, upstream.CallOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, tool := range tools {
		if _, err := c.Call(ctx, tool.Name, arguments(tool, tools), upstream.CallOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// arguments are some that fit a flat schema. A scenario wants to see the schema of
// another tool.
func arguments(tool bindings.Tool, all []bindings.Tool) json.RawMessage {
	var s struct {
		Properties map[string]struct{ Type string }
	}
	_ = json.Unmarshal(tool.Input, &s)
	some := map[string]any{}
	for name, p := range s.Properties {
		switch p.Type {
		case "object":
			for _, other := range all {
				if other.Name != tool.Name {
					some[name] = other.Input
				}
			}
		case "number", "integer":
			some[name] = 1
		case "boolean":
			some[name] = true
		case "string":
			some[name] = "x"
		}
	}
	text, _ := json.Marshal(some)
	return text
}

// logIn is a person with a browser, at an issuer that asks nothing.
func logIn(ctx context.Context, c *Client, challenge Challenge) error {
	login, err := c.Start(ctx, challenge)
	if err != nil {
		return err
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, login.URL, nil)
	if err != nil {
		return err
	}
	resp, err := browser.Do(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	return c.Finish(ctx, resp.Header.Get("Location"))
}
