package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"paddock/internal/bindings/schema"
	"paddock/internal/bindings/upstream"
)

const (
	// maxSample bounds a result that is learned from, in bytes; waiting for their turn
	// are maxSamples at most, and what comes beyond is not learned from.
	maxSample  = 1 << 20
	maxSamples = 16
	// maxLessons is how often what was learned of a tool changes: then it stays. The
	// results of an honest tool have said everything after some.
	maxLessons = 32
	// maxTaught bounds how much is known of one server by one owner, in bytes of
	// schemas, and maxLearned how many servers and owners are known.
	maxTaught  = 2 << 20
	maxLearned = 2000
	// restLearned is how long what was learned waits before it is written and shown: the
	// first results of a tool differ, and each change makes files again.
	restLearned = 2 * time.Second
)

// learned is what was learned from tools' results whose servers do not describe them:
// for each owner and server. What one owner's results look like is not shown to others:
// names in them may be data.
type learned struct {
	dir string // empty: nothing is kept
	log *slog.Logger

	samples chan sample
	flushed chan chan struct{} // asks for everything to be learned and shown at once

	mu  sync.Mutex // guards what follows
	all map[lesson]*taught
}

type lesson struct{ owner, key string }

// taught is what is known of a server's tools.
type taught struct {
	shown *lessons // nil: nothing yet
	tools map[string]*output
	size  int
	dirty bool
}

// lessons are output schemas by the names of tools. They are not changed.
type lessons struct{ outputs map[string]json.RawMessage }

type output struct {
	Schema  json.RawMessage `json:"schema"`
	Changes int             `json:"changes"`
}

type sample struct {
	lesson
	tool  string
	value json.RawMessage
}

func newLearned(dir string, log *slog.Logger) *learned {
	return &learned{dir: dir, log: log, samples: make(chan sample, maxSamples), flushed: make(chan chan struct{}), all: map[lesson]*taught{}}
}

// offer has something learned from a result, when there is time for it.
func (l *learned) offer(owner, key, tool string, r upstream.Result, raw bool) {
	value := r.Structured
	if text, ok := inText(r); ok && value == nil && !raw {
		value = json.RawMessage(text)
	} else if value == nil && len(r.Content) == 1 && r.Content[0].Kind == upstream.Text {
		value = json.RawMessage(`""`) // a text, whatever it says
	}
	if r.IsError || value == nil || len(value) > maxSample {
		return
	}
	select {
	case l.samples <- sample{lesson{owner, key}, tool, value}:
	default:
	}
}

// run learns until ctx ends; then it shows and writes what is left.
func (l *learned) run(ctx context.Context) {
	timer := time.NewTimer(restLearned)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case s := <-l.samples:
			if l.learn(s) {
				timer.Reset(restLearned)
			}
		case <-timer.C:
			l.flush()
		case told := <-l.flushed:
			l.drain()
			close(told)
		case <-ctx.Done():
			l.drain()
			return
		}
	}
}

func (l *learned) drain() {
	for {
		select {
		case s := <-l.samples:
			l.learn(s)
		default:
			l.flush()
			return
		}
	}
}

// learn takes one result, and tells whether something is known now that was not.
func (l *learned) learn(s sample) bool {
	l.mu.Lock()
	of := l.taughtLocked(s.lesson)
	was := of.tools[s.tool]
	l.mu.Unlock()
	var known json.RawMessage
	if was != nil {
		if was.Changes >= maxLessons {
			return false
		}
		known = was.Schema
	}
	next := schema.Learn(known, s.value)
	if next == nil || bytes.Equal(next, known) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	size := of.size + len(next) - len(known)
	if was == nil {
		size += len(s.tool)
	}
	if size > maxTaught {
		return false
	}
	changes := 1
	if was != nil {
		changes = was.Changes + 1
	}
	of.tools[s.tool], of.size, of.dirty = &output{next, changes}, size, true
	return true
}

// flush shows and writes what has changed.
func (l *learned) flush() {
	for of, text := range l.show() {
		if l.dir == "" {
			continue
		}
		err := replace(l.path(of), text)
		if err == nil {
			err = prune(l.dir, maxLearned)
		}
		if err != nil {
			l.log.Warn("what was learned from results cannot be kept on the disk", "cause", err)
		}
	}
}

func (l *learned) show() map[lesson][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	texts := map[lesson][]byte{}
	for of, t := range l.all {
		if !t.dirty {
			continue
		}
		t.dirty, t.shown = false, t.lessons()
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // the schemas come back as they are
		if err := e.Encode(learnedText{learnedVersion, nameOf(of.owner, of.key), t.tools}); err == nil {
			texts[of] = text.Bytes()
		}
	}
	return texts
}

func (t *taught) lessons() *lessons {
	if len(t.tools) == 0 {
		return nil
	}
	all := &lessons{map[string]json.RawMessage{}}
	for name, o := range t.tools {
		all.outputs[name] = o.Schema
	}
	return all
}

// of gives what is known of a server's results; nil: nothing.
func (l *learned) of(owner, key string) *lessons {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taughtLocked(lesson{owner, key}).shown
}

func (l *learned) taughtLocked(of lesson) *taught {
	t := l.all[of]
	if t == nil {
		for other, some := range l.all {
			if len(l.all) < maxLearned {
				break
			}
			if !some.dirty {
				delete(l.all, other)
			}
		}
		t = &taught{tools: map[string]*output{}}
		l.loadLocked(of, t)
		l.all[of] = t
	}
	return t
}

// learnedText is a file.
type learnedText struct {
	Version int                `json:"version"`
	Of      string             `json:"of"`
	Tools   map[string]*output `json:"tools"`
}

const learnedVersion = 2

func (l *learned) path(of lesson) string {
	return filepath.Join(l.dir, nameOf(of.owner, of.key)+".json")
}

// loadLocked reads what is on the disk. What is wrong there is as if nothing were: only
// schemas that were learned are taken.
func (l *learned) loadLocked(of lesson, t *taught) {
	if l.dir == "" {
		return
	}
	text, err := readBounded(l.path(of), 4*maxTaught)
	if err != nil {
		return
	}
	var read learnedText
	if json.Unmarshal(text, &read) != nil || read.Version != learnedVersion || read.Of != nameOf(of.owner, of.key) {
		return
	}
	maps.DeleteFunc(read.Tools, func(_ string, o *output) bool { return o == nil || !schema.Learned(o.Schema) })
	for name, o := range read.Tools {
		if t.size += len(name) + len(o.Schema); t.size > maxTaught {
			break
		}
		t.tools[name] = o
	}
	t.shown = t.lessons()
}
