package setup

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"paddock/internal/fault"
)

var yamlLine = regexp.MustCompile(`line (\d+)`)

// readYAML reads a YAML file. A top-level key without a value is as good as none.
func readYAML(b []byte) (map[string]any, error) {
	data := map[string]any{}
	var v any
	if err := yaml.Unmarshal(bytes.TrimPrefix(b, []byte(byteOrderMark)), &v); err != nil {
		at := &mistake{what: "it is not YAML"}
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			at.line, _ = strconv.Atoi(m[1])
			at.column = 1
		}
		return nil, at
	}
	if v == nil {
		return data, nil
	}
	data, err := object(v)
	for key, value := range data {
		if value == nil {
			delete(data, key)
		}
	}
	return data, err
}

// errShape says that a file is YAML which editYAML cannot change.
var errShape = errors.New("it is not written as a block")

// editYAML sets or removes (nil) the entry name below the key table. It works on the text's
// lines, so that comments and order stay.
func editYAML(old []byte, table, name string, e *entry) ([]byte, error) {
	text, mark := strings.CutPrefix(string(old), byteOrderMark)
	y, err := scanYAML(text, table)
	if err != nil {
		return nil, err
	}
	key, value := y.find(y.servers, name)
	switch {
	case e == nil && key == nil:
		return old, nil
	case e == nil:
		y.remove(key)
	case key == nil:
		if err := y.insert(table, name, e); err != nil {
			return nil, err
		}
	default:
		if value.Kind != yaml.MappingNode {
			return nil, conflictYAML(name, errShape)
		}
		changed, err := fillYAML(value, e)
		if err != nil || !changed {
			return old, err
		}
		if err := y.replace(key, value); err != nil {
			return nil, err
		}
	}
	text = strings.Join(y.lines, y.newline)
	if mark {
		text = byteOrderMark + text
	}
	return []byte(text), nil
}

func conflictYAML(name string, cause error) error {
	return fault.New(fault.Conflict, "%s is written in a form that paddock cannot change", name).
		WithHint("--print shows what to put there by hand; nothing was changed").WithCause(cause)
}

// yamlFile is a file: its lines, and the nodes that say where what stands.
type yamlFile struct {
	lines        []string
	newline      string
	root         *yaml.Node // the top-level mapping; nil: the file is empty
	key, servers *yaml.Node // the table's key and its mapping; nil: it has none
}

func scanYAML(text, table string) (*yamlFile, error) {
	y := &yamlFile{newline: "\n"}
	if strings.Contains(text, "\r\n") {
		y.newline = "\r\n"
	}
	y.lines = strings.Split(text, y.newline)
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return y, nil
	}
	y.root = doc.Content[0]
	if y.root.Kind != yaml.MappingNode || y.root.Style&yaml.FlowStyle != 0 {
		return nil, conflictYAML(table, errShape)
	}
	y.key, y.servers = y.find(y.root, table)
	if y.key == nil {
		return y, nil
	}
	switch {
	case y.servers.Tag == "!!null", y.servers.Kind == yaml.MappingNode && len(y.servers.Content) == 0:
		return y, nil
	case y.servers.Kind != yaml.MappingNode || y.servers.Style&yaml.FlowStyle != 0:
		return nil, conflictYAML(table, errShape)
	}
	return y, nil
}

// find gives a mapping's key and what it has.
func (y *yamlFile) find(m *yaml.Node, name string) (key, value *yaml.Node) {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil, nil
	}
	if i := pairYAML(m, name); i >= 0 {
		return m.Content[i], m.Content[i+1]
	}
	return nil, nil
}

