package skill

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"paddock/internal/bindings/stub"
	"paddock/internal/fault"
	"paddock/internal/textsafe"
	"paddock/internal/workspace"
)

// Bounds of the Agent Skills format, in characters.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
)

// Bounds of the front matter, in bytes, and of what stands in it.
const (
	maxMatter = 64 << 10
	maxNodes  = 2000
	maxNested = 8
)

// FrontMatter is what a skill says of itself.
type FrontMatter struct {
	Name          string            `json:"name"`
	Description   string            `json:"description"`
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	Manifest      Manifest          `json:"manifest"`
}

// Package is the name of the skill's module: an identifier, and another one for
// each name of the format.
func (m FrontMatter) Package() string {
	name := strings.ReplaceAll(m.Name, "-", "_")
	switch {
	case name != "" && name[0] >= '0' && name[0] <= '9':
		return "_" + name
	case stub.IsPythonKeyword(name):
		return name + "_"
	}
	return name
}

// nameOf is what a name may be.
var nameOf = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// checkName says what is wrong with a skill's name.
func checkName(name string) error {
	const hint = "a name has at most 64 of a-z, 0-9 and -, with no - at an end and no two in a row"
	switch {
	case name == "":
		return fault.New(fault.Invalid, "the skill has no name").WithHint(hint)
	case len(name) > maxName || !nameOf.MatchString(name):
		return fault.New(fault.Invalid, "%.100q is not a name of a skill", name).WithHint(hint)
	}
	if _, err := workspace.Clean(name); err != nil {
		return err // it is a device's on some systems
	}
	return nil
}

// matterParser collects what is wrong and what is odd.
type matterParser struct {
	of       *FrontMatter
	offset   int // of the YAML's first line
	mistakes []error
	warnings []Warning
}

func (p *matterParser) mistake(n *yaml.Node, hint, format string, args ...any) {
	where := MainFile
	if n != nil && n.Line > 0 {
		where = fmt.Sprintf("%s:%d", MainFile, n.Line+p.offset)
	}
	p.mistakes = append(p.mistakes, fault.New(fault.Invalid, "%s: "+format, append([]any{where}, args...)...).WithHint("%s", hint))
}

func (p *matterParser) warn(n *yaml.Node, format string, args ...any) {
	if len(p.warnings) < maxWarnings {
		p.warnings = append(p.warnings, Warning{MainFile, n.Line + p.offset, fmt.Sprintf(format, args...)})
	}
}

// split takes the front matter off a SKILL.md.
func split(data []byte) (matter, body string, err error) {
	const hint = "it begins with ---, then name: and description:, then --- again, then the instructions"
	if !utf8.Valid(data) {
		return "", "", fault.New(fault.Invalid, "%s is not UTF-8", MainFile).WithHint("save it as UTF-8")
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n")
	rest, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return "", "", fault.New(fault.Invalid, "%s has no front matter", MainFile).WithHint(hint)
	}
	if matter, body, ok = strings.Cut("\n"+rest, "\n---\n"); !ok {
		if matter, ok = strings.CutSuffix("\n"+rest, "\n---"); !ok {
			return "", "", fault.New(fault.Invalid, "the front matter of %s has no end", MainFile).WithHint(hint)
		}
	}
	if len(matter) > maxMatter {
		return "", "", fault.New(fault.Exhausted, "the front matter of %s has more than %d KiB", MainFile, maxMatter>>10).WithHint("put texts into the instructions")
	}
	return strings.TrimPrefix(matter, "\n"), strings.TrimSpace(body), nil
}

// parsed is what a SKILL.md says.
type parsed struct {
	FrontMatter
	fields   *yaml.Node // all that the front matter holds
	body     string
	warnings []Warning
}

// parseFrontMatter reads a SKILL.md. All mistakes are reported at once.
func parseFrontMatter(data []byte) (*parsed, error) {
	text, body, err := split(data)
	if err != nil {
		return nil, err
	}
	fields, err := fieldsOf(text)
	if err != nil {
		return nil, err
	}
	of := &parsed{fields: fields, body: body}
	p := &matterParser{of: &of.FrontMatter, offset: 1}
	p.fields(fields)
	of.warnings = p.warnings
	return of, errors.Join(p.mistakes...)
}

// fieldsOf decodes front matter, and refuses what it has no need for.
func fieldsOf(text string) (*yaml.Node, error) {
	var doc yaml.Node
	in := yaml.NewDecoder(strings.NewReader(text))
	err := in.Decode(&doc)
	if err == nil && !errors.Is(in.Decode(&yaml.Node{}), io.EOF) {
		err = errors.New("something follows its end")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "the front matter of %s is not YAML: %.200s", MainFile, strings.TrimPrefix(err.Error(), "yaml: ")).
			WithHint("put texts that hold a colon into quotes").WithCause(err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fault.New(fault.Invalid, "the front matter of %s is not a list of fields", MainFile).WithHint("it needs name: and description:")
	}
	nodes := 0
	return doc.Content[0], plain(doc.Content[0], 0, &nodes)
}

// plain refuses what front matter has no need for: references, which multiply
// what is small, and types that readers could make objects of.
func plain(n *yaml.Node, depth int, nodes *int) error {
	*nodes++
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return fault.New(fault.Invalid, "%s:%d: the front matter refers to itself", MainFile, n.Line+1).WithHint("write what is meant instead of & and *")
	case *nodes > maxNodes || depth > maxNested:
		return fault.New(fault.Exhausted, "the front matter of %s holds too much, or is too deep", MainFile).WithHint("put texts into the instructions")
	case n.Tag != "" && !core.MatchString(n.Tag):
		return fault.New(fault.Invalid, "%s:%d: the front matter holds the type %.50q", MainFile, n.Line+1, n.Tag).WithHint("write texts, lists and fields")
	}
	for _, child := range n.Content {
		if err := plain(child, depth+1, nodes); err != nil {
			return err
		}
	}
	return nil
}

