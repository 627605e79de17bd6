package mcpserver

import (
	"bytes"
	"context"
	"fmt"
	"mime"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/membudget"
	"paddock/internal/picture"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// Bounds of what is shown of something that became a file.
const (
	previewOutput   = 16 << 10 // of stdout, and of stderr
	previewDocument = 1 << 10
	// previewTime bounds how long the pictures of a run are read and made smaller: one
	// of the largest that are read takes a tenth of it.
	previewTime = 3 * time.Second
)

// lostIn tells of a stream that something of it is gone; "": nothing is. stopped: the
// program was, because it printed so much.
func lostIn(stream string, p session.Stream, stopped bool) string {
	if p.LeftOut == 0 || p.Path != "" && p.Problem == "" && !stopped {
		return ""
	}
	kept := "its beginning and its end are kept"
	switch {
	case stopped && p.Path != "" && p.Problem == "":
		return fmt.Sprintf("The program printed more than %d bytes to %s; what came after is lost. Write large output to a file in /workspace.", p.Bytes, stream)
	case p.Problem != "":
		kept += ", as " + p.Problem
	}
	return fmt.Sprintf("The program printed %d bytes to %s: %s. Write large output to a file in /workspace.", p.Bytes, stream, kept)
}

// holds says what of a stream is there.
func holds(f execution.Place) string {
	if f.Part {
		return "its beginning and its end are"
	}
	return "all of it is"
}

// roomForPictures is how many bytes of pictures are shown.
func roomForPictures(f execution.Filed) int {
	if f.NoPictures {
		return 0
	}
	return maxPicturesRoom
}

// cutFiled makes what is kept of a stream of so many bytes about most bytes long, and says where
// all of it is.
func cutFiled(f execution.Place, s string, all int64, most int) string {
	how := seeAll
	switch {
	case f.Path != "":
		how = holds(f) + " in " + f.Path + ": read_file it in parts (offset, limit), or search_files"
	case f.Problem != "":
		how = "it could not be written to a file: " + f.Problem
	}
	return cutWith(s, all, most, how)
}

// shrinkFunc makes a picture smaller; nil: it cannot be read, or takes too long.
type shrinkFunc func(data []byte) []byte

// putAway has what of a run's output is too large for its result written into files,
// and the owner's pictures made smaller.
func (s *Server) putAway(ctx context.Context, owner session.Owner, res session.Result, put session.PutFunc) execution.Filed {
	noPictures := false
	if err := membudget.Hold(ctx, heldBy(res)); err != nil {
		s.log.Warn("the pictures of a result are in files alone", "owner", owner, "cause", fault.CauseOf(err))
		noPictures = true
	}
	ctx, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	return putAway(res, put, noPictures, func(data []byte) []byte {
		small, err := picture.Smaller(ctx, s.config.Helpers, string(owner), data)
		if err != nil {
			s.log.Debug("no preview of a picture", "error", fault.CauseOf(err))
			return nil
		}
		return small
	})
}

// heldBy is how many bytes a result takes until its client has read it: what the program
// gave, and the pictures that are shown, as base64, in the three forms in which an answer
// is made.
func heldBy(res session.Result) int64 {
	var all int64
	for _, d := range res.Displays {
		all += int64(len(d.Data))
	}
	return int64(len(res.Stdout)+len(res.Stderr)) + all + 4*min(all, maxPicturesRoom)
}

// putAway writes what of a run's output is too large for its result into files.
func putAway(res session.Result, put session.PutFunc, noPictures bool, shrink shrinkFunc) execution.Filed {
	kept := execution.Filed{Displays: map[int]execution.Place{}, NoPictures: noPictures}
	write := func(name string, data []byte) (f execution.Place) {
		var err error
		if f.Path, err = put(name, data); err != nil {
			f.Problem = fault.ProblemOf(err).Message
		}
		return f
	}
	printed := func(name, text string, most int, p session.Stream) execution.Place {
		switch {
		case p.Path != "":
			return execution.Place{Path: p.Path, Part: p.Problem != ""}
		case p.Problem != "":
			return execution.Place{Problem: p.Problem}
		case len(text) > most:
			f := write(name, []byte(text))
			f.Part = p.LeftOut > 0
			return f
		}
		return execution.Place{}
	}
	forOut, forErr := shares(res.Stdout, res.Stderr, maxOutput)
	kept.Stdout = printed("stdout.txt", res.Stdout, forOut, res.StdoutStream)
	kept.Stderr = printed("stderr.txt", res.Stderr, forErr, res.StderrStream)
	for k, s := range showAll(res.Session, res.Execution, res.Displays, roomForPictures(kept)) {
		if !s.large {
			continue
		}
		data := res.Displays[k].Data
		f := write(fmt.Sprintf("%d%s", k+1, extension(s.MIMEType)), data)
		if f.Path != "" && s.small {
			f.Smaller = shrink(data)
		}
		kept.Displays[k] = f
	}
	return kept
}

// extension is what files of a type end with.
func extension(kind string) string {
	switch kind {
	case "image/jpeg":
		return ".jpg"
	case "text/plain":
		return ".txt"
	case "text/html":
		return ".html"
	case "text/markdown":
		return ".md"
	}
	base, _, err := mime.ParseMediaType(kind)
	_, sub, ok := strings.Cut(base, "/")
	if i := strings.LastIndexAny(sub, "+."); i >= 0 {
		sub = sub[i+1:]
	}
	if err != nil || !ok || sub == "" || len(sub) > 8 || strings.Trim(sub, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return ".bin"
	}
	return "." + sub
}

// showFiled makes of a display that is too large what is shown of one in a file.
func showFiled(f execution.Place, s *shown, d sandbox.Display) {
	if f.Problem != "" {
		s.Problem += "; it could not be written to a file: " + f.Problem
	}
	if f.Path == "" {
		return
	}
	s.Path, s.Problem, s.Text, s.image = f.Path, "", "", f.Smaller
	if f.Smaller != nil {
		s.shownAs = "image/png"
	} else if !s.small {
		s.Text = previewOf(s.MIMEType, d.Data)
	}
}

// previewOf is the beginning of a document; empty: it is none. Of HTML it is what
// one would read.
func previewOf(kind string, data []byte) string {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return ""
	}
	text := string(data[:min(len(data), 64<<10)])
	if kind == "text/html" {
		text = textOf(text)
	}
	short := textsafe.Cut(strings.ToValidUTF8(text, ""), previewDocument)
	if len(short) < len(data) {
		short += "…"
	}
	return short
}

// textOf is the text of an HTML document: a line of it for each row of a table.
func textOf(document string) string {
	var b strings.Builder
	hidden := 0
	for z := html.NewTokenizer(strings.NewReader(document)); ; {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		name, _ := z.TagName()
		tag := string(name)
		switch {
		case kind == html.TextToken && hidden == 0:
			if words := strings.Join(strings.Fields(string(z.Text())), " "); words != "" {
				b.WriteString(words + " ")
			}
		case tag == "script" || tag == "style":
			if kind == html.StartTagToken {
				hidden++
			} else if hidden > 0 {
				hidden--
			}
		case kind == html.EndTagToken && (tag == "tr" || tag == "p" || tag == "div" || tag == "li" || tag == "h1" || tag == "h2"):
			b.WriteByte('\n')
		}
	}
	return strings.TrimSpace(b.String())
}
