package crash

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// mostSessions bounds what one actor plays with.
const mostSessions = 4

// play does one operation after the other until the process has ended or stop
// is closed.
func (a *actor) play(p *process, stop <-chan struct{}) {
	select {
	case <-p.ready:
	case <-p.dead:
		return
	}
	for {
		select {
		case <-stop:
			return
		case <-p.dead:
			return
		default:
		}
		if a.w.failed() {
			return
		}
		a.step(p)
	}
}

// step does one.
func (a *actor) step(p *process) {
	if len(a.sessions) == 0 || len(a.sessions) < mostSessions && a.rng.IntN(12) == 0 {
		a.create(p)
		return
	}
	for _, s := range a.sessions { // what was interrupted comes first
		if len(s.may) > 1 {
			a.resolve(p, s)
			return
		}
	}
	s := a.sessions[a.rng.IntN(len(a.sessions))]
	switch n := a.rng.IntN(100); {
	case n < 25:
		a.python(p, s)
	case n < 40:
		a.javascript(p, s)
	case n < 48:
		a.long(p, s)
	case n < 56:
		a.write(p, s)
	case n < 62:
		a.edit(p, s)
	case n < 68:
		a.beside(p, s)
	case n < 75:
		a.label(p, s)
	case n < 83:
		a.back(p, s)
	case n < 89:
		a.fork(p, s)
	case n < 92:
		a.try(p, s, func(now *state) { *now = *empty() }, "reset_workspace", map[string]any{"session_id": s.id})
	case n < 95:
		a.destroy(p, s)
	case n < 97:
		a.haunt(p)
	default:
		a.resolve(p, s)
	}
}

// unkept tells whether a notice says that a call was done and not kept: this one,
// and not an earlier one, of which a restore tells as well.
func unkept(notice string) bool {
	return strings.Contains(notice, "What this call left is in memory only: it could not be kept")
}

// undone tells whether a notice says that what was done was taken back at once.
func undone(notice string) bool {
	return strings.Contains(notice, "variables and files are as they were before this call")
}

// try makes a call that changes a session. Not ok: nobody knows whether it did.
func (a *actor) try(p *process, s *session, do func(*state), tool string, arguments map[string]any) (*answer, bool) {
	return a.answered(p, s, do, tool, a.send(p, tool, arguments))
}

// send sends what changes something.
func (a *actor) send(p *process, tool string, arguments map[string]any) <-chan []byte {
	waits := p.begin(tool, arguments)
	select {
	case p.sent <- struct{}{}:
	default:
	}
	return waits
}

// answered waits for the answer to a call that changes a session.
func (a *actor) answered(p *process, s *session, do func(*state), tool string, waits <-chan []byte) (*answer, bool) {
	got, err := p.answer(waits)
	if err == nil && got.failed() == nil && undone(got.Notice) && a.w.tolerant.Load() {
		a.w.count("undone " + tool)
		return nil, false
	}
	if err == nil && got.failed() == nil && !unkept(got.Notice) {
		s.done(do)
		a.w.count(tool)
		return got, true
	}
	s.maybe(do)
	a.bad(p, s, tool, got, err)
	return nil, false
}

// bad reports a call that was not done, unless it is clear why.
func (a *actor) bad(p *process, s *session, tool string, got *answer, err error) {
	switch {
	case errors.Is(err, errDead):
		a.w.count("interrupted " + tool)
	case a.w.tolerant.Load():
		a.w.count("failed " + tool)
	case err != nil:
		a.w.fail("%s in %s: %v\n%s", tool, s.id, err, last(p.said()))
	case got.failed() != nil:
		a.w.fail("%s in %s: %+v\n%s", tool, s.id, *got.failed(), last(p.said()))
	default:
		a.w.fail("%s in %s: %s\n%s", tool, s.id, got.Notice, last(p.said()))
	}
}

// last is the end of a log.
func last(log string) string { return log[max(0, len(log)-2000):] }

