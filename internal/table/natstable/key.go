package natstable

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/table"
)

// A name's slashes are the dots of its key, so that the documents of a folder have a filter
// of their own. What a key may not have, or has for this, is written as =XX.

// keyOf gives the key of a document's name.
func keyOf(name string) (string, error) {
	if err := table.Check(name); err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c == '/':
			b.WriteByte('.')
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String(), nil
}

// nameOf is what keyOf made a key of.
func nameOf(key string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		switch c := key[i]; c {
		case '.':
			b.WriteByte('/')
		case '=':
			if i+3 > len(key) {
				return "", strconv.ErrSyntax
			}
			n, err := strconv.ParseUint(key[i+1:i+3], 16, 8)
			if err != nil {
				return "", err
			}
			b.WriteByte(byte(n))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	name := b.String()
	return name, table.Check(name)
}

// filterOf gives the filter of the keys below a folder.
func filterOf(folder string) (string, error) {
	if folder == "" {
		return ">", nil
	}
	key, err := keyOf(folder)
	return key + ".>", err
}

// sortedNames gives the names of keys. Those that are not a document's are left out.
func sortedNames(keys map[string]bool) (all []string) {
	for key := range keys {
		if name, err := nameOf(key); err == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
