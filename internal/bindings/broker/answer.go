package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"

	"paddock/internal/bindings/schema"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/textsafe"
)

// answer is what a program is told; guest/README.md describes it.
type answer struct {
	Value  any      `json:"value,omitempty"`
	Binary bool     `json:"binary,omitempty"`
	Parse  bool     `json:"parse,omitempty"` // Value is a text that is JSON, and wanted as what it says
	File   *file    `json:"file,omitempty"`
	Error  *failure `json:"error,omitempty"`
}

type file struct {
	Path    string `json:"path"`
	Size    int    `json:"size"`
	MIME    string `json:"mime,omitempty"`
	Preview string `json:"preview,omitempty"`
}

type failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
}

// binary is bytes as a program is given them.
type binary struct {
	Base64 []byte `json:"base64"`
	MIME   string `json:"mime"`
}

// How much a result may be to be given as it is, and how much of a larger one, and of
// an error's text, is shown; in bytes.
const (
	maxInline  = 256 << 10
	previewed  = 1 << 10
	maxMessage = 16 << 10
)

type cleanKey struct{}

// WithClean has clean take something out of results before anything is made of them:
// what is cut off, learned or kept of them has not even a part of it.
func WithClean(ctx context.Context, clean func([]byte) []byte) context.Context {
	return context.WithValue(ctx, cleanKey{}, clean)
}

func cleaned(ctx context.Context, r upstream.Result) upstream.Result {
	clean, ok := ctx.Value(cleanKey{}).(func([]byte) []byte)
	if !ok {
		return r
	}
	r.Structured, r.Content = clean(r.Structured), slices.Clone(r.Content)
	for i, c := range r.Content {
		b := &r.Content[i]
		b.Data = clean(c.Data)
		for _, text := range []*string{&b.Text, &b.MIME, &b.URI, &b.Name, &b.Title, &b.Description} {
			*text = string(clean([]byte(*text)))
		}
	}
	return r
}

// cleanedError is an error without that, in what a server said.
func cleanedError(ctx context.Context, err error) error {
	clean, ok := ctx.Value(cleanKey{}).(func([]byte) []byte)
	var up *upstream.Error
	if !ok || !errors.As(err, &up) {
		return err
	}
	return up.Clean(clean)
}

// PutFunc writes a file into the workspace of the session that calls, and gives its
// path there as programs see it.
type PutFunc func(name string, data []byte) (path string, err error)

// encode makes JSON of an answer; put takes what is too large, nil: nothing can.
func (a answer) encode(name string, put PutFunc) []byte {
	if a.Value == nil && a.File == nil && a.Error == nil {
		return []byte(`{"value":null}`)
	}
	text, err := json.Marshal(a)
	if err == nil && len(text) > maxInline && a.Error == nil && put != nil {
		text, err = a.asFile(name, put)
	}
	if err == nil && len(text) > sandbox.MaxAnswer {
		err = fault.New(fault.Exhausted, "the result has %d MiB, and %d can be given to a program", len(text)>>20, sandbox.MaxAnswer>>20)
	}
	if err != nil {
		text, _ = json.Marshal(failed(err)) // it is short, and text only
	}
	return text
}

// asFile puts a value into a file: bytes and text as they are, all else as JSON.
func (a answer) asFile(name string, put PutFunc) ([]byte, error) {
	f := file{}
	var data []byte
	switch v := a.Value.(type) {
	case binary:
		data, f.MIME = v.Base64, v.MIME
	case string:
		data, f.MIME, f.Preview = []byte(v), "text/plain", textsafe.Text(v, previewed)
		if a.Parse {
			f.MIME = "application/json"
		}
	default:
		var err error
		if data, err = json.Marshal(v); err != nil {
			return nil, err
		}
		f.MIME, f.Preview = "application/json", textsafe.Text(string(data), previewed)
	}
	var err error
	if f.Path, err = put(name+extension(f.MIME), data); err != nil {
		return nil, fmt.Errorf("putting a large result into the workspace: %w", err)
	}
	f.Size = len(data)
	return json.Marshal(answer{File: &f})
}

