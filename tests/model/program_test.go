package model

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// program is a random one in the fake's language, and what the model says of it.
type program struct {
	language string
	lines    []string
	ends     string // "well", "raise", "exit", "loop", "spin", "crash" or "vanish"
	after    moment // what it leaves where it ends by itself
}

var endings = []struct {
	name   string
	weight int
}{{"well", 70}, {"raise", 8}, {"exit", 5}, {"loop", 3}, {"spin", 4}, {"crash", 6}, {"vanish", 4}}

// write makes a program that begins at a moment; step makes it leave something
// that was not there before.
func write(r *rand.Rand, from moment, step int) program {
	p := program{language: []string{"python", "javascript"}[r.IntN(2)], after: from.clone()}
	vars := p.after.vars[p.language]
	if vars == nil {
		vars = map[string]int64{}
		p.after.vars[p.language] = vars
	}
	letter := p.language[:1]
	p.set(letter+"_step", fmt.Sprint(step), int64(step))
	for range r.IntN(4) {
		name := fmt.Sprint(letter, "_", r.IntN(4))
		switch kind := r.IntN(6); kind {
		case 0, 1, 2:
			p.compute(r, name)
		case 3:
			p.touch(r)
		case 4:
			if path, ok := pick(r.IntN, p.after.files); ok {
				p.set(name, fmt.Sprintf("len(read('/%s'))", path), int64(len([]rune(p.after.files[path]))))
			}
		case 5:
			if path, ok := pick(r.IntN, p.after.files); ok {
				p.lines = append(p.lines, fmt.Sprintf("remove('/%s')", path))
				delete(p.after.files, path)
			}
		}
	}
	p.end(r)
	return p
}

func (p *program) set(name, expression string, v int64) {
	p.lines = append(p.lines, name+" = "+expression)
	p.after.vars[p.language][name] = v
}

// compute makes a variable of another one.
func (p *program) compute(r *rand.Rand, name string) {
	from, ok := pick(r.IntN, p.after.vars[p.language])
	add := int64(r.IntN(1000))
	if !ok {
		p.set(name, fmt.Sprint(add), add)
		return
	}
	p.set(name, fmt.Sprintf("(%s * 31 + %d) %% 1000003", from, add), (p.after.vars[p.language][from]*31+add)%1000003)
}

// touch writes a file, or adds to one.
func (p *program) touch(r *rand.Rand) {
	path := fmt.Sprint([]string{"workspace/f", "workspace/g", "tmp/t"}[r.IntN(3)], r.IntN(3))
	if in, ok := pick(r.IntN, p.after.under("workspace/d")); ok && r.IntN(3) == 0 {
		path = "workspace/d/" + in
	}
	text := strings.Repeat(fmt.Sprint(r.IntN(1000), ";"), r.IntN(200))
	verb := "write"
	if _, there := p.after.files[path]; there && r.IntN(2) == 0 {
		verb, p.after.files[path] = "append", p.after.files[path]+text
	} else {
		p.after.files[path] = text
	}
	p.lines = append(p.lines, fmt.Sprintf("%s('/%s', '%s')", verb, path, text))
}

func (p *program) end(r *rand.Rand) {
	n, k := r.IntN(100), 0
	for n >= endings[k].weight {
		n -= endings[k].weight
		k++
	}
	p.ends = endings[k].name
	switch p.ends {
	case "well":
	case "raise":
		p.lines = append(p.lines, "raise ValueError('no')")
	case "exit":
		p.lines = append(p.lines, "exit(3)")
	case "loop", "spin":
		p.lines = append(p.lines, "print('now')", p.ends)
	default:
		p.lines = append(p.lines, p.ends)
	}
}

// run runs it, and cancels it where it does not end by itself, once it has done
// everything else.
func (p *program) run(t *testing.T, m *session.Manager, w *twin) (session.Result, error) {
	q := session.Request{Code: strings.Join(p.lines, "\n"), Language: p.language}
	var stopping sync.WaitGroup
	defer stopping.Wait()
	if p.ends == "loop" || p.ends == "spin" {
		q.Limits.Grace = time.Millisecond
		q.Stdout = writerFunc(func(b []byte) (int, error) {
			stopping.Go(func() {
				time.Sleep(time.Millisecond) // so that it has mostly begun to spin
				if _, err := m.Cancel(w.owner, w.id, ""); err != nil {
					t.Error(err)
				}
			})
			return len(b), nil
		})
	}
	return m.Execute(t.Context(), w.owner, w.id, q)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// leaves gives what a session holds after it ended so, and what the notice says.
func (p *program) leaves(from moment, exit sandbox.Exit, forced sandbox.State) (left moment, notice string) {
	switch p.ends {
	case "spin", "crash":
		if p.ends == "spin" && exit.State == sandbox.Kept {
			return p.after, "" // it was cancelled before it began to spin
		}
		left = from.clone()
		if left.vars[p.language] == nil || forced == sandbox.Fresh {
			left.vars[p.language] = map[string]int64{}
		}
		if forced == sandbox.Fresh {
			return left, "are gone"
		}
		return left, "as they were before this call"
	}
	return p.after, ""
}
