package setup

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"paddock/internal/fault"
)

// editTOML sets or removes (nil) the table [table.name]. It works on the
// text's lines, so that comments and order stay.
func editTOML(old []byte, table, name string, e *entry) ([]byte, error) {
	text, mark := strings.CutPrefix(string(old), byteOrderMark)
	before, err := readTOML(old)
	if err != nil {
		return nil, err
	}
	newline := "\n"
	if strings.Contains(text, "\r\n") {
		newline = "\r\n"
	}
	tables, _ := before[table].(map[string]any)
	was, there := tables[name].(map[string]any)
	spans := scanTOML(text)
	own := slices.IndexFunc(spans, func(s span) bool { return s.header && slices.Equal(s.path, []string{table, name}) })
	switch {
	case slices.ContainsFunc(spans, func(s span) bool { return !s.header && len(s.path) == 1 && s.path[0] == table }):
		return nil, fault.New(fault.Conflict, "%s is written on one line, to which nothing can be added", table).
			WithHint("write it as tables [%s.NAME] first; nothing was changed", table)
	case there && own < 0:
		return nil, fault.New(fault.Conflict, "the entry %s is not written as a table [%s.%s]", name, table, name).
			WithHint("remove it by hand first; nothing was changed")
	case e == nil && !there:
		return old, nil
	case e == nil:
		var cuts []edit
		for _, s := range spans {
			if under(s.path, table, name) {
				cuts = append(cuts, s.cut(text))
			}
		}
		text = apply(text, cuts)
	case !there:
		text = appendTable(text, table, name, *e, newline)
	default:
		text = setTable(text, spans, own, was, *e, newline)
	}
	if mark {
		text = byteOrderMark + text
	}
	return []byte(text), nil
}

// under tells whether path is that of the table or lies in it.
func under(path []string, table, name string) bool {
	return len(path) >= 2 && path[0] == table && path[1] == name
}

func appendTable(text, table, name string, e entry, newline string) string {
	var b strings.Builder
	b.WriteString(text)
	if text != "" {
		if !strings.HasSuffix(text, "\n") {
			b.WriteString(newline)
		}
		b.WriteString(newline)
	}
	b.WriteString("[" + table + "." + tomlKey(name) + "]" + newline)
	for _, m := range slices.Concat(e.members, e.defaults) {
		b.WriteString(m.key + " = " + tomlValue(m.value) + newline)
	}
	return b.String()
}

// setTable changes the keys of the table whose header is spans[own].
func setTable(text string, spans []span, own int, was map[string]any, e entry, newline string) string {
	set := slices.Clone(e.members)
	for _, m := range e.defaults {
		if _, has := was[m.key]; !has {
			set = append(set, m)
		}
	}
	lines := map[string]string{} // what changes, by key
	var order []string
	for _, m := range set {
		if m.value = keepingOthers(m.value, was[m.key]); !contains(was[m.key], m.value) {
			lines[m.key] = m.key + " = " + tomlValue(m.value)
			order = append(order, m.key)
		}
	}
	insert := spans[own].end
	for _, s := range spans[own+1:] {
		if s.header {
			break
		}
		insert = s.end
	}
	var edits []edit
	drop := e.dropped()
	for _, s := range spans {
		if !under(s.path, spans[own].path[0], spans[own].path[1]) || len(s.path) < 3 {
			continue
		}
		line, changes := lines[s.path[2]]
		switch {
		case changes && len(s.path) == 3 && !s.header:
			edits = append(edits, edit{s.start, s.valueEnd, line})
			order = slices.DeleteFunc(order, func(k string) bool { return k == s.path[2] })
		case changes, slices.Contains(drop, s.path[2]):
			edits = append(edits, s.cut(text))
		}
	}
	var added strings.Builder
	if len(order) > 0 && text[insert-1] != '\n' {
		added.WriteString(newline)
	}
	for _, k := range order {
		added.WriteString(lines[k] + newline)
	}
	// The new keys come first: what is cut may begin where they are put.
	return apply(text, append([]edit{{insert, insert, added.String()}}, edits...))
}

// edit puts text where the bytes from start to end were.
type edit struct {
	start, end int
	text       string
}

// apply makes edits that do not overlap.
func apply(text string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	for _, e := range slices.Backward(edits) {
		text = text[:e.start] + e.text + text[e.end:]
	}
	return text
}

// cut takes a span out, and the empty line in front of a header.
func (s span) cut(text string) edit {
	start := s.start
	if s.header {
		for _, empty := range []string{"\r\n\r\n", "\n\n"} {
			if strings.HasSuffix(text[:start], empty) {
				start -= len(empty) / 2
				break
			}
		}
	}
	return edit{start, s.end, ""}
}

// keepingOthers is a map with what was beside its keys.
func keepingOthers(value, was any) any {
	set, ok := value.(map[string]string)
	if !ok {
		return value
	}
	all := map[string]string{}
	if old, ok := was.(map[string]any); ok {
		for k, v := range old {
			if text, ok := v.(string); ok {
				all[k] = text
			}
		}
	}
	for k, v := range set {
		all[k] = v
	}
	return all
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func tomlKey(key string) string {
	if bareKey.MatchString(key) {
		return key
	}
	return tomlValue(key)
}

// tomlValue is a value as it stands on one line.
func tomlValue(value any) string {
	if m, ok := value.(map[string]string); ok {
		var parts []string
		for _, k := range sorted(m) {
			parts = append(parts, tomlKey(k)+" = "+tomlValue(m[k]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(map[string]any{"k": value}); err != nil {
		panic("setup: " + err.Error()) // it is a string, a list of them or a number
	}
	return strings.TrimSpace(strings.TrimPrefix(b.String(), "k = "))
}