// pairYAML is where a mapping has a key; -1: nowhere.
func pairYAML(m *yaml.Node, key string) int {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// end is the line behind what a key of m has: before the next key, or the end of m. Empty
// lines and comments in between belong to what follows.
func (y *yamlFile) end(m, key *yaml.Node, otherwise int) int {
	end := otherwise
	for i := 0; i < len(m.Content); i += 2 {
		if line := m.Content[i].Line - 1; line > key.Line-1 {
			end = min(end, line)
		}
	}
	for end > key.Line && blankYAML(y.lines[end-1]) {
		end--
	}
	return end
}

func blankYAML(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.HasPrefix(line, "#") || line == "---" || line == "..."
}

// span is the lines of an entry.
func (y *yamlFile) span(key *yaml.Node) (start, end int) {
	return key.Line - 1, y.end(y.servers, key, y.end(y.root, y.key, len(y.lines)))
}

func (y *yamlFile) remove(key *yaml.Node) {
	start, end := y.span(key)
	y.lines = slices.Delete(y.lines, start, end)
	if len(y.servers.Content) == 2 {
		y.lines[y.key.Line-1] = strings.Replace(y.lines[y.key.Line-1], ":", ": {}", 1)
	}
}

func (y *yamlFile) replace(key, value *yaml.Node) error {
	start, end := y.span(key)
	lines, err := renderYAML(key, value, key.Column-1)
	if err != nil {
		return err
	}
	y.lines = slices.Replace(y.lines, start, end, lines...)
	return nil
}

// insert adds an entry at the end of the table, and the table at the end of the file.
func (y *yamlFile) insert(table, name string, e *entry) error {
	value := &yaml.Node{Kind: yaml.MappingNode}
	if _, err := fillYAML(value, e); err != nil {
		return err
	}
	indent := 2
	if y.servers != nil && len(y.servers.Content) > 0 {
		indent = y.servers.Content[0].Column - 1
	}
	lines, err := renderYAML(&yaml.Node{Kind: yaml.ScalarNode, Value: name}, value, indent)
	switch {
	case err != nil:
		return err
	case y.key == nil:
		end := len(y.lines)
		for end > 0 && strings.TrimSpace(y.lines[end-1]) == "" {
			end--
		}
		y.lines = slices.Concat(y.lines[:end], []string{table + ":"}, lines, []string{""})
		return nil
	case len(y.servers.Content) == 0:
		// It is empty, however that is written: {}, null, ~ or nothing.
		line := &y.lines[y.key.Line-1]
		at := y.servers.Column - 1
		if y.servers.Value != "" || y.servers.Kind == yaml.MappingNode {
			if y.servers.Line != y.key.Line || at >= len(*line) {
				return conflictYAML(table, errShape)
			}
			rest := strings.TrimLeft((*line)[at:], "{}~nulNUL")
			*line = strings.TrimRight((*line)[:at], " ") + rest
		}
		y.lines = slices.Insert(y.lines, y.key.Line, lines...)
		return nil
	}
	y.lines = slices.Insert(y.lines, y.end(y.root, y.key, len(y.lines)), lines...)
	if y.lines[len(y.lines)-1] != "" {
		y.lines = append(y.lines, "")
	}
	return nil
}

// renderYAML gives the lines of a key and what it has.
func renderYAML(key, value *yaml.Node, indent int) ([]string, error) {
	name := *key
	name.HeadComment, name.FootComment = "", ""
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{&name, value}}); err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = strings.Repeat(" ", indent) + line
		}
	}
	return lines, nil
}

// fillYAML sets the members of an entry, and says whether that changed anything.
func fillYAML(own *yaml.Node, e *entry) (changed bool, err error) {
	drop := e.dropped()
	for i := 0; i+1 < len(own.Content); {
		if slices.Contains(drop, own.Content[i].Value) {
			own.Content = slices.Delete(own.Content, i, i+2)
			changed = true
			continue
		}
		i += 2
	}
	for i, m := range slices.Concat(e.members, e.defaults) {
		at := pairYAML(own, m.key)
		var was any
		if at >= 0 {
			if err := own.Content[at+1].Decode(&was); err != nil {
				return false, err
			}
			if i >= len(e.members) || contains(was, m.value) {
				continue
			}
		}
		value := &yaml.Node{}
		if err := value.Encode(keepingOthers(m.value, was)); err != nil {
			return false, err
		}
		if at >= 0 {
			own.Content[at+1] = value
		} else {
			own.Content = append(own.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: m.key}, value)
		}
		changed = true
	}
	return changed, nil
}
