package upstream

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"paddock/internal/secret/redact"
)

const (
	// tailSize is how much of a program's standard error is kept, in bytes: a stack
	// trace or two.
	tailSize = 8 << 10
	// mostLogged is how many of its lines are logged, of at most longestLogged bytes each.
	mostLogged    = 1000
	longestLogged = 1 << 10
	// shortestSecret is from which length on a variable's value is blotted out.
	shortestSecret = 6
)

// tail keeps the end of what a program writes to its standard error, and logs its
// beginning. The values of its variables are in neither.
type tail struct {
	secrets []string // the longest first
	log     *slog.Logger

	mu     sync.Mutex // guards what follows
	kept   []byte
	logged int
}

func newTail(env map[string]string, log *slog.Logger) *tail {
	values := slices.Sorted(maps.Values(env))
	slices.SortStableFunc(values, func(a, b string) int { return len(b) - len(a) })
	values = slices.DeleteFunc(values, func(value string) bool { return len(value) < shortestSecret })
	return &tail{secrets: values, log: log}
}

// readFrom takes all that comes from r, and ends with it. Values are blotted out before it is
// cut into lines, and before long lines are cut; so is what is to be hidden besides.
func (t *tail) readFrom(r io.Reader, hide *redact.Redactor) {
	b := bufio.NewReaderSize(hide.Reader(&blotted{r: r, secrets: t.secrets}), tailSize)
	for {
		line, err := b.ReadSlice('\n')
		if len(line) > 0 {
			t.note(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (t *tail) note(line []byte) {
	text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "�")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(append(t.kept, text...), '\n')
	if over := len(t.kept) - tailSize; over > 0 {
		for over < len(t.kept) && !utf8.RuneStart(t.kept[over]) {
			over++
		}
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	if t.logged++; t.logged <= mostLogged {
		t.log.Debug("a server wrote to its standard error", "line", text[:min(len(text), longestLogged)])
	} else if t.logged == mostLogged+1 {
		t.log.Debug("a server writes more to its standard error, which is not logged any more")
	}
}

// String is what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}

// blotted reads what has values blotted out, wherever it is divided. It holds back what may
// be the beginning of one.
type blotted struct {
	r       io.Reader
	secrets []string // the longest first

	buffer [4 << 10]byte
	in     string // may begin a value
	out    []byte
	err    error
}

// Read implements [io.Reader].
func (b *blotted) Read(p []byte) (int, error) {
	for len(b.out) == 0 && b.err == nil {
		var n int
		n, b.err = b.r.Read(b.buffer[:])
		b.in += string(b.buffer[:n])
		b.blot()
	}
	n := copy(p, b.out)
	if b.out = b.out[n:]; n > 0 {
		return n, nil
	}
	return 0, b.err
}

// blot takes what is known not to begin a value.
func (b *blotted) blot() {
	b.out = b.out[:0]
	for b.in != "" {
		n, known := b.value()
		switch {
		case !known:
			return
		case n > 0:
			b.out = append(b.out, "***"...)
		default:
			n = 1
			b.out = append(b.out, b.in[0])
		}
		b.in = b.in[n:]
	}
}

// value gives the bytes of the value that comes next; 0: none does. It is not known of one
// that has begun and may go on beyond what was read.
func (b *blotted) value() (n int, known bool) {
	for _, s := range b.secrets {
		switch {
		case strings.HasPrefix(b.in, s):
			return len(s), true
		case b.err == nil && strings.HasPrefix(s, b.in):
			return 0, false
		}
	}
	return 0, true
}
