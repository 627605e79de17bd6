package mcpserver

import (
	"bytes"
	"fmt"
	"image"
	_ "image/gif"  // so that image.DecodeConfig knows it
	_ "image/jpeg" // likewise
	_ "image/png"  // likewise
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// cutMiddle makes s about most bytes long: what begins and what ends it stays,
// and a note says what is missing and how to get at it.
func cutMiddle(s string, most int) string {
	return cutWith(s, int64(len(s)), most, seeAll)
}

// seeAll is how a model sees all of what was cut.
const seeAll = "to see all, write it to a file in /workspace and read_file parts of it (offset, limit)"

// cutWith is cutMiddle of a text that was of all bytes, and may have been cut in its middle
// before, with a word of its own about how to see all.
func cutWith(s string, all int64, most int, how string) string {
	if len(s) <= most {
		return s
	}
	head := textsafe.Cut(s, most*2/3)
	if k := strings.LastIndexByte(head, '\n'); k > len(head)/2 {
		head = head[:k+1]
	}
	from := len(s) - most/3
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	if k := strings.IndexByte(s[from:], '\n'); k >= 0 && k < most/6 {
		from += k + 1
	}
	note := fmt.Sprintf("[… %d bytes left out; %s …]", max(all, int64(len(s)))-int64(len(head)+len(s)-from), how)
	if !strings.HasSuffix(head, "\n") {
		note = "\n" + note
	}
	return head + note + "\n" + s[from:]
}

// shown is one display with what it takes to show it.
type shown struct {
	Display
	uri     string
	image   []byte // nil when it is none or cannot be shown
	shownAs string // the image's type, where it is not MIMEType
	// large tells that it could be seen in a file, and small that it is a picture
	// that could be shown smaller then.
	large, small bool
}

// Bounds of what is displayed. A picture that a model's provider refuses makes
// a whole conversation fail, so what exceeds its limits is not passed on.
const (
	maxPictures     = 10
	maxPictureBytes = 3_700_000 // 5 MB as base64
	maxPictureSide  = 8000
	maxPicturesRoom = 8 << 20  // all pictures together
	maxDocument     = 20 << 10 // all documents together
)

var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// showAll decides how each display of a run is shown; pictures are shown while they fit
// into so many bytes.
func showAll(id session.ID, execution string, displays []sandbox.Display, forPictures int) []shown {
	var list []shown
	count, room := 0, maxDocument
	for k, d := range displays {
		s := shown{
			Display: Display{MIMEType: textsafe.Cut(strings.ToValidUTF8(d.MIME, "?"), 100), Size: len(d.Data)},
			uri:     fmt.Sprintf("paddock://sessions/%s/executions/%s/displays/%d", id, execution, k+1),
		}
		switch {
		case slices.Contains(pictures, s.MIMEType):
			if count++; count > maxPictures {
				s.Problem, s.large = fmt.Sprintf("more than %d pictures in one call", maxPictures), unfit(s.MIMEType, d.Data) == ""
			} else if s.Problem, s.large = unfit(s.MIMEType, d.Data), tooLarge(s.MIMEType, d.Data); s.Problem == "" {
				if forPictures -= len(d.Data); forPictures >= 0 {
					s.image = d.Data
				} else {
					s.Problem, s.large = "the pictures of one call are too large together", true
				}
			}
			s.small = s.large && count <= maxPictures
		case !utf8.Valid(d.Data):
			s.Problem = fmt.Sprintf("%s is neither text nor a picture that clients show", textsafe.QuoteShort(s.MIMEType))
			s.large = len(d.Data) > 0
		case room <= 0:
			s.Problem, s.large = "the documents of one call are too long; write them to files", len(d.Data) > 0
		default:
			s.Text, s.large = cutMiddle(string(d.Data), room), len(d.Data) > room
			room -= len(s.Text)
		}
		list = append(list, s)
	}
	return list
}

// tooLarge reports whether a picture is unfit for no other reason than its size.
func tooLarge(mime string, data []byte) bool {
	if http.DetectContentType(data) != mime {
		return false
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	return len(data) > maxPictureBytes && (err == nil || mime == "image/webp") || err == nil && max(c.Width, c.Height) > maxPictureSide
}

// unfit says why bytes cannot be shown as a picture of that kind; "" when they can.
func unfit(mime string, data []byte) string {
	if http.DetectContentType(data) != mime {
		return fmt.Sprintf("the %d bytes are no %s", len(data), mime)
	}
	if len(data) > maxPictureBytes {
		return fmt.Sprintf("a picture of %d bytes is larger than %d; show it smaller, or save it to a file", len(data), maxPictureBytes)
	}
	if mime == "image/webp" {
		return "" // there is no reader for it here; clients check it again
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return "the picture is damaged"
	}
	if c.Width > maxPictureSide || c.Height > maxPictureSide {
		return fmt.Sprintf("a picture of %d x %d is larger than %d on a side", c.Width, c.Height, maxPictureSide)
	}
	return ""
}
