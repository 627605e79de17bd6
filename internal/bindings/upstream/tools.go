package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"paddock/internal/bindings"
	"paddock/internal/membudget"
	"paddock/internal/textsafe"
)

const (
	// mostTools is how many tools a server may have, in how many pages, and mostBytes
	// how large their definitions may be together. The largest server that is known
	// has some hundreds.
	mostTools = 5000
	mostPages = 1000
	mostBytes = 32 << 20
	// longestName is how long a tool's name may be, in bytes; the protocol's guidance
	// is 128.
	longestName = 1 << 10
	// defaultAge is how old a list may become of which the server says nothing,
	// leastAge how old any may: else a tool would be looked up for each call. A list
	// that the server says has changed is never used again.
	defaultAge = 5 * time.Minute
	leastAge   = 5 * time.Second
	longestAge = time.Hour
)

// known is a tool and what calls need of it.
type known struct {
	mirrors []mirror
	promise *outputCheck
}

// list is a server's list of tools, as far as it is known.
type list struct {
	turn    chan struct{} // holds one token while it is asked for
	changed func()        // is told when it is spoiled

	mu     sync.Mutex // guards what follows
	tools  []bindings.Tool
	out    []string // why others are left out
	byName map[string]*known
	until  time.Time
	epoch  int // grows whenever what is known is not to be used any more
	listed int // the epoch that tools are of
	have   bool
}

func (l *list) find(tool string) *known {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byName[tool]
}

// spoil has the list asked for again when it is next needed.
func (l *list) spoil() {
	l.mu.Lock()
	l.epoch++
	l.mu.Unlock()
	if l.changed != nil {
		l.changed()
	}
}

// fresh gives the list if it can be used.
func (l *list) fresh() (Listing, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.have || l.listed != l.epoch || !time.Now().Before(l.until) {
		return Listing{}, false
	}
	return l.listingLocked(), true
}

func (l *list) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

func (l *list) listingLocked() Listing {
	return Listing{Tools: l.tools, LeftOut: l.out, Until: l.until}
}

func (l *list) set(tools []bindings.Tool, out []string, age time.Duration, epoch int) Listing {
	byName := make(map[string]*known, len(tools))
	for _, t := range tools {
		headers, _ := mirrors(t.Input) // fetch has left out the tools where it matters
		byName[t.Name] = &known{mirrors: headers, promise: newOutputCheck(t.Output)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tools, l.out, l.byName, l.until, l.listed, l.have = tools, out, byName, time.Now().Add(age), epoch, true
	return l.listingLocked()
}

// Listing is a server's tools, in its order. The slices and what they point to are shared
// and not to be changed.
type Listing struct {
	Tools []bindings.Tool
	// LeftOut says which entries of its list are no tools that can be called, and why, in
	// words to be shown: the first of them, and how many more there are.
	LeftOut []string
	// Until is how long the server allows that the list is used, if it does not say
	// before that it has changed.
	Until time.Time
}

// Tools gives the server's tools in its order, all of them. They are asked for once
// and then kept for as long as the server allows (a server that allows nothing: five
// seconds; one that says nothing: five minutes), until it says that they have changed,
// or an error does. The slice and what it points to are shared and not to be changed.
// An error is an *Error.
func (c *Conn) Tools(ctx context.Context) ([]bindings.Tool, error) {
	l, err := c.List(ctx)
	return l.Tools, err
}

// List gives the same as [Conn.Tools], and how long it is good for.
func (c *Conn) List(ctx context.Context) (Listing, error) {
	if !c.begin() {
		return Listing{}, c.report("", newProblem(Closed, false, errClosed, "the connection has ended"))
	}
	defer c.calls.Done()
	ctx, cancel := c.bound(ctx, c.server.timeout())
	defer cancel()
	l, err := c.tools(ctx)
	return l, c.report("", err)
}

func (c *Conn) tools(ctx context.Context) (Listing, error) {
	if l, ok := c.list.fresh(); ok {
		return l, nil
	}
	select {
	case c.list.turn <- struct{}{}:
		defer func() { <-c.list.turn }()
	case <-ctx.Done():
		return Listing{}, asProblem(ctx.Err(), false)
	}
	if l, ok := c.list.fresh(); ok { // somebody else asked
		return l, nil
	}
	epoch := c.list.now()
	g, age, err := c.fetch(ctx)
	if err != nil {
		return Listing{}, err
	}
	out := g.leftOut()
	if len(out) > 0 {
		c.log.Warn("tools of a server are left out", "server", c.server.Name, "tools", strings.Join(out, "; "))
	}
	return c.list.set(g.tools, out, age, epoch), nil
}

// look finds a tool, if need be by asking for the list. Where that does not work the
// call goes without it.
func (c *Conn) look(ctx context.Context, tool string) *known {
	if _, err := c.tools(ctx); err != nil {
		c.log.Debug("the tools of a server cannot be listed before a call", "server", c.server.Name, "error", err)
	}
	return c.list.find(tool)
}

// invalidateList has the list asked for again after an error that says it is not right.
func (c *Conn) invalidateList(err error) {
	if p := asProblem(err, true); p.reason == Refused && (p.code == codeInvalidParams || p.code == codeNoMethod) {
		c.list.spoil()
	}
}

// checkResult does so after the result with which some servers say that there is no
// such tool.
func (c *Conn) checkResult(tool string, r Result) {
	if !r.IsError || len(r.Content) != 1 || !strings.Contains(r.Content[0].Text, tool) {
		return
	}
	text := strings.ToLower(r.Content[0].Text)
	for _, words := range []string{"unknown tool", "not found", "no such tool", "disabled"} {
		if strings.Contains(text, words) {
			c.list.spoil()
			return
		}
	}
}

// wireTool is a tool as it comes.
type wireTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema"`
	Annotations struct {
		Title       string `json:"title"`
		ReadOnly    *bool  `json:"readOnlyHint"`
		Destructive *bool  `json:"destructiveHint"`
		Idempotent  *bool  `json:"idempotentHint"`
		OpenWorld   *bool  `json:"openWorldHint"`
	} `json:"annotations"`
}

// gathering is a list as its pages come in.
type gathering struct {
	tools  []bindings.Tool
	names  map[string]bool
	out    []string // the first that are left out, and why
	outs   int      // how many there are
	nobody int      // of these, entries that are no tools with a name
}

// maxLeftOut is how many tools are named of those that are left out.
const maxLeftOut = 10

func (g *gathering) leave(format string, args ...any) {
	if g.outs++; len(g.out) < maxLeftOut {
		g.out = append(g.out, fmt.Sprintf(format, args...))
	}
}

// leftOut says what is left out.
func (g *gathering) leftOut() []string {
	if more := g.outs - len(g.out); more > 0 {
		return append(g.out, fmt.Sprintf("and %d more", more))
	}
	return g.out
}

// take takes an entry of the list; mirrored says that arguments may go into headers.
func (g *gathering) take(raw json.RawMessage, mirrored bool) {
	number := len(g.tools) + g.outs + 1
	t, ok := readTool(raw)
	name := textsafe.Line(t.Name, 128)
	switch _, err := mirrors(t.Input); {
	case !ok:
		g.nobody++
		g.leave("number %d of its list is not a tool with a name", number)
	case len(t.Name) > longestName:
		g.leave("%s: its name has more than %d bytes", name, longestName)
	case g.names[t.Name]:
		g.leave("%s: there is another one of that name before it", name)
	case !isSchema(t.Input) || !isSchema(t.Output):
		g.leave("%s: what it says of its arguments or its result is not a JSON Schema", name)
	case err != nil && mirrored:
		g.leave("%s: %v", name, err)
	default:
		g.names[t.Name] = true
		g.tools = append(g.tools, t)
	}
}

// isSchema tells whether something may be a schema; nil: there is none.
func isSchema(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return true
	}
	kind := kindOfJSON(trim(raw))
	return kind == "object" || kind == "boolean"
}

