package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"paddock/internal/sandbox"
)

func TestLinesThatBelongTogetherAreReadTogether(t *testing.T) {
	for language, texts := range map[string]map[string]bool{
		"python": {
			"x = 1": true, "": true, ":undo": true, "f(1,": false, "f(1,\n2)": true, "x = [": false, `"""a`: false, `"""a` + "\n" + `b"""`: true,
			"'a": true, "x = 1 + \\": false, "x = 1 + \\\n2": true, "if x:": false, "if x:\n  y": false, "if x:\n  y\n": true, "if x: y": false,
			"for i in a:\n  print(i)\n  ": true, "@f": false, "x = '('": true, "# (": true, "x = 1 # if": true, "def f():\n  '''\n  doc": false,
			"iffy = 1": true, "x = {\n'if': 1}": true, "async def f():\n  pass\n": true, `x = "\""`: true, `f"""{x}"""`: true, "with": false,
		},
		"javascript": {
			"1 + 1": true, "function f() {": false, "function f() {\n}": true, "`a": false, "`a\n${b}`": true, "[1,": false, "x = /[(]/": true,
			"/* a": false, "if (x) {\n  y()": false, "const a =": false, "'(": true, ")": true, "await x()": true,
		},
		"typescript": {"let x: number = 1": true, "interface A {": false, "interface A { b: string }": true},
	} {
		for text, want := range texts {
			if got := complete(language, text); got != want {
				t.Errorf("in %s %q is complete: %v", language, text, got)
			}
		}
	}
}

func TestNamesForCompletionAreOnlyWhatFollowsTheWord(t *testing.T) {
	for line, want := range map[string]string{"print(os.pa": "os.pa", "a = b": "b", "x.": "x.", "1 + ": "", "f(a.b.c": "a.b.c", "'x'.": ""} {
		if got := lastWord(line); got != want {
			t.Errorf("of %q it is %q", line, got)
		}
	}
	got := namesIn(`["os.path", "os.pathsep ", "sys.path", "os.pa\u001b[2J", "os.pardir("]`+"\n", "os.pa")
	if strings.Join(got, " ") != "os.path os.pathsep os.pardir(" {
		t.Errorf("they are %q", got)
	}
	if got := namesIn("no list", "a"); got != nil {
		t.Errorf("of no list it is %q", got)
	}
}

func TestPicturesAreShownAsTheTerminalTakesThem(t *testing.T) {
	picture := sandbox.Display{MIME: "image/png", Data: bytes.Repeat([]byte{1}, 5000)}
	for name, c := range map[string]struct {
		env  map[string]string
		sees string
	}{
		"kitty": {map[string]string{"TERM": "xterm-kitty"}, "\x1b_Ga=T,f=100,m=1;"},
		"iTerm": {map[string]string{"TERM_PROGRAM": "iTerm.app"}, "\x1b]1337;File=inline=1;size=5000:"},
		"none":  {nil, "displayed image/png: "},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"TERM", "TERM_PROGRAM", "KITTY_WINDOW_ID"} {
				t.Setenv(variable, c.env[variable])
			}
			t.Setenv("TMPDIR", t.TempDir())
			var out bytes.Buffer
			if err := new(pictures).show(&out, picture); err != nil || !strings.HasPrefix(out.String(), c.sees) {
				t.Errorf("it is %.60q, %v", out.String(), err)
			}
			if c.env == nil {
				data, err := os.ReadFile(strings.TrimSpace(strings.TrimPrefix(out.String(), c.sees)))
				if err != nil || !bytes.Equal(data, picture.Data) {
					t.Errorf("the file has %d bytes, %v", len(data), err)
				}
			}
		})
	}
	var out bytes.Buffer
	if err := new(pictures).show(&out, sandbox.Display{MIME: "text/plain", Data: []byte("a\x1b[2Jb")}); err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("a text is shown as %q, %v", out.String(), err)
	}
}
