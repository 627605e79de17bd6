package session_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
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
	default:
		p.lines = append(p.lines, p.ends)
	}
}

// request is how it is run.
func (p *program) request() session.Request {
	q := session.Request{Code: strings.Join(p.lines, "\n"), Language: p.language}
	if p.ends == "loop" || p.ends == "spin" {
		q.Timeout, q.Limits.Grace = 5*time.Millisecond, time.Millisecond
	}
	return q
}

// leaves gives what a session holds after it, and what the notice says. ok is
// false where there is no result at all.
func (p *program) leaves(from moment, forced sandbox.State) (left moment, notice string, ok bool) {
	switch p.ends {
	case "vanish":
		return from, "", false
	case "spin", "crash":
		left = from.clone()
		if left.vars[p.language] == nil || forced == sandbox.Fresh {
			left.vars[p.language] = map[string]int64{}
		}
		if forced == sandbox.Fresh {
			return left, "are gone", true
		}
		return left, "as they were before this call", true
	}
	return p.after, "", true
}
