package upstream

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// mostBlocks is how many blocks of content a result may have: a page of search
// results has tens.
const mostBlocks = 10_000

// Kind is what a block of content is.
type Kind string

// The kinds of content.
const (
	Text     Kind = "text"
	Image    Kind = "image"
	Audio    Kind = "audio"
	Resource Kind = "resource"      // a resource's content, in Text or in Data
	Link     Kind = "resource_link" // where a resource is
)

// Block is one piece of a result's content. Which fields are set depends on its kind.
type Block struct {
	Kind Kind
	Text string
	Data []byte // of images, sounds and resources that are not text
	MIME string // as the server says; it may not be true
	// URI, Name, Title and Description are those of a resource or a link; Size is in
	// bytes, as the server says, and 0 where it says nothing.
	URI, Name, Title, Description string
	Size                          int64
}

// Result is what a tool answered. Its size is bounded by the server's response cap.
type Result struct {
	// Structured is the structured content, byte for byte; nil: there is none.
	Structured json.RawMessage
	Content    []Block
	// IsError: the tool says that it did not work, and in Content why.
	IsError bool
	// Meta is the result's _meta, byte for byte; nil: there is none.
	Meta json.RawMessage
}

// wireBlock is a block as it comes.
type wireBlock struct {
	Type        string        `json:"type"`
	Text        *string       `json:"text"`
	Data        *string       `json:"data"`
	MIME        string        `json:"mimeType"`
	URI         string        `json:"uri"`
	Name        string        `json:"name"`
	Title       string        `json:"title"`
	Description string        `json:"description"`
	Size        float64       `json:"size"`
	Resource    *wireResource `json:"resource"`
}

type wireResource struct {
	URI  string  `json:"uri"`
	MIME string  `json:"mimeType"`
	Text *string `json:"text"`
	Blob *string `json:"blob"`
}

// readResult reads the result of tools/call.
func readResult(data json.RawMessage) (Result, error) {
	var w struct {
		Type       string            `json:"resultType"`
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
		Meta       json.RawMessage   `json:"_meta"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return Result{}, malformed(err, "its result is not one of a tool")
	}
	switch w.Type {
	case "", "complete":
	case "input_required":
		p := malformed(nil, "it asks a question first, which cannot be answered here")
		p.reason = Unanswerable
		return Result{}, p
	default:
		p := malformed(nil, "it answered with a %q, which is not understood", saying(w.Type, 50))
		p.reason = Unanswerable
		return Result{}, p
	}
	if len(w.Content) > mostBlocks {
		p := malformed(nil, "its result has more than %d blocks", mostBlocks)
		p.reason = TooLarge
		return Result{}, p
	}
	r := Result{IsError: w.IsError, Structured: given(w.Structured), Meta: given(w.Meta)}
	for _, raw := range w.Content {
		var b wireBlock
		if err := json.Unmarshal(raw, &b); err != nil {
			return Result{}, malformed(err, "a block of its result is none")
		}
		block, err := b.block()
		if err != nil {
			return Result{}, err
		}
		r.Content = append(r.Content, block)
	}
	return r, nil
}

func malformed(cause error, format string, args ...any) *problem {
	p := newProblem(Malformed, true, cause, format, args...)
	p.answered = true
	return p
}

// given is nil where there is nothing, or null.
func given(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return raw
}

func (w wireBlock) block() (Block, error) {
	b := Block{Kind: Kind(w.Type), MIME: w.MIME}
	switch b.Kind {
	case Text:
		if w.Text == nil {
			return b, malformed(nil, "a text of its result has no text")
		}
		b.Text = *w.Text
		return b, nil
	case Image, Audio:
		if w.Data == nil {
			return b, malformed(nil, "an %s of its result has no data", w.Type)
		}
		return b, b.decode(*w.Data)
	case Resource:
		if w.Resource == nil || w.Resource.Text == nil && w.Resource.Blob == nil {
			return b, malformed(nil, "a resource of its result has no content")
		}
		b.URI, b.MIME = w.Resource.URI, w.Resource.MIME
		if w.Resource.Text != nil {
			b.Text = *w.Resource.Text
			return b, nil
		}
		return b, b.decode(*w.Resource.Blob)
	case Link:
		b.URI, b.Name, b.Title, b.Description = w.URI, w.Name, w.Title, w.Description
		if w.Size > 0 && w.Size < 1<<53 {
			b.Size = int64(w.Size)
		}
		return b, nil
	}
	return b, malformed(nil, "its result has a block of the unknown type %q", saying(w.Type, 50))
}

func (b *Block) decode(text string) error {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		data, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(text), "="))
	}
	if err != nil {
		return malformed(err, "the data of a block of its result is not in base64")
	}
	b.Data = data
	return nil
}

// outputCheck is what can be checked of an output schema without walking through it: a
// schema is a program of the server's, and this one always ends.
type outputCheck struct {
	kinds    []string // JSON types; empty: any
	required []string
}

func newOutputCheck(schema json.RawMessage) *outputCheck {
	if schema == nil {
		return nil
	}
	var s struct {
		Type     any      `json:"type"`
		Required []string `json:"required"`
	}
	p := &outputCheck{}
	if json.Unmarshal(schema, &s) != nil {
		return p
	}
	switch t := s.Type.(type) {
	case string:
		p.kinds = []string{t}
	case []any:
		for _, kind := range t {
			if text, ok := kind.(string); ok {
				p.kinds = append(p.kinds, text)
			}
		}
	}
	p.required = s.Required
	return p
}

// check tells whether a result is what its tool promised, as far as that goes. A tool
// that did not work promises nothing.
func (p *outputCheck) check(r Result) error {
	if p == nil || r.IsError {
		return nil
	}
	broken := func(format string, args ...any) error {
		e := malformed(nil, format, args...)
		e.reason = BadResult
		e.hint = "the call was carried out; only its result cannot be used"
		return e
	}
	if r.Structured == nil {
		if slices.Contains(p.kinds, "null") {
			return nil
		}
		return broken("it promises structured results and gave none")
	}
	kind := kindOfJSON(r.Structured)
	if len(p.kinds) > 0 && !slices.Contains(p.kinds, kind) && !(kind == "number" && slices.Contains(p.kinds, "integer")) {
		return broken("it promises a result of the type %s and gave one of the type %s", saying(strings.Join(p.kinds, " or "), 50), kind)
	}
	if kind != "object" || len(p.required) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.Structured, &fields); err != nil {
		return broken("its structured result cannot be read")
	}
	for _, name := range p.required {
		if _, ok := fields[name]; !ok {
			return broken("its result has no %q, which it promises", saying(name, 100))
		}
	}
	return nil
}

func kindOfJSON(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}
