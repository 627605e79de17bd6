package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"paddock/internal/textsafe"
)

// maxShown bounds the arguments that a person is shown, in bytes.
const maxShown = 16 << 10

// shownTo gives arguments for a person to read: on lines, and with every character that
// does not show, or changes how others show, in JSON's own escapes. cut says that there
// is more.
func shownTo(arguments json.RawMessage) (text string, cut bool) {
	var b bytes.Buffer
	if json.Indent(&b, arguments, "", "  ") != nil {
		b.Reset()
		b.Write(arguments)
	}
	var shown strings.Builder
	for _, r := range strings.ToValidUTF8(b.String(), "\ufffd") {
		if shown.Len() >= maxShown {
			return shown.String() + " …", true
		}
		switch {
		case r == '\n' || textsafe.Visible(r):
			shown.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&shown, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&shown, `\u%04x`, r)
		}
	}
	return shown.String(), false
}
