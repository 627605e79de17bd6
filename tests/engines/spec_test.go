// Package engines tests what turns WebAssembly into machine code: that the
// translation ahead of time does what the language's specification says, and
// the same as wazero.
package engines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// script is a .wast file of the specification's tests, as wabt writes it down.
type script struct {
	name     string
	Commands []command `json:"commands"`
}

type command struct {
	Type     string  `json:"type"`
	Line     int     `json:"line"`
	Name     string  `json:"name"`     // of module and register
	Filename string  `json:"filename"` // of module and assert_uninstantiable
	As       string  `json:"as"`       // of register
	Action   action  `json:"action"`
	Expected []value `json:"expected"`
	Text     string  `json:"text"` // of assert_trap: why
}

type action struct {
	Type   string  `json:"type"`
	Module string  `json:"module"`
	Field  string  `json:"field"`
	Args   []value `json:"args"`
}

type value struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

// TestTheSpecificationHoldsInTheTranslation runs the core tests of WebAssembly
// 2.0 through wasm2c, guest/build/native, the compiler with the guests' flags,
// and the guests' runtime. They come with wazero; those of 1.0, which come with
// it too, are an older state of the same files.
//
// Left out are the tests of SIMD, which the guests do not use and wasm2c 1.0.32
// does not know, and what is asserted of modules that are invalid, malformed or
// cannot be linked: no such module gets as far as the translation. What else
// does not hold is listed, with its reason and how often, in testdata/spec.txt;
// nothing else may fail, and what is listed must.
func TestTheSpecificationHoldsInTheTranslation(t *testing.T) {
	dir := specification(t)
	failures := runScripts(t, newTranslation(t), dir, readScripts(t, dir))
	compareFailures(t, failures, "testdata/spec.txt")
}

// TestTheSpecificationHoldsWithoutTheCompilersLiberties takes back what the
// guests' flags let the compiler do: to drop a load that nobody uses and could
// only have trapped, and to make a loop of a recursion that only the stack's
// end would have ended. Then everything has to hold in the scripts where
// testdata/spec.txt gives these reasons.
func TestTheSpecificationHoldsWithoutTheCompilersLiberties(t *testing.T) {
	dir := specification(t)
	scripts := slices.DeleteFunc(readScripts(t, dir), func(s *script) bool {
		return !slices.Contains([]string{"address", "call", "call_indirect", "fac", "skip-stack-guard-page", "traps"}, s.name)
	})
	for _, failure := range runScripts(t, newTranslation(t).with(strict...), dir, scripts) {
		t.Error(failure)
	}
}

// strict are the flags that take back the liberties.
var strict = []string{"-DPD_ACCESS=volatile", "-fno-optimize-sibling-calls"}

// runScripts gives what does not hold.
func runScripts(t *testing.T, tr *translation, dir string, scripts []*script) (failures []string) {
	p := tr.build(t, modulesOf(t, dir, scripts))
	held := 0
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			r := &run{process: p.start(t), refused: p.refused, script: s, current: -1, names: map[string]int{}}
			for _, c := range s.Commands {
				r.command(c)
			}
			held += r.held
			failures = append(failures, r.failures...)
		})
	}
	t.Logf("%d assertions, actions and instantiations hold, %d do not", held, len(failures))
	return failures
}

// specification is the folder of the tests inside the pinned module wazero.
func specification(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest", "v2", "testdata")
}

func readScripts(t *testing.T, dir string) (all []*script) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(paths) < 80 {
		t.Fatalf("only %d scripts: %v", len(paths), err)
	}
	for _, path := range paths {
		s := &script{name: strings.TrimSuffix(filepath.Base(path), ".json")}
		if strings.HasPrefix(s.name, "simd_") {
			continue
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, s)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func modulesOf(t *testing.T, dir string, scripts []*script) (all []wasm) {
	t.Helper()
	for _, s := range scripts {
		for _, c := range s.Commands {
			if c.Type != "module" && c.Type != "assert_uninstantiable" {
				continue
			}
			code, err := os.ReadFile(filepath.Join(dir, c.Filename))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, wasm{moduleName(c.Filename), code})
		}
	}
	return all
}

func moduleName(file string) string {
	return strings.NewReplacer(".", "_", "-", "_").Replace(strings.TrimSuffix(file, ".wasm"))
}

// run is one script as it runs.
type run struct {
	*process
	script   *script
	refused  map[string]string
	slots    int
	current  int // the slot of the last module; -1: there is none
	names    map[string]int
	failures []string
	held     int
}

