package mcpserver

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	// reportEvery is the least time between two notifications of one call.
	reportEvery = 50 * time.Millisecond
	// maxReport bounds what one notification says; what is printed beyond it in
	// the meantime is left out: the result has it.
	maxReport = 8 << 10
	// maxReportLine is when a line that does not end is reported all the same.
	maxReportLine = 4 << 10
)

// progress tells a client what a program prints while it runs. A client that
// reads slowly never holds the program up.
type progress struct {
	send           func(lines float64, message string)
	stdout, stderr lineWriter

	quit    chan struct{}
	stopped sync.WaitGroup
	wake    chan struct{} // holds a token when there is something to tell

	mu      sync.Mutex // guards what follows
	pending bytes.Buffer
	lines   int // since the start
	omitted int // of the pending ones
}

// reporting runs f, and reports through notify what it writes; without notify
// the writers are nil. Nothing is reported afterwards.
func reporting(notify func(float64, string), f func(stdout, stderr io.Writer) error) error {
	if notify == nil {
		return f(nil, nil)
	}
	p := newProgress(notify)
	defer p.stop()
	return f(&p.stdout, &p.stderr)
}

func newProgress(send func(float64, string)) *progress {
	p := &progress{send: send, quit: make(chan struct{}), wake: make(chan struct{}, 1)}
	p.stdout.progress, p.stderr.progress = p, p
	p.stopped.Go(p.report)
	return p
}

// stop tells what is left and ends the reports.
func (p *progress) stop() {
	p.stdout.end()
	p.stderr.end()
	close(p.quit)
	p.stopped.Wait()
}

// report waits a little once there is something to tell: what comes meanwhile
// is told with it.
func (p *progress) report() {
	for {
		select {
		case <-p.wake:
		case <-p.quit:
			p.flush()
			return
		}
		select {
		case <-time.After(reportEvery):
		case <-p.quit:
		}
		p.flush()
	}
}

// flush sends what is pending.
func (p *progress) flush() {
	p.mu.Lock()
	message, lines := p.pending.String(), p.lines
	if p.omitted > 0 {
		message += "[…]\n"
	}
	p.pending.Reset()
	p.omitted = 0
	p.mu.Unlock()
	if message != "" {
		p.send(float64(lines), strings.TrimSuffix(message, "\n"))
	}
}

// add takes one line.
func (p *progress) add(line []byte) {
	p.mu.Lock()
	p.lines++
	if p.pending.Len()+len(line) < maxReport {
		p.pending.Write(line)
		p.pending.WriteByte('\n')
	} else {
		p.omitted++
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// lineWriter cuts one stream into lines. It is written to by one goroutine,
// and ended when that has stopped.
type lineWriter struct {
	progress *progress
	line     []byte
}

// Write never fails. A carriage return ends a line too: it redraws one.
func (w *lineWriter) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		k := bytes.IndexAny(rest, "\r\n")
		if k < 0 {
			w.line = append(w.line, rest...)
			if len(w.line) > maxReportLine {
				w.end()
			}
			break
		}
		w.line = append(w.line, rest[:k]...)
		rest = rest[k+1:]
		if len(w.line) > 0 {
			w.progress.add(w.line[:min(len(w.line), maxReportLine)])
			w.line = w.line[:0]
		}
	}
	return len(data), nil
}

// end reports a last line that does not end.
func (w *lineWriter) end() {
	if len(w.line) > 0 {
		w.progress.add(w.line[:min(len(w.line), maxReportLine)])
		w.line = w.line[:0]
	}
}