// fetch asks for all pages.
func (c *Conn) fetch(ctx context.Context) (g *gathering, age time.Duration, err error) {
	age, size, cursor := longestAge, 0, ""
	g, cursors := &gathering{names: map[string]bool{}}, map[string]bool{}
	for range mostPages {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		data, err := c.request(ctx, outgoing{id: c.ids.Add(1), method: "tools/list"}, nil, params)
		if asProblem(err, true).code == codeNoMethod && err != nil && cursor == "" {
			return g, defaultAge, nil // a server may have none
		}
		if err != nil {
			return nil, 0, err
		}
		if size += len(data); size > mostBytes {
			return nil, 0, tooMany("the definitions of its tools have more than %d bytes", mostBytes)
		}
		if size > 4*lightBytes {
			if err := membudget.Hold(ctx, 2*mostBytes); err != nil {
				return nil, 0, newProblem(TooLarge, true, err, "its list of tools is large, and there is no memory for it now")
			}
		}
		page, next, pageAge, err := readTools(data)
		if err != nil {
			return nil, 0, err
		}
		age = min(age, pageAge)
		for _, raw := range page {
			g.take(raw, c.era == Modern && c.server.URL != "")
		}
		if len(g.tools)+g.outs > mostTools {
			return nil, 0, tooMany("it has more than %d tools", mostTools)
		}
		if next == "" {
			if len(g.tools) == 0 && g.nobody > 0 {
				return nil, 0, malformed(nil, "nothing in its list of tools is a tool with a name")
			}
			return g, age, nil
		}
		if cursors[next] {
			return nil, 0, tooMany("its list of tools goes in circles")
		}
		cursors[next], cursor = true, next
	}
	return nil, 0, tooMany("its list of tools has more than %d pages", mostPages)
}

func tooMany(format string, args ...any) error {
	p := newProblem(TooLarge, true, nil, format, args...)
	p.answered = true
	return p
}

// readTools reads one page.
func readTools(data json.RawMessage) (tools []json.RawMessage, next string, age time.Duration, err error) {
	var page struct {
		Tools []json.RawMessage `json:"tools"`
		Next  string            `json:"nextCursor"`
		TTL   *float64          `json:"ttlMs"`
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return nil, "", 0, malformed(err, "its list of tools is none")
	}
	age = defaultAge
	if page.TTL != nil {
		age = min(max(time.Duration(min(*page.TTL, 1e9))*time.Millisecond, leastAge), longestAge)
	}
	return page.Tools, page.Next, age, nil
}

// readTool reads an entry of the list; false: it is not a tool with a name. What is of
// another kind than it should be, but for that, is as if it were not there.
func readTool(raw json.RawMessage) (bindings.Tool, bool) {
	var w wireTool
	var kind *json.UnmarshalTypeError
	if err := json.Unmarshal(raw, &w); err != nil && !errors.As(err, &kind) || w.Name == "" {
		return bindings.Tool{}, false
	}
	t := bindings.Tool{Name: w.Name, Title: w.Title, Description: w.Description, Input: given(w.Input), Output: given(w.Output)}
	if t.Title == "" {
		t.Title = w.Annotations.Title
	}
	a := w.Annotations
	t.Annotations = bindings.Annotations{ReadOnly: a.ReadOnly, Destructive: a.Destructive, Idempotent: a.Idempotent, OpenWorld: a.OpenWorld}
	return t, true
}

func trim(raw json.RawMessage) json.RawMessage { return bytes.TrimSpace(raw) }
