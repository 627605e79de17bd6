// Package jsonbound bounds JSON that others have written before anything is made of it.
// What a decoder makes of a text depends on its parts more than on its bytes: an empty
// object of three bytes becomes a map of fifty, and each level of nesting a call.
package jsonbound

import "errors"

// What [Check] finds.
var (
	ErrDeep = errors.New("it is nested too deep")
	ErrMany = errors.New("it has too many parts")
)

// Check looks, at the cost of one pass over the bytes, whether a text that is JSON is
// nested deeper than depth, or has more than parts commas. It says nothing about one that
// is not JSON. It allocates nothing.
func Check(data []byte, depth, parts int) error {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted:
			if c == '\\' {
				i++
			} else if c == '"' {
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '{', c == '[':
			if depth--; depth < 0 {
				return ErrDeep
			}
		case c == '}', c == ']':
			depth++
		case c == ',':
			if parts--; parts < 0 {
				return ErrMany
			}
		}
	}
	return nil
}
