package engines

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// process is a running program; testdata/harness.c says what it understands.
type process struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func (p *program) start(t *testing.T) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Errorf("the program of translated modules: %v", err)
		}
	})
	return &process{in, bufio.NewScanner(out)}
}

// answer is how a command ended.
type answer struct {
	kind  string // ok, trap, killed or error; lost when the process has died
	words []uint64
	text  string   // of an error
	asked []string // calls of functions that nobody gives
}

// trap is the number of a trap, as wasm-rt.h has them.
func (a answer) trap() uint64 {
	if a.kind != "trap" || len(a.words) != 1 {
		return 0
	}
	return a.words[0]
}

func (a answer) String() string {
	if a.kind == "trap" {
		return "trap: " + trapNames[a.trap()]
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s%s", a.kind, hexWords(a.words), a.text))
}

const (
	outOfBounds  = 1
	callIndirect = 6
	exhaustion   = 8
)

var trapNames = map[uint64]string{
	0: "not linked", outOfBounds: "out of bounds", 2: "integer overflow", 3: "integer divided by zero", 4: "invalid conversion to an integer",
	5: "unreachable", callIndirect: "indirect call", 7: "exception", exhaustion: "call stack exhausted",
}

func (p *process) newInstance(slot int, module string) answer {
	return p.do("new", slot, named(module))
}

func (p *process) register(slot int, name string) answer {
	return p.do("register", slot, named(name))
}

func (p *process) call(slot int, export string, words []uint64) answer {
	return p.do("call", slot, named(export), hexWords(words))
}

func (p *process) get(slot int, export string) answer { return p.do("get", slot, named(export)) }
func (p *process) memory(slot int) answer             { return p.do("memory", slot) }

func named(s string) string { return "x" + hex.EncodeToString([]byte(s)) }

func hexWords(words []uint64) string {
	text := make([]string, len(words))
	for i, w := range words {
		text[i] = strconv.FormatUint(w, 16)
	}
	return strings.Join(text, " ")
}

func (p *process) do(what ...any) (a answer) {
	if _, err := fmt.Fprintln(p.in, what...); err != nil {
		return answer{kind: "lost", text: err.Error()}
	}
	for p.out.Scan() {
		kind, rest, _ := strings.Cut(p.out.Text(), " ")
		if kind == "ask" {
			a.asked = append(a.asked, rest)
			continue
		}
		a.kind = kind
		if kind == "error" {
			a.text = rest
			return a
		}
		for _, f := range strings.Fields(rest) {
			w, err := strconv.ParseUint(f, 16, 64)
			if err != nil {
				return answer{kind: "lost", text: err.Error()}
			}
			a.words = append(a.words, w)
		}
		return a
	}
	return answer{kind: "lost", text: "the process died"}
}