// core are the types that YAML finds without being told.
var core = regexp.MustCompile(`^!!(str|int|float|bool|null|map|seq|timestamp)$`)

func (p *matterParser) fields(doc *yaml.Node) {
	found := map[string]bool{}
	for k := 0; k+1 < len(doc.Content); k += 2 {
		key, value := doc.Content[k], doc.Content[k+1]
		if found[key.Value] {
			p.mistake(key, "keep one", "the field %.50q stands there twice", key.Value)
			continue
		}
		found[key.Value] = true
		switch key.Value {
		case "name":
			p.of.Name = p.text(key, value, maxName)
			if err := checkName(p.of.Name); err != nil && p.of.Name != "" {
				p.mistakes = append(p.mistakes, err)
			}
		case "description":
			p.of.Description = p.text(key, value, maxDescription)
		case "license":
			p.of.License = p.text(key, value, maxDescription)
		case "compatibility":
			p.of.Compatibility = p.text(key, value, maxCompatibility)
		case "metadata":
			p.metadata(value)
		case "allowed-tools":
			p.allowedTools(value)
		default:
			p.warn(key, "the field %.50q is not in the format; others may refuse it", textsafe.Escape(key.Value))
		}
	}
	for _, name := range []string{"name", "description"} {
		if !found[name] {
			p.mistake(nil, "add "+name+": to the front matter", "the field %q is missing", name)
		}
	}
	p.of.Manifest.sort()
}

// text reads a field that is one.
func (p *matterParser) text(key, value *yaml.Node, most int) string {
	if value.Kind != yaml.ScalarNode {
		p.mistake(value, "write a text", "%s is not text", key.Value)
		return ""
	}
	if value.Tag != "!!str" && value.Tag != "!!null" {
		p.warn(value, "%s is not text to all readers; put it into quotes", textsafe.Escape(key.Value))
	}
	s := strings.TrimSpace(value.Value)
	switch n := utf8.RuneCountInString(s); {
	case s == "" || value.Tag == "!!null":
		p.mistake(value, "write a text, or leave the field out", "%s is empty", key.Value)
	case n > most && key.Value != "name":
		p.warn(value, "%s has %d characters; the format allows %d, and what is above that is not shown", textsafe.Escape(key.Value), n, most)
		s = string([]rune(s)[:most-1]) + "…"
	case n > most:
		p.mistake(value, "shorten it", "%s has %d characters, and may have %d", key.Value, n, most)
	}
	return s
}

func (p *matterParser) metadata(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		p.mistake(n, "write a field for each, as in version: \"1.0\"", "metadata is not a list of fields")
		return
	}
	p.of.Metadata = map[string]string{}
	for k := 0; k+1 < len(n.Content); k += 2 {
		key, value := n.Content[k], n.Content[k+1]
		if _, twice := p.of.Metadata[key.Value]; twice {
			p.mistake(key, "keep one", "metadata has %.50q twice", key.Value)
			continue
		}
		if rest, ok := strings.CutPrefix(key.Value, manifestKey+"."); ok {
			p.declare(rest, value)
			continue
		}
		if key.Value == manifestKey && value.Kind == yaml.MappingNode {
			p.warn(value, "metadata is texts only to other readers; write %s.tools: and so on", manifestKey)
			for i := 0; i+1 < len(value.Content); i += 2 {
				p.declare(value.Content[i].Value, value.Content[i+1])
			}
			continue
		}
		switch {
		case value.Kind != yaml.ScalarNode:
			p.warn(value, "metadata.%.50s is not text, and is left out", textsafe.Escape(key.Value))
		case value.Tag != "!!str":
			p.warn(value, "metadata.%.50s is not text to all readers; put it into quotes", textsafe.Escape(key.Value))
			fallthrough
		default:
			p.of.Metadata[key.Value] = value.Value
		}
	}
}

// FrontMatterJSON gives all that stands in a skill's front matter as one JSON object, in
// its order: what JSON has no value for, such as a date, is the text that it is
// written as.
func (s *Skill) FrontMatterJSON() (json.RawMessage, error) {
	var b bytes.Buffer
	if err := writeNode(&b, s.fields); err != nil {
		return nil, fmt.Errorf("writing the front matter of %s: %w", s.Name, err)
	}
	return b.Bytes(), nil
}

// writeNode writes a node that plain has let through.
func writeNode(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for k := 0; k+1 < len(n.Content); k += 2 {
			if k > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, n.Content[k].Value); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := writeNode(b, n.Content[k+1]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case yaml.SequenceNode:
		b.WriteByte('[')
		for k, item := range n.Content {
			if k > 0 {
				b.WriteByte(',')
			}
			if err := writeNode(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	}
	return writeJSON(b, scalar(n))
}

// scalar gives a value as others read it: YAML 1.2 knows fewer words than this
// library's, which takes yes for true in places, and dates for moments.
func scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		switch n.Value {
		case "true", "True", "TRUE":
			return true
		case "false", "False", "FALSE":
			return false
		}
	case "!!int":
		if v, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			return v
		}
		var v int64
		if n.Decode(&v) == nil && (strings.HasPrefix(n.Value, "0x") || strings.HasPrefix(n.Value, "0o")) {
			return v
		}
	case "!!float":
		var v float64
		if n.Decode(&v) == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	}
	return n.Value
}

func writeJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // its line feed
	return nil
}
