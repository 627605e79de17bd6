package setup

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// span is a table's header or a key with its value, as lines of a TOML file.
type span struct {
	path       []string // of the table, or of the key with its table's in front
	header     bool
	start, end int // its lines, the last newline included
	valueEnd   int // where the value ends, before a comment
}

// scanTOML finds the headers and the keys of a file that is known to be TOML.
// What stands between them belongs to none.
func scanTOML(text string) []span {
	var spans []span
	var table []string
	for i := 0; i < len(text); {
		switch text[i] {
		case ' ', '\t', '\r', '\n':
			i++
			continue
		case '#':
			i = lineEnd(text, i)
			continue
		}
		s := span{start: lineStart(text, i)}
		stop := "="
		if s.header = text[i] == '['; s.header {
			i += len(text[i:]) - len(strings.TrimLeft(text[i:], "["))
			stop = "]"
		}
		end := skip(text, i, stop)
		key := splitKey(text[i:end])
		if s.header {
			table, s.path = key, key
			s.valueEnd, s.end = end+1, lineEnd(text, end)
		} else {
			s.path = append(append([]string{}, table...), key...)
			comment := skip(text, min(end+1, len(text)), "#\n")
			s.valueEnd, s.end = len(strings.TrimRight(text[:comment], " \t\r")), lineEnd(text, comment)
		}
		spans = append(spans, s)
		i = s.end
	}
	return spans
}

// skip gives where one of the characters stop stands next, outside of strings
// and brackets; a comment inside brackets is skipped too.
func skip(text string, i int, stop string) int {
	for depth := 0; i < len(text); {
		c := text[i]
		switch {
		case depth == 0 && strings.IndexByte(stop, c) >= 0:
			return i
		case c == '"' || c == '\'':
			i = stringEnd(text, i)
			continue
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == '#':
			i = lineEnd(text, i) - 1
		}
		i++
	}
	return len(text)
}

// stringEnd gives where the string that begins at i has ended.
func stringEnd(text string, i int) int {
	quote := text[i : i+1]
	if long := strings.Repeat(quote, 3); strings.HasPrefix(text[i:], long) {
		quote = long
	}
	i += len(quote)
	for i < len(text) && !strings.HasPrefix(text[i:], quote) {
		if text[i] == '\\' && quote[0] == '"' {
			i++
		}
		i++
	}
	i = min(i+len(quote), len(text))
	for len(quote) == 3 && i < len(text) && text[i] == quote[0] { // it may end in quotes of its own
		i++
	}
	return i
}

// splitKey gives the parts of a dotted key.
func splitKey(key string) []string {
	var parts []string
	for rest := key; ; {
		end := skip(rest, 0, ".")
		parts = append(parts, unquoteKey(strings.TrimSpace(rest[:end])))
		if end == len(rest) {
			return parts
		}
		rest = rest[end+1:]
	}
}

func unquoteKey(key string) string {
	if !strings.HasPrefix(key, `"`) {
		return strings.Trim(key, "'")
	}
	var data struct{ K string }
	if _, err := toml.Decode("K = "+key, &data); err != nil {
		return key
	}
	return data.K
}

func lineStart(text string, i int) int { return strings.LastIndexByte(text[:i], '\n') + 1 }

// lineEnd is behind the next newline.
func lineEnd(text string, i int) int {
	if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
		return i + n + 1
	}
	return len(text)
}