// execute runs a program and looks at what it tells.
func (a *actor) execute(p *process, s *session, language, code string, do func(*state)) {
	got, ok := a.try(p, s, do, "execute_code", execution(s.id, language, code))
	if !ok {
		return
	}
	now, err := told(got)
	if err != nil {
		a.w.fail("%s in %s: %v", language, s.id, err)
		a.drop(p, s)
		return
	}
	a.w.draw(s.id, now.Drawn)
	known := s.known()
	if known == nil {
		return
	}
	wrong := ""
	if language == "python" {
		wrong = known.differ(now)
	} else if !known.javascript.is(now) {
		wrong = fmt.Sprintf("javascript is %v and not %v", interpreter{now.Log, now.Block}, known.javascript)
	}
	if wrong != "" {
		a.w.fail("%s: %s; the notice is %q", s.id, wrong, got.Notice)
		a.drop(p, s)
	}
}

// drop gives a session up that is not as it should be.
func (a *actor) drop(p *process, s *session) {
	if got, err := p.call("destroy_session", map[string]any{"session_id": s.id}); err == nil && got.failed() == nil {
		a.forget(s)
		return
	}
	s.may = []*state{nil, empty()}
}

var paths = []string{"/workspace/a.txt", "/workspace/b.txt", "/workspace/c.txt", "/workspace/d/e/f.txt", "/workspace/d/g.txt", "/tmp/t.txt"}

// put is the change of a file.
func put(path string, c content) func(*state) {
	return func(s *state) { s.files[path] = c }
}

func (a *actor) python(p *process, s *session) {
	op := a.w.op()
	var code strings.Builder
	var changes []func(*state)
	for _, path := range paths {
		switch a.rng.IntN(4) {
		case 0:
			c := content{op, 1 + a.rng.IntN(2000)}
			fmt.Fprintf(&code, "put(%q, %d, %d)\n", path, c.op, c.times)
			changes = append(changes, put(path, c))
		case 1:
			fmt.Fprintf(&code, "if os.path.exists(%q): os.remove(%q)\n", path, path)
			changes = append(changes, func(s *state) { delete(s.files, path) })
		}
	}
	block := a.rng.IntN(4) == 0
	if block {
		fmt.Fprintf(&code, "block[::4096] = bytes([%d]) * 256\n", op%251)
	}
	text := python(op, code.String())
	if a.rng.IntN(8) == 0 { // an error that a program does not catch takes nothing back
		text += "raise ValueError('on purpose')\n"
	}
	a.execute(p, s, "python", text, func(s *state) {
		for _, change := range changes {
			change(s)
		}
		s.python.log = append(s.python.log, op)
		if block {
			s.python.block = op % 251
		}
	})
}

func (a *actor) javascript(p *process, s *session) {
	op := a.w.op()
	code := fmt.Sprintf("require('fs').writeFileSync('/workspace/js.txt', '%d '.repeat(%d))\n", op, 1+op%1000)
	block := a.rng.IntN(4) == 0
	if block {
		code += fmt.Sprintf("block.fill(%d)\n", op%251)
	}
	a.execute(p, s, "javascript", javascript(op, code), func(s *state) {
		s.javascript.log = append(s.javascript.log, op)
		s.files["/workspace/js.txt"] = content{op, 1 + op%1000}
		if block {
			s.javascript.block = op % 251
		}
	})
}

// long writes many files and takes its time.
func (a *actor) long(p *process, s *session) {
	op, n := a.w.op(), 20+a.rng.IntN(80)
	code := fmt.Sprintf("end = time.monotonic() + %d / 1000\nfor i in range(%d): put(f'/workspace/many/{i}.txt', %d, 300)\nblock[::4096] = bytes([%d]) * 256\nwhile time.monotonic() < end: pass\n",
		a.rng.IntN(100), n, op, op%251)
	a.execute(p, s, "python", python(op, code), func(s *state) {
		s.python.log, s.python.block = append(s.python.log, op), op%251
		for i := range n {
			s.files[fmt.Sprintf("/workspace/many/%d.txt", i)] = content{op, 300}
		}
	})
}

