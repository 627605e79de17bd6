package broker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings/catalog"
	"paddock/internal/bindings/upstream"
)

// telltale is a server that says wherever it can what it is sent: in its description of a
// tool, results, errors, and answers that are none of the protocol.
func telltale(t *testing.T) *counterparty {
	c := empty(t)
	var mu sync.Mutex
	var said string // of all requests
	c.add(&mcp.Tool{Name: "tell"}, `{"type":"object","properties":{"how":{"type":"string"}}}`, func(args json.RawMessage) (*mcp.CallToolResult, error) {
		mu.Lock()
		all := said
		mu.Unlock()
		var a struct{ How string }
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, err
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(all))
		r := text("it has " + all + " or " + encoded)
		switch a.How {
		case "fail":
			r.IsError = true
		case "refuse":
			return nil, errors.New(all)
		case "structured":
			r.StructuredContent = map[string]any{all: encoded}
		}
		return r, nil
	})
	inner := c.Config.Handler
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		said = fmt.Sprintf("%v %v %v %v", r.Header.Get("Authorization"), r.Header.Get("X-Custom"), r.URL.RawQuery, r.Header.Get("X-Mode"))
		all := said
		mu.Unlock()
		w.Header().Set("X-Echo", all)
		if r.Header.Get("X-Mode") == "refuse" {
			http.Error(w, all, http.StatusForbidden)
			return
		}
		c.mcp.AddTool(&mcp.Tool{Name: "told", Description: "with " + all, InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
		inner.ServeHTTP(w, r)
	})
	return c
}

// A session gives a server a header with a token, and the server repeats it in all the
// ways that there are. Whoever sees what the server says, now or later, does not see it.
func TestHeadersThatASessionGaveAreNotRepeated(t *testing.T) {
	c, dir := telltale(t), t.TempDir()
	d := c.definition("mine")
	d.URL += "/mcp?api_key=qu3ry-s3cr3t&page=2"
	d.Headers = map[string]string{"Authorization": "Bearer t0ken-s3cr3t", "X-Custom": "an0ther-s3cr3t", "X-Mode": "ask"}
	var log bytes.Buffer
	var errs []string
	config := Config{
		Dir: dir, Seal: vault{}, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Record: func(_ context.Context, e Event) { errs = append(errs, fmt.Sprintf("%+v", e)) },
	}
	b := open(t, config)
	o, err := b.Bind(t.Context(), alice, d)
	if err != nil {
		t.Fatal(err)
	}
	told := []string{fmt.Sprintf("%+v", o)}
	use := func(b *Broker, s Session) {
		for i, how := range []string{"", "fail", "refuse", "structured"} {
			got := ask(t, b, Run{Session: s, Execution: "x"}, i+1, "mine", "tell", `{"how":"`+how+`"}`)
			if !strings.Contains(got, "(hidden)") {
				t.Errorf(`%s: got %q, want "(hidden)" in it`, how, got)
			} else if !strings.Contains(got, "page=2") {
				t.Errorf(`%s: got %q, want "page=2" in it`, how, got)
			}
			told = append(told, got)
		}
		folder := t.TempDir()
		if err := b.Provide(t.Context(), s, folder); err != nil {
			t.Fatal(err)
		}
		told = append(told, everything(t, folder))
		hits, err := b.Search(t.Context(), s, catalog.Query{Text: "told", Level: catalog.Full}, "")
		if err != nil {
			t.Errorf("got error %v, want none", err)
		} else if len(hits) == 0 {
			t.Error("hits is empty, want some")
		}
		told = append(told, fmt.Sprintf("%+v", Found(hits)))
	}
	use(b, alice)
	fork := Session{"alice", "fork"}
	if err := b.Copy(alice, fork); err != nil {
		t.Fatal(err)
	}
	use(b, fork)
	use(open(t, config), alice) // after a restart

	refused := d
	refused.Name, refused.Headers = "refused", map[string]string{"Authorization": "Bearer t0ken-s3cr3t", "X-Custom": "an0ther-s3cr3t", "X-Mode": "refuse"}
	_, err = b.Bind(t.Context(), alice, refused)
	var up *upstream.Error
	if !errors.As(err, &up) {
		t.Fatalf("it is bound: %v", err)
	}
	told = append(told, fmt.Sprintf("%v %+v", err, up))
	for i, text := range slices.Concat(told, errs, []string{log.String(), everything(t, dir)}) {
		for _, part := range []string{"s3cr3t", base64.StdEncoding.EncodeToString([]byte("Bearer t0ken"))[:14], "t0ken", "an0ther", "qu3ry"} {
			if strings.Contains(text, part) {
				t.Errorf("%d has %q: %s", i, part, text)
			}
		}
	}
}

// everything is all that lies in a folder.
func everything(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s: %s\n", path, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
