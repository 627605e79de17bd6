package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// event is one of a stream of server-sent events.
type event struct {
	name  string // empty: message
	id    string
	data  []byte
	retry time.Duration // 0: it says nothing about it
}

// longestID is how long an event's id may be: it is sent back in a header.
const longestID = 1 << 10

// events reads a stream of server-sent events, in all of which there may be limit
// bytes each. It gives io.EOF at the end, also where that cuts an event short.
func events(r io.Reader, limit int) func() (event, error) {
	lines := eventLines{Reader: bufio.NewReaderSize(r, 16<<10)}
	start := true
	return func() (event, error) {
		var e event
		some, size := false, 0
		for {
			line, err := lines.next(limit - size)
			if errors.Is(err, errLong) {
				return event{}, newProblem(TooLarge, true, nil, "it sent a message of more than %d bytes", limit)
			}
			if err != nil {
				return event{}, err
			}
			if start {
				line, start = bytes.TrimPrefix(line, []byte("\ufeff")), false
			}
			if len(line) == 0 {
				if some {
					return e, nil
				}
				continue
			}
			size += len(line)
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "data":
				if e.data != nil {
					e.data = append(e.data, '\n')
				}
				e.data, some = append(e.data, value...), true
				if e.data == nil {
					e.data = []byte{}
				}
			case "event":
				e.name, some = string(value), true
			case "id":
				if len(value) <= longestID && bytes.IndexByte(value, 0) < 0 {
					e.id, some = string(value), true
				}
			case "retry":
				if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
					e.retry, some = time.Duration(ms)*time.Millisecond, true
				}
			}
		}
	}
}

var errLong = errors.New("a line is too long")

// eventLines reads lines that end in LF, CRLF or CR. It does not wait for what comes
// after a CR.
type eventLines struct {
	*bufio.Reader
	feed bool // the last line ended in CR, so that a LF belongs to it
}

// next gives a line of at most limit bytes, without its end; io.EOF where there is
// no whole one.
func (l *eventLines) next(limit int) (line []byte, err error) {
	for {
		if _, err := l.Peek(1); errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, io.EOF
		} else if err != nil {
			return nil, err
		}
		part, _ := l.Peek(l.Buffered())
		if l.feed && part[0] == '\n' {
			_, _ = l.Discard(1)
			part = part[1:]
		}
		l.feed = false
		end := bytes.IndexAny(part, "\r\n") // one pass, which ends there: a buffer may hold thousands of lines
		text := part
		if end >= 0 {
			text = part[:end]
			l.feed = part[end] == '\r'
		}
		if len(line)+len(text) > limit {
			return nil, errLong
		}
		line = append(line, text...)
		_, _ = l.Discard(min(len(text)+1, len(part)))
		if end >= 0 {
			return line, nil
		}
	}
}
