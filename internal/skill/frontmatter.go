package skill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// FrontMatter gives all that stands in a skill's front matter as one JSON object, in
// its order: what JSON has no value for, such as a date, is the text that it is
// written as.
func (s *Skill) FrontMatter() (json.RawMessage, error) {
	main, _ := s.Folder.Get(MainFile)
	text, _, err := split(main.Data)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		return nil, fmt.Errorf("reading the front matter of %s: %w", s.Name, err)
	}
	var b bytes.Buffer
	if err := writeNode(&b, doc.Content[0]); err != nil {
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
