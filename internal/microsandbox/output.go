package microsandbox

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// Line is a line of output, without its end.
type Line struct {
	Stream string `json:"stream"` // "stdout", "stderr"
	Text   string `json:"text"`
}

// maxLines is how many lines of an output are told one by one: each costs some 30
// bytes around it, so that a million of empty ones would be 30 times as large.
const maxLines = 2000

// lines collects what is printed on both streams, line by line in the order of
// printing, up to a limit in bytes. What follows the first maxLines is one text for
// each stream.
type lines struct {
	limit int64

	mu    sync.Mutex // guards what follows
	all   []Line
	open  map[string]*strings.Builder // what has no end of line yet
	taken map[string]int64            // bytes of each stream
	size  int64
}

// stream gives the writer of one of them; what it is given goes to also as well,
// where that is set.
func (l *lines) stream(name string, also io.Writer) io.Writer { return lineWriter{l, name, also} }

type lineWriter struct {
	lines *lines
	name  string
	also  io.Writer
}

func (w lineWriter) Write(p []byte) (int, error) {
	l := w.lines
	if w.also != nil {
		if n, err := w.also.Write(p); err != nil {
			return n, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := p
	if room := l.limit*2/3 - l.size; int64(len(keep)) > room {
		keep = keep[:max(room, 0)]
	}
	l.size += int64(len(keep))
	if l.taken == nil {
		l.taken = map[string]int64{}
	}
	l.taken[w.name] += int64(len(keep))
	l.addLocked(w.name, string(keep))
	return len(p), nil
}

func (l *lines) addLocked(stream, text string) {
	if l.open == nil {
		l.open = map[string]*strings.Builder{}
	}
	open := l.open[stream]
	if open == nil {
		open = &strings.Builder{}
		l.open[stream] = open
	}
	for text != "" {
		if len(l.all) >= maxLines {
			open.WriteString(text)
			return
		}
		line, rest, whole := strings.Cut(text, "\n")
		open.WriteString(line)
		if text = rest; whole {
			l.endLocked(stream)
		}
	}
}

// endLocked ends the line of a stream that is open.
func (l *lines) endLocked(stream string) {
	open := l.open[stream]
	l.all = append(l.all, Line{stream, strings.ToValidUTF8(open.String(), "\uFFFD")})
	open.Reset()
}

// endOfLocked adds the end of a stream of which the lines have the beginning alone.
func (l *lines) endOfLocked(name, text string, of session.Stream) {
	missing := max(of.Bytes, int64(len(text))) - l.taken[name]
	if missing <= 0 {
		return
	}
	text = text[of.End:]
	end := text[max(0, int64(len(text))-min(missing, l.limit/6)):]
	if left := missing - int64(len(end)); left > 0 {
		if _, rest, ok := strings.Cut(end, "\n"); ok && rest != "" {
			left, end = left+int64(len(end)-len(rest)), rest
		}
		l.addLocked(name, fmt.Sprintf("[… %d bytes left out …]\n", left))
	}
	l.addLocked(name, end)
}

// endAllLocked ends what is open, of both streams.
func (l *lines) endAllLocked() {
	for _, stream := range []string{"stdout", "stderr"} {
		if open := l.open[stream]; open != nil && open.Len() > 0 {
			rest := strings.TrimSuffix(open.String(), "\n")
			open.Reset()
			open.WriteString(rest)
			l.endLocked(stream)
		}
	}
}

// take gives all lines, with how the program ended after them.
func (l *lines) take(res session.Result) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endAllLocked()
	l.endOfLocked("stdout", res.Stdout, res.StdoutStream)
	l.endOfLocked("stderr", res.Stderr, res.StderrStream)
	if res.Exit.Result != "" {
		l.addLocked("stdout", res.Exit.Result+"\n")
	}
	if e := res.Exit.Error; e != nil && !strings.Contains(res.Stderr, e.Type) { // else it was printed
		l.addLocked("stderr", strings.TrimSuffix(errorText(e), "\n")+"\n")
	}
	if c := res.Exit.Cause; c != sandbox.Exited {
		l.addLocked("stderr", "["+c.String()+"]\n")
	}
	if res.Notice != "" {
		l.addLocked("stderr", "["+res.Notice+"]\n")
	}
	l.endAllLocked()
	if l.all == nil {
		return []Line{}
	}
	return l.all
}

// errorText is what a program would have printed of its error.
func errorText(e *sandbox.ProgramError) string {
	if e.Traceback != "" {
		return e.Traceback
	}
	return e.Type + ": " + e.Message
}
