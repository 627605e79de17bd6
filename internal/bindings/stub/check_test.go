package stub

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/evanw/esbuild/pkg/api"

	"paddock/internal/bindings"
	"paddock/internal/sandbox/sandboxtest"
)

// checkFiles holds against the files of a tree all that can be held without an
// interpreter: they have nothing in them that does not show, no names differ in case
// alone, and code is only what stub writes.
func checkFiles(tools []bindings.Tool, tree Tree) error {
	folded := map[string]bool{}
	for _, f := range tree.Files {
		key := strings.ToLower(f.Path)
		if folded[key] || strings.ContainsAny(f.Path, `/\:`) || strings.HasPrefix(f.Path, ".") || len(f.Path) > 80 {
			return fmt.Errorf("a file is called %q", f.Path)
		}
		folded[key] = true
		if strings.HasPrefix(f.Path, "schemas.") {
			if !json.Valid(f.Data) {
				return fmt.Errorf("schemas.json is none: %.300s", f.Data)
			}
			continue
		}
		for _, r := range string(f.Data) {
			if r != '\n' && (!unicode.IsPrint(r) || r == unicode.ReplacementChar) {
				return fmt.Errorf("%s has %U", f.Path, r)
			}
		}
		var err error
		switch filepath.Ext(f.Path) {
		case ".py", ".pyi":
			err = checkPython(string(f.Data))
		case ".js":
			err = checkScript(string(f.Data), api.LoaderJS)
		case ".ts":
			err = checkScript(string(f.Data), api.LoaderTS)
		}
		if err != nil {
			return fmt.Errorf("%s: %w\n%.2000s", f.Path, err, f.Data)
		}
	}
	return nil
}

const scriptString = `("([^"\\]|\\.)*"|'([^'\\]|\\.)*'|` + "`([^`\\\\$]|\\\\.|[$]+([^{$`\\\\]|\\\\.))*[$]*`" + `)`

// scriptCode is what is left of a module of JavaScript when esbuild has read it.
var scriptCode = regexp.MustCompile(`^(import\{tool\}from"servers";)?((export )?const [A-Za-z]\w*=tool\(` + scriptString + `,` + scriptString + `\);|export\{[\w ,]*\}(from"\./\w+")?;)*` +
	`(export default\{(\w+(:\w+)?,?)*\};|export\*as default from"\./index";)?$`)

func checkScript(code string, loader api.Loader) error {
	out := api.Transform(code, api.TransformOptions{Loader: loader, MinifyWhitespace: true, LegalComments: api.LegalCommentsNone, Charset: api.CharsetASCII})
	if len(out.Errors)+len(out.Warnings) > 0 {
		return fmt.Errorf("esbuild says %v %v", out.Errors, out.Warnings)
	}
	if text := strings.ReplaceAll(string(out.Code), "\n", ""); !scriptCode.MatchString(text) {
		return fmt.Errorf("it does more: %s", text)
	}
	return nil
}

// pythonLine is a line of a module when its texts are T and its comments are gone.
var pythonLine = regexp.MustCompile(`^(` + strings.Join([]string{
	`T?`, `    T`, `(    )?from [\w.]+ import \w+( as \w+)?(, \w+)*`, `try:`, `except ImportError:`, `if TYPE_CHECKING:`,
	`class [A-Z]\w*\(TypedDict(, total=False)?\):`, `    pass`, `    [A-Za-z]\w*: ` + pythonType,
	`[A-Z]\w*: TypeAlias = T`, `[A-Z]\w* = TypedDict\(T, \{`, `    T: T,`, `\}(, total=False)?\)`,
	`@tool\(T, T, \{(T: T(, T: T)*)?\}\)`,
	`def [A-Za-z]\w*\((\*{0,2}\w+: ` + pythonType + `( = \.\.\.)?(, )?)*\) -> ` + pythonType + `:`,
	`__all__ = T\.split\(\)`, `__getattr__, __dir__ = lazy\(__name__, \{name: name for name in __all__\}\)`,
}, "|") + `)$`)

const pythonType = `[\w\[\], |T-]+`

