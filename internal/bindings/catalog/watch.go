package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"paddock/internal/bindings"
	"paddock/internal/bindings/schema"
	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// Fingerprint names what a server says of a tool: its title, its description, its
// schemas and its annotations. White space between JSON's values and the order of
// members do not change it, and neither does an output schema that was learned.
func Fingerprint(t bindings.Tool) string {
	h := sha256.New()
	for _, p := range partsOf(t) {
		fmt.Fprintf(h, "%s %d\n%s\n", p.name, len(p.text), p.text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

type part struct{ name, text string }

// partsOf gives what is compared of a tool.
func partsOf(t bindings.Tool) []part {
	annotations := ""
	for _, a := range []struct {
		name  string
		value *bool
	}{
		{"readOnly", t.Annotations.ReadOnly}, {"destructive", t.Annotations.Destructive},
		{"idempotent", t.Annotations.Idempotent}, {"openWorld", t.Annotations.OpenWorld},
	} {
		if a.value != nil {
			annotations += fmt.Sprintf("%s=%t ", a.name, *a.value)
		}
	}
	output := t.Output
	if schema.Learned(output) {
		output = nil
	}
	return []part{
		{"title", t.Title}, {"description", t.Description}, {"input schema", canonical(t.Input)},
		{"output schema", canonical(output)}, {"annotations", strings.TrimSpace(annotations)},
	}
}

func canonical(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	v, err := schema.Decode(raw, schema.Limits{Bytes: 4 << 20, Depth: 1000, Values: 1_000_000})
	if err != nil {
		return string(raw)
	}
	return v.Canonical()
}

// Seen keeps what is known of tools, by server and tool. Its methods may be called
// by several goroutines.
type Seen interface {
	// Load gives what was saved; nil and no error where nothing was.
	Load(ctx context.Context, server, tool string) ([]byte, error)
	Save(ctx context.Context, server, tool string, record []byte) error
}

// Watch compares tools with what they were when they were first used. Its zero
// value has to be given its Seen. It may be used by several goroutines.
type Watch struct {
	Seen Seen

	mu sync.Mutex // one look at a time: who is first decides
}

// Change is a tool that is not what it was.
type Change struct {
	Server, Tool string
	Before, Now  string // fingerprints
	Parts        []Difference

	now saved
}

// Difference is one part that changed, as text: the beginnings of what it was and
// is, from a little before the place where they part. They are the server's words.
type Difference struct {
	Part   string // title, description, input schema, output schema or annotations
	Before string
	Now    string
}

// maxTold bounds a text of a Difference, and maxSaved a part that is saved, in
// bytes. Of what is longer a change is noticed and only the beginning told.
const (
	maxTold  = 400
	maxSaved = 16 << 10
)

// saved is the record of a tool.
type saved struct {
	Fingerprint string            `json:"fingerprint"`
	Digests     map[string]string `json:"digests"`
	Texts       map[string]string `json:"texts"`
	// Varies are the parts that may become anything, as an operator said.
	Varies []string `json:"varies,omitempty"`
}

func record(t bindings.Tool) saved {
	s := saved{Fingerprint: Fingerprint(t), Digests: map[string]string{}, Texts: map[string]string{}}
	for _, p := range partsOf(t) {
		sum := sha256.Sum256([]byte(p.text))
		s.Digests[p.name] = hex.EncodeToString(sum[:])
		s.Texts[p.name] = textsafe.Shorten(strings.ToValidUTF8(p.text, "\ufffd"), maxSaved)
	}
	return s
}

// Use tells whether a tool may be used as what it was: nil when it is that, or is
// used for the first time, which is remembered. Nothing is remembered of a change
// before it is accepted. A record that cannot be read is an error, not a first
// use.
func (w *Watch) Use(ctx context.Context, server string, t bindings.Tool) (*Change, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, err := w.Seen.Load(ctx, server, t.Name)
	if err != nil {
		return nil, fmt.Errorf("reading what the tool %s of %s was: %w", textsafe.Quote(t.Name), server, err)
	}
	now := record(t)
	if text == nil {
		return nil, w.save(ctx, server, t.Name, now)
	}
	var before saved
	if err := json.Unmarshal(text, &before); err != nil || before.Fingerprint == "" {
		return nil, fault.New(fault.Internal, "what the tool %s of %s was cannot be read", textsafe.Quote(t.Name), server).WithCause(err)
	}
	if before.Fingerprint == now.Fingerprint {
		return nil, nil
	}
	change := &Change{Server: server, Tool: t.Name, Before: before.Fingerprint, Now: now.Fingerprint, now: now}
	for _, p := range partsOf(t) {
		if before.Digests[p.name] != now.Digests[p.name] && !slices.Contains(before.Varies, p.name) {
			b, n := parted(before.Texts[p.name], now.Texts[p.name])
			change.Parts = append(change.Parts, Difference{p.name, b, n})
		}
	}
	if len(change.Parts) == 0 && len(before.Varies) > 0 {
		return nil, nil
	}
	return change, nil
}

// Accept has the tool be what it is now. The fingerprint is the one of the change
// that somebody has looked at: where the tool has changed again it is a fault of
// kind Conflict.
func (w *Watch) Accept(ctx context.Context, server string, t bindings.Tool, fingerprint string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := record(t)
	if now.Fingerprint != fingerprint {
		return fault.New(fault.Conflict, "the tool %s of %s is not what was looked at", textsafe.Quote(t.Name), server).
			WithHint("look at what it is now, and accept that")
	}
	return w.save(ctx, server, t.Name, now)
}

func (w *Watch) save(ctx context.Context, server, tool string, s saved) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := w.Seen.Save(ctx, server, tool, text); err != nil {
		return fmt.Errorf("remembering the tool %s of %s: %w", textsafe.Quote(tool), server, err)
	}
	return nil
}

// Fault is what a program is told that wanted to use the tool.
func (c *Change) Fault() *fault.Error {
	parts := []string{}
	for _, p := range c.Parts {
		parts = append(parts, p.Part)
	}
	return fault.New(fault.Denied, "the tool %s of %s is not what it was when it was first used: its %s changed",
		textsafe.Quote(textsafe.Shorten(c.Tool, 100)), c.Server, strings.Join(parts, ", ")).
		WithHint("an operator has to look at the change and accept it: paddock server accept %s %s", argument(c.Server), argument(textsafe.Shorten(c.Tool, 100)))
}

// argument is a text as a shell takes it.
func argument(s string) string {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:@", r)
	}
	if s = textsafe.Line(s, 200); s != "" && s[0] != '-' && strings.IndexFunc(s, odd) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// parted gives both texts from a little before where they differ, as one line each.
func parted(before, now string) (string, string) {
	same := 0
	for same < len(before) && same < len(now) && before[same] == now[same] {
		same++
	}
	from := 0
	if same > 60 {
		from = same - 60
	}
	tell := func(s string) string {
		s = strings.ToValidUTF8(s[min(from, len(s)):], "")
		if from > 0 {
			s = "…" + s
		}
		return textsafe.Line(s, maxTold)
	}
	return tell(before), tell(now)
}