func extension(kind string) string {
	switch kind {
	case "text/plain":
		return ".txt"
	case "application/json":
		return ".json"
	}
	base, _, err := mime.ParseMediaType(kind)
	if err != nil {
		return ".bin"
	}
	_, sub, _ := strings.Cut(base, "/")
	for _, r := range sub {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return ".bin"
		}
	}
	return "." + sub[:min(len(sub), 8)]
}

// unwrap gives what a program wants of a tool's result: the structured one where there is
// one, without what the server's library has put around it, else the only block of the
// content, or a list of them. A text that is a JSON object or array is one, where the tool
// declares nothing else. With raw set nothing is taken for anything but what it is.
func unwrap(r upstream.Result, output json.RawMessage, raw bool) answer {
	if r.IsError {
		return answer{Error: &failure{Kind: "tool", Message: complaint(r)}}
	}
	if r.Structured != nil {
		if value, ok := wrapped(r.Structured); ok && !raw && schema.Unwrapped(output) != nil {
			return answer{Value: value}
		}
		return answer{Value: r.Structured}
	}
	if text, ok := inText(r); ok && !raw && len(output) == 0 {
		return answer{Value: text, Parse: true}
	}
	var values []any
	var a answer
	for _, b := range r.Content {
		v := valueOf(b)
		if _, ok := v.(binary); ok {
			a.Binary = true
		}
		values = append(values, v)
	}
	switch len(values) {
	case 0:
	case 1:
		a.Value = values[0]
	default:
		a.Value = values
	}
	return a
}

// wrapped gives the value of a result that is an object of one member, result.
func wrapped(structured json.RawMessage) (json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(structured, &members) != nil || len(members) != 1 {
		return nil, false
	}
	value, ok := members[schema.Wrapper]
	return value, ok
}

// inText gives the text that is all of a result, if it is a JSON object or array.
func inText(r upstream.Result) (string, bool) {
	if len(r.Content) != 1 || r.Content[0].Kind != upstream.Text {
		return "", false
	}
	text := r.Content[0].Text
	start := strings.TrimLeft(text, " \t\r\n")
	is := start != "" && (start[0] == '{' || start[0] == '[') && json.Valid([]byte(text))
	return text, is
}

func valueOf(b upstream.Block) any {
	switch b.Kind {
	case upstream.Text:
		return b.Text
	case upstream.Image, upstream.Audio:
		return binary{b.Data, b.MIME}
	case upstream.Resource:
		switch {
		case b.Data != nil:
			return binary{b.Data, b.MIME}
		case isJSON(b.MIME) && json.Valid([]byte(b.Text)):
			return json.RawMessage(b.Text)
		}
		return b.Text
	}
	link := map[string]any{"uri": b.URI}
	for name, text := range map[string]string{"name": b.Name, "title": b.Title, "description": b.Description, "mime": b.MIME} {
		if text != "" {
			link[name] = text
		}
	}
	if b.Size > 0 {
		link["size"] = b.Size
	}
	return link
}

func isJSON(kind string) bool {
	base, _, err := mime.ParseMediaType(kind)
	return err == nil && (base == "application/json" || strings.HasSuffix(base, "+json"))
}

// complaint is what a tool says about why it did not work.
func complaint(r upstream.Result) string {
	var texts []string
	for _, b := range r.Content {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	text := strings.Join(texts, "\n")
	if text == "" && r.Structured != nil {
		text = string(r.Structured)
	}
	if text == "" {
		return "the tool did not work, and does not say why"
	}
	return textsafe.Text(text, maxMessage)
}

// failed is what a program is told about an error.
func failed(err error) answer {
	f := fault.Of(err)
	kind := string(f.Kind)
	var up *upstream.Error
	switch {
	case errors.As(err, &up) && up.Unknown():
		kind = "unknown"
	case up != nil && up.Own():
		kind = "server"
	case upstream.ReasonOf(err) == upstream.TimedOut:
		kind = "timeout"
	}
	message := f.Message
	if f.Hint != "" {
		message += "; " + f.Hint
	}
	return answer{Error: &failure{Kind: kind, Message: message, Field: schema.Field(err)}}
}
