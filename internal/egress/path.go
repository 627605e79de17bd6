package egress

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// canonicalPath gives the one spelling of a path as it stands in a URL, escaped and
// without the query: what needs no escape has none, the others are in capitals. What one
// server may read as another path than the next is an error: segments of dots, also
// before a semicolon; empty segments; escaped slashes, backslashes, percent signs and
// control characters; escapes that are no UTF-8. An empty path is "/".
func canonicalPath(text string) (string, error) {
	if text == "" {
		return "/", nil
	}
	if text[0] != '/' {
		return "", errors.New("it does not begin with a slash")
	}
	path, err := unescape(text)
	if err != nil {
		return "", err
	}
	segments := strings.Split(path[1:], "/")
	for k, segment := range segments {
		name, _, params := strings.Cut(segment, ";")
		switch {
		case name == "" && (params || k < len(segments)-1):
			return "", errors.New("it has an empty part")
		case name != "" && strings.Trim(strings.ReplaceAll(name, "%20", ""), ".") == "":
			return "", errors.New("a part of it is made of dots")
		}
	}
	return path, nil
}

// unescape takes away the escapes that say nothing, and refuses those that are read in
// more than one way.
func unescape(text string) (string, error) {
	var path, plain strings.Builder // as it is sent; with nothing escaped
	for k := 0; k < len(text); k++ {
		c := text[k]
		if c != '%' {
			if c <= ' ' || c >= 0x7f || strings.IndexByte("\\?#", c) >= 0 {
				return "", errors.New("it holds a character that no path has")
			}
			path.WriteByte(c)
			plain.WriteByte(c)
			continue
		}
		if k+2 >= len(text) || !isHex(text[k+1]) || !isHex(text[k+2]) {
			return "", errors.New("an escape in it is none")
		}
		b := unhex(text[k+1])<<4 | unhex(text[k+2])
		switch {
		case b < ' ' || b == 0x7f || strings.IndexByte("/\\%", b) >= 0:
			return "", errors.New("a slash, a backslash, a percent sign or a control character is escaped in it")
		case isUnreserved(b):
			path.WriteByte(b)
		default:
			path.WriteString(strings.ToUpper(text[k : k+3]))
		}
		plain.WriteByte(b)
		k += 2
	}
	if !utf8.ValidString(plain.String()) {
		return "", errors.New("what is escaped in it is not UTF-8")
	}
	return path.String(), nil
}

// isUnreserved tells whether a byte never needs an escape (RFC 3986, 2.3).
func isUnreserved(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("-._~", b) >= 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// parsePattern reads the path of a rule. A star at the end stands for whatever follows,
// and one that is a whole segment for one segment.
func parsePattern(text string) ([]string, error) {
	path, err := canonicalPath(text)
	if err != nil {
		return nil, err
	}
	pattern := strings.Split(path[1:], "/")
	for k, segment := range pattern {
		if last := k == len(pattern)-1; last {
			segment = strings.TrimSuffix(segment, "*")
		} else if segment == "*" {
			continue
		}
		if strings.Contains(segment, "*") {
			return nil, errors.New("a star stands at the end of its path, or for a whole part of it")
		}
	}
	return pattern, nil
}

// matchPath tells whether a canonical path is what a rule's pattern says.
func matchPath(pattern []string, path string) bool {
	segments := strings.Split(path[1:], "/")
	last := len(pattern) - 1
	if len(segments) <= last {
		return false
	}
	for k, want := range pattern[:last] {
		if want != segments[k] && (want != "*" || segments[k] == "") {
			return false
		}
	}
	if begin, open := strings.CutSuffix(pattern[last], "*"); open {
		return strings.HasPrefix(segments[last], begin)
	}
	return len(segments) == last+1 && segments[last] == pattern[last]
}