// checkPython reads a module as Python's tokenizer would, strictly.
func checkPython(code string) error {
	var line strings.Builder
	end := func() error {
		text := strings.TrimRight(line.String(), " ")
		line.Reset()
		if !pythonLine.MatchString(text) {
			return fmt.Errorf("a line is %q", text)
		}
		return nil
	}
	for i := 0; i < len(code); i++ {
		switch {
		case code[i] == '#':
			for i < len(code) && code[i] != '\n' {
				i++
			}
			i--
		case code[i] == '"':
			n, err := pythonString(code[i:])
			if err != nil {
				return err
			}
			line.WriteByte('T')
			i += n - 1
		case code[i] == '\n':
			if err := end(); err != nil {
				return err
			}
		default:
			line.WriteByte(code[i])
		}
	}
	return end()
}

// pythonString gives the length of the string literal that s begins with.
func pythonString(s string) (int, error) {
	quote := `"`
	if strings.HasPrefix(s, `"""`) {
		quote = `"""`
	}
	for i := len(quote); i < len(s); i++ {
		switch {
		case s[i] == '\\':
			if i++; i == len(s) || !strings.ContainsRune(`\"nxuU`, rune(s[i])) {
				return 0, fmt.Errorf("an escape is %.10q", s[i-1:])
			}
		case s[i] == '\n' && quote == `"`:
			return 0, fmt.Errorf("a text has no end: %.60q", s)
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote), nil
		}
	}
	return 0, fmt.Errorf("a text has no end: %.60q", s)
}

// interpreter is a Python that executes trees; see testdata/check.py.
type interpreter struct {
	mu  sync.Mutex // guards the talk
	in  io.WriteCloser
	out *bufio.Reader
}

// said is what a module of a tool told of itself.
type said struct {
	Module, Server, Tool string
	Names                map[string]string
	Parameters           []string
}

func startPython(t testing.TB, program string) *interpreter {
	t.Helper()
	script, err := filepath.Abs("testdata/check.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-I", "-B", script)
	cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8")
	cmd.Stderr = os.Stderr
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
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", program, err)
		}
	})
	return &interpreter{in: in, out: bufio.NewReader(out)}
}

// execute has Python check the modules of a tree and import them.
func (p *interpreter) execute(tree Tree) ([]said, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	files := map[string]string{}
	for _, f := range tree.Files {
		if strings.HasPrefix(filepath.Ext(f.Path), ".py") {
			files[f.Path] = string(f.Data)
		}
	}
	text, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return nil, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error string
		Told  []said
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("python: %s", answer.Error)
	}
	return answer.Told, nil
}

// checkTold holds what Python was told against the tools: each is there once, by
// its own name, and each of its parameters as well.
func checkTold(server string, tree Tree, told []said) error {
	byModule := map[string]said{}
	for _, s := range told {
		if s.Server != server {
			return fmt.Errorf("a tool is of the server %q", s.Server)
		}
		byModule[s.Module] = s
	}
	if len(told) != len(tree.Tools) || len(byModule) != len(told) {
		return fmt.Errorf("%d tools told of themselves, of %d", len(told), len(tree.Tools))
	}
	for _, n := range tree.Tools {
		s, ok := byModule[n.Python]
		if !ok || s.Tool != string([]rune(n.Tool.Name)) {
			return fmt.Errorf("%s is the tool %q, not %q", n.Python, s.Tool, n.Tool.Name)
		}
		fields := []string{}
		for name := range s.Names {
			if !slices.Contains(s.Parameters, name) {
				return fmt.Errorf("%s has no parameter %s", n.Python, name)
			}
			fields = append(fields, s.Names[name])
		}
		want := []string{}
		for _, p := range newFunction(n, whole).parameters {
			want = append(want, p.field.name)
		}
		slices.Sort(fields)
		slices.Sort(want)
		if len(fields) > 0 && !slices.Equal(fields, want) {
			return fmt.Errorf("%s takes %q, not %q", n.Python, fields, want)
		}
	}
	return nil
}

// python gives the Python of this machine, or skips the test.
func python3(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("python3")
	sandboxtest.Require(t, "python", err == nil, "there is no python3 on the path")
	return program
}
