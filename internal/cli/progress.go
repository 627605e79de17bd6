package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"paddock/internal/image"
)

// teller shows on a terminal how far something is.
type teller struct {
	cl     *cli
	doing  string
	shown  bool
	mu     sync.Mutex
	next   time.Time // when to show it again
	silent bool
}

// showEvery is how often a terminal is told.
const showEvery = 100 * time.Millisecond

func (cl *cli) tellProgress(doing string) *teller {
	return &teller{cl: cl, doing: plain(doing), silent: !terminal(cl.stderr), next: time.Now().Add(quietTime)}
}

// tell shows it, from time to time.
func (t *teller) tell(now image.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.silent || time.Now().Before(t.next) {
		return
	}
	t.next, t.shown = time.Now().Add(showEvery), true
	text := fmt.Sprintf("paddock: %s: %s", t.doing, amount(now.Done))
	if now.Total > 0 {
		text += fmt.Sprintf(" of %s", amount(now.Total))
	}
	if now.Layers > 1 {
		text += fmt.Sprintf(", %d of %d layers", now.LayersDone, now.Layers)
	}
	fmt.Fprintf(t.cl.stderr, "\r\x1b[K%s", strings.TrimSpace(text))
}

// end takes the line away again.
func (t *teller) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shown {
		fmt.Fprint(t.cl.stderr, "\r\x1b[K")
	}
	t.silent = true
}