func (a *actor) write(p *process, s *session) {
	c := content{a.w.op(), 1 + a.rng.IntN(30_000)}
	path := paths[a.rng.IntN(5)] // in the workspace
	a.try(p, s, put(path, c), "write_file", map[string]any{"session_id": s.id, "path": path, "content": c.text()})
}

// edit changes a file everywhere.
func (a *actor) edit(p *process, s *session) {
	var there []string
	for _, path := range slices.Sorted(maps.Keys(s.known().files)) {
		if strings.HasPrefix(path, "/workspace/") {
			there = append(there, path)
		}
	}
	if len(there) == 0 {
		return
	}
	path := there[a.rng.IntN(len(there))]
	was := s.known().files[path]
	op := a.w.op()
	a.try(p, s, put(path, content{op, was.times}), "edit_file", map[string]any{
		"session_id": s.id, "path": path, "old": fmt.Sprintf("%d ", was.op), "new": fmt.Sprintf("%d ", op), "replace_all": true,
	})
}

// beside writes a file while a program runs.
func (a *actor) beside(p *process, s *session) {
	op, c := a.w.op(), content{a.w.op(), 500}
	code := fmt.Sprintf("const end = Date.now() + 30\nfor (let i = 0; i < 10; i++) require('fs').writeFileSync(`/workspace/js${i}.txt`, '%d '.repeat(100))\nwhile (Date.now() < end) {}\n", op)
	// Its braces keep end from being declared twice.
	run := a.send(p, "execute_code", execution(s.id, "javascript", javascript(op, "{"+code+"}")))
	time.Sleep(time.Duration(a.rng.IntN(20)) * time.Millisecond)
	written := a.send(p, "write_file", map[string]any{"session_id": s.id, "path": "beside.txt", "content": c.text()})
	a.answered(p, s, put("/workspace/beside.txt", c), "write_file", written)
	a.answered(p, s, func(s *state) {
		s.javascript.log = append(s.javascript.log, op)
		for i := range 10 {
			s.files[fmt.Sprintf("/workspace/js%d.txt", i)] = content{op, 100}
		}
	}, "execute_code", run)
}

// resolve finds out in which of its states a session is.
func (a *actor) resolve(p *process, s *session) {
	py, first, ok := a.look(p, s, "python", pythonTells+"tell()\n")
	if !ok {
		return
	}
	js, second, ok := a.look(p, s, "javascript", javascriptTells+"tell()\n")
	if !ok {
		return
	}
	var wrong []string
	for _, one := range s.may {
		if one == nil {
			continue
		}
		differs := one.differ(py)
		if !one.javascript.is(js) {
			differs += fmt.Sprintf("; javascript is %v and not %v", interpreter{js.Log, js.Block}, one.javascript)
		}
		if differs == "" {
			s.may = []*state{one}
			return
		}
		wrong = append(wrong, differs)
	}
	a.w.fail("%s is in none of the %d states that it may be in:\n\t%s\nnotices: %q %q\n%s", s.id, len(wrong), strings.Join(wrong, "\n\t"), first, second, last(p.said()))
	a.drop(p, s)
}

// look runs a program that changes nothing.
func (a *actor) look(p *process, s *session, language, code string) (now seen, notice string, ok bool) {
	got, err := p.call("execute_code", execution(s.id, language, code))
	switch {
	case err == nil && got.failed() == nil && !unkept(got.Notice):
	case err == nil && got.failed() != nil && got.failed().Code == "not_found" && s.mayBeGone():
		a.forget(s)
		return now, "", false
	default:
		a.bad(p, s, "look", got, err)
		return now, "", false
	}
	if now, err = told(got); err != nil {
		a.w.fail("%s in %s: %v", language, s.id, err)
		a.drop(p, s)
		return now, "", false
	}
	a.w.draw(s.id, now.Drawn)
	a.w.count("look")
	return now, got.Notice, true
}

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
