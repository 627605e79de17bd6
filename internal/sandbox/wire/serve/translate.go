package serve

import (
	"encoding/json"
	"fmt"
	"sync"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// translations are what a process has the server translate. It is safe for concurrent
// use.
//
// Lock order: the connection's, then mu.
type translations struct {
	conn *wire.Conn
	room chan struct{} // holds a token for each that the server has not answered

	mu      sync.Mutex // guards what follows
	number  uint32     // of the latest
	waiting map[uint32]chan sandbox.Translation
}

func newTranslations(conn *wire.Conn) *translations {
	return &translations{conn: conn, room: make(chan struct{}, wire.TranslationsAtOnce), waiting: map[uint32]chan sandbox.Translation{}}
}

// Translate has the server take the types out of TypeScript, and waits for that. It is
// false when stop was closed before.
func (l *Loop[I]) Translate(s sandbox.Source, stop <-chan struct{}) (t sandbox.Translation, ok bool) {
	return l.translations.ask(s, stop)
}

// Program gives the code that a runtime executes for a run, and the source map that leads
// back from it; empty: it is the code as it came. Where there is none, the run has ended,
// as failed says.
func (l *Loop[I]) Program(e *Ends, body wire.RunBody, runtime string) (code, sourceMap string, failed *sandbox.Exit) {
	switch {
	case body.Language == "" || body.Language == runtime:
		return body.Code, "", nil
	case body.Language != "typescript" || runtime != "javascript":
		exit := e.Refuse(body, &sandbox.ProgramError{
			Type: "Unsupported", Message: fmt.Sprintf("the %s runtime does not run %s", runtime, body.Language),
			Traceback: "this runtime does not run " + body.Language + "\n",
		})
		return "", "", &exit
	}
	soft, _ := e.Control.Stops()
	t, ok := l.Translate(sandbox.Source{Code: body.Code, Name: body.Name}, soft)
	switch {
	case !ok:
		exit := NeverBegun(e.Control.End())
		return "", "", &exit
	case t.Error != nil:
		exit := e.Refuse(body, t.Error)
		return "", "", &exit
	}
	return t.Code, t.Map, nil
}

// CutTranslations is called when what the server was asked for will not be answered.
func (l *Loop[I]) CutTranslations() { l.translations.cut() }

func (t *translations) ask(s sandbox.Source, stop <-chan struct{}) (sandbox.Translation, bool) {
	if len(s.Code) > sandbox.MaxSource {
		return untranslated(fmt.Sprintf("the program is too long: it has more than %d MiB", sandbox.MaxSource>>20)), true
	}
	select {
	case t.room <- struct{}{}:
	case <-stop:
		return sandbox.Translation{}, false
	}
	answer := make(chan sandbox.Translation, 1)
	number := uint32(0)
	// It begins to wait and is sent in one step: between the two the machine could be saved.
	err := t.conn.Alone(func(write func(wire.Kind, uint32, any) error) error {
		number = t.begin(answer)
		return write(wire.KindTranslate, number, s)
	})
	if err != nil {
		t.answer(number, untranslated("the program is too long")) // or the server is gone
	}
	select {
	case a := <-answer:
		return a, true
	case <-stop:
		return sandbox.Translation{}, false
	}
}

// begin notes who waits for an answer, and gives its number.
func (t *translations) begin(answer chan sandbox.Translation) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	t.waiting[t.number] = answer
	return t.number
}

// translated takes an answer of the server's.
func (t *translations) translated(f wire.Frame) error {
	var a sandbox.Translation
	if err := json.Unmarshal(f.Body, &a); err != nil {
		return fmt.Errorf("reading a translation: %w", err)
	}
	t.answer(f.ID, a)
	return nil
}

// answer hands an answer to whom it is for, who may have left. What was cut before has
// had one.
func (t *translations) answer(number uint32, a sandbox.Translation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := t.waiting[number]
	if to == nil {
		return
	}
	delete(t.waiting, number)
	<-t.room
	to <- a
}

func (t *translations) cut() {
	t.mu.Lock()
	var all []uint32
	for number := range t.waiting {
		all = append(all, number)
	}
	t.mu.Unlock()
	for _, number := range all {
		t.answer(number, untranslated("the machine was saved meanwhile; run it again"))
	}
}

func untranslated(why string) sandbox.Translation {
	return sandbox.Translation{Error: &sandbox.ProgramError{Type: "SyntaxError", Message: why, Traceback: "SyntaxError: " + why + "\n"}}
}
