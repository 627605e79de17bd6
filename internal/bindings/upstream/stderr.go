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
	secrets *strings.Replacer
	log     *slog.Logger

	mu     sync.Mutex // guards what follows
	kept   []byte
	logged int
}

func newTail(env map[string]string, log *slog.Logger) *tail {
	var pairs []string
	values := slices.Sorted(maps.Values(env))
	slices.SortStableFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, value := range values {
		if len(value) >= shortestSecret {
			pairs = append(pairs, value, "***")
		}
	}
	return &tail{secrets: strings.NewReplacer(pairs...), log: log}
}

// copy takes all that comes from r, and ends with it. Lines that are longer than
// what is kept are cut, so that a value on the cut is in neither part is not promised.
func (t *tail) copy(r io.Reader) {
	b := bufio.NewReaderSize(r, tailSize)
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
	text := t.secrets.Replace(strings.ToValidUTF8(strings.TrimRight(string(line[:min(len(line), tailSize)]), "\r\n"), "�"))
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