func (r *run) command(c command) {
	var wrong string
	switch c.Type {
	case "module":
		wrong = r.instantiate(c)
	case "register":
		slot := r.slot(c.Name)
		if a := r.register(slot, c.As); slot < 0 || a.kind != "ok" {
			wrong = "register: " + a.String()
		}
	case "action", "assert_return":
		wrong = r.expect(r.perform(c.Action), c)
	case "assert_trap", "assert_exhaustion":
		wrong = trapped(r.perform(c.Action), c.Text)
	case "assert_uninstantiable":
		if why, no := r.refused[moduleName(c.Filename)]; no {
			wrong = "refused: " + why
		} else {
			wrong = trapped(r.newInstance(r.slots, moduleName(c.Filename)), c.Text)
			r.slots++
		}
	case "assert_invalid", "assert_malformed", "assert_unlinkable":
		return
	default:
		wrong = "not understood"
	}
	if wrong == "" {
		r.held++
	} else {
		r.failures = append(r.failures, fmt.Sprintf("%s:%d: %s: %s", r.script.name, c.Line, c.Type, strings.Join(strings.Fields(wrong), " ")))
	}
}

func (r *run) instantiate(c command) string {
	r.current = -1
	if why, no := r.refused[moduleName(c.Filename)]; no {
		return "refused: " + why
	}
	slot := r.slots
	r.slots++
	if a := r.newInstance(slot, moduleName(c.Filename)); a.kind != "ok" {
		return a.String()
	}
	r.current = slot
	if c.Name != "" {
		r.names[c.Name] = slot
	}
	return ""
}

func (r *run) slot(name string) int {
	if name == "" {
		return r.current
	}
	if n, ok := r.names[name]; ok {
		return n
	}
	return -1
}

func (r *run) perform(a action) answer {
	slot := r.slot(a.Module)
	if slot < 0 {
		return answer{kind: "error", text: "there is no instance"}
	}
	if a.Type == "get" {
		return r.get(slot, a.Field)
	}
	var words []uint64
	for _, v := range a.Args {
		w, err := v.word()
		if err != nil {
			return answer{kind: "error", text: err.Error()}
		}
		words = append(words, w)
	}
	return r.call(slot, a.Field, words)
}

// word is how a value is handed over. References of the host count from one.
func (v value) word() (uint64, error) {
	if v.Value == "null" {
		return 0, nil
	}
	w, err := strconv.ParseUint(v.Value, 10, 64)
	if v.Type == "externref" {
		w++
	}
	return w, err
}

func (r *run) expect(a answer, c command) string {
	if a.kind != "ok" {
		return a.String()
	}
	if c.Type == "action" {
		return ""
	}
	if len(a.words) != len(c.Expected) {
		return fmt.Sprintf("%d results", len(a.words))
	}
	for i, v := range c.Expected {
		if !v.is(a.words[i]) {
			return fmt.Sprintf("%x is not %s %s", a.words[i], v.Type, v.Value)
		}
	}
	return ""
}

func (v value) is(w uint64) bool {
	const quiet32, quiet64 = 0x7fc00000, 0x7ff8000000000000
	switch v.Type + v.Value {
	case "f32nan:canonical":
		return w&^(1<<31) == quiet32
	case "f32nan:arithmetic":
		return w&quiet32 == quiet32
	case "f64nan:canonical":
		return w&^(1<<63) == quiet64
	case "f64nan:arithmetic":
		return w&quiet64 == quiet64
	case "funcref":
		return w != 0
	}
	expected, err := v.word()
	return err == nil && w == expected
}

// traps are the texts of the specification's tests.
var traps = map[string]uint64{
	"out of bounds memory access": outOfBounds, "out of bounds table access": outOfBounds,
	"integer overflow": 2, "integer divide by zero": 3, "invalid conversion to integer": 4, "unreachable": 5,
	"undefined element": callIndirect, "uninitialized element": callIndirect, "indirect call type mismatch": callIndirect,
	"call stack exhausted": exhaustion,
}

func trapped(a answer, why string) string {
	for text, n := range traps {
		if strings.HasPrefix(why, text) && a.trap() == n {
			return ""
		}
	}
	return fmt.Sprintf("%s instead of %s", a, why)
}

// compareFailures holds what failed against a list: lines of "COUNT PATTERN #
// REASON". Each failure is to match just one pattern, each pattern so many.
func compareFailures(t *testing.T, failures []string, list string) {
	t.Helper()
	f, err := os.Open(list)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	known := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		entry, reason, _ := strings.Cut(lines.Text(), " # ")
		if entry = strings.TrimSpace(entry); entry == "" || strings.HasPrefix(entry, "#") {
			continue
		}
		number, text, _ := strings.Cut(entry, " ")
		count, err := strconv.Atoi(number)
		if err != nil || strings.TrimSpace(reason) == "" {
			t.Fatalf("%s: %q is not COUNT PATTERN # REASON", list, lines.Text())
		}
		pattern := regexp.MustCompile("^(?:" + strings.TrimSpace(text) + ")$")
		hits := 0
		for _, failure := range failures {
			if pattern.MatchString(failure) {
				known[failure]++
				hits++
			}
		}
		if hits != count {
			t.Errorf("%s: %d fail of what %v names, not %d", list, hits, pattern, count)
		}
	}
	for _, failure := range failures {
		if known[failure] != 1 {
			t.Errorf("%s (named by %d patterns)", failure, known[failure])
		}
	}
}
