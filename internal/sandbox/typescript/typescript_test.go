package typescript

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"paddock/internal/helper"
	"paddock/internal/sandbox"
)

const megabyte = 1 << 20

func TestMain(m *testing.M) {
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, Job))
	}
	os.Exit(m.Run())
}

func helpers(t testing.TB) *helper.Runner {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := helper.NewRunner(program)
	t.Cleanup(func() { r.Close() })
	return r
}

// repeated is a text that goes on for so many bytes.
func repeated(before, again, after string, size int) string {
	return before + strings.Repeat(again, size/len(again)) + after
}

// doubling is an enum of so many members, each of which is the one before in some way.
func doubling(n int, way string) string {
	text := "enum E {\n  A0 = '0123456789abcdef',\n"
	for k := 1; k <= n; k++ {
		text += fmt.Sprintf("  A%d = %s,\n", k, strings.ReplaceAll(way, "A", fmt.Sprint("A", k-1)))
	}
	return text + "}\n"
}

// hostile are programs that take more stack, memory or time than there is. Each of them
// has ended a process, or would go on for minutes at least.
var hostile = map[string]string{
	"parentheses":             repeated("", "(", "", megabyte),
	"arrays":                  repeated("x=", "[", "", megabyte),
	"blocks":                  repeated("", "{", "", megabyte),
	"calls":                   repeated("", "a(", "", megabyte),
	"signs":                   repeated("", "!", "", megabyte),
	"words":                   repeated("", "typeof ", "", megabyte),
	"templates":               repeated("", "`${", "", megabyte),
	"conditions":              repeated("", "if(a)", "", megabyte),
	"loops":                   repeated("", "while(a)", "", megabyte),
	"assignments":             repeated("", "a=", "", megabyte),
	"types":                   repeated("let x: ", "(", "", megabyte),
	"functions":               repeated("", "a=>", "", megabyte),
	"functions or types":      repeated("x=", "a?(b)=>", "", 4000),
	"functions of conditions": repeated("x=", "a?(b):c=>", "d", 4000),
	"texts that double":       doubling(40, "A + A"),
	"templates that double":   doubling(40, "`${A}${A}`"),
	"names that double":       doubling(40, "E['A'] + E[`A`]"),
	"what names a long text":  "enum E { A = '" + strings.Repeat("x", 100_000) + "' }\n" + repeated("", "x(E.A)\n", "", 10_000),
}

// Whatever a program is, it costs its own call an error, and not the owner's next one, nor
// this process.
func TestAHostileProgramCostsOneCall(t *testing.T) {
	r := helpers(t)
	job := Job
	job.Time = time.Second // of 10: what does not end, ends
	for name, code := range hostile {
		t.Run(name, func(t *testing.T) {
			got, err := translate(t.Context(), r, job, "ann", sandbox.Source{Code: code, Name: "x.ts"})
			if err != nil {
				t.Fatalf("got the error %v, want a translation that has one", err)
			}
			if got.Error == nil {
				t.Fatalf("got a translation of %d bytes, want an error", len(got.Code))
			}
			if got.Error.Type != "SyntaxError" {
				t.Errorf("got an error of type %s, want SyntaxError", got.Error.Type)
			}
			if got.Code != "" {
				t.Errorf("got %d bytes of code beside the error", len(got.Code))
			}
			next, err := translate(t.Context(), r, Job, "ann", sandbox.Source{Code: "let a: number = 1", Name: "x.ts"})
			if err != nil {
				t.Fatalf("the next call: %v", err)
			}
			if want := "let a = 1;\n"; next.Code != want {
				t.Errorf("the next call got %q, want %q", next.Code, want)
			}
		})
	}
}

// What no helper could end with says what to change.
func TestAProgramThatEndsTheHelperIsToldWhy(t *testing.T) {
	got, err := NewTranslator(helpers(t))(t.Context(), "ann", sandbox.Source{Code: repeated("", "!", "", megabyte), Name: "x.ts"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Error == nil || !strings.Contains(got.Error.Message, "nested too deeply") {
		t.Errorf("got %+v, want an error that says that it is nested too deeply", got.Error)
	}
}

func TestAProgramThatTakesTooLongIsToldThat(t *testing.T) {
	r, job := helpers(t), Job
	job.Time = 300 * time.Millisecond
	for name, code := range map[string]string{
		"names that are declared again": repeated("", "let a\n", "", megabyte),
		"functions of conditions":       hostile["functions of conditions"],
	} {
		got, err := translate(t.Context(), r, job, "ann", sandbox.Source{Code: code, Name: "x.ts"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Error == nil {
			t.Fatalf("%s: got a translation, want an error", name)
		}
		if want := "took longer than 300ms; split the program"; !strings.Contains(got.Error.Message, want) {
			t.Errorf("%s: got %q, want it to say %q", name, got.Error.Message, want)
		}
	}
}

// A mistake's line, and a name in its message, may be as long as the program.
func TestAMistakeInALongLineIsToldInAFewBytes(t *testing.T) {
	long := strings.Repeat("x", megabyte)
	for name, c := range map[string]struct{ code, traceback string }{
		"what comes before": {
			"let s = '" + long + "'; let b: = 2",
			"  …" + strings.Repeat("x", 90) + "'; let b: = 2\n" + strings.Repeat(" ", 103) + "^\nSyntaxError: Unexpected \"=\" (line 1)\n",
		},
		"what comes after": {
			"let b: = '" + long + "'",
			"  let b: = '" + strings.Repeat("x", 197) + "…\n         ^\nSyntaxError: Unexpected \"=\" (line 1)\n",
		},
		"a tab and what does not show": {
			"\tlet ä\u200b: = 2",
			"",
		},
		"a name": {"let " + long + "; let " + long, ""},
	} {
		_, _, failed := Strip(c.code, "x.ts")
		if failed == nil {
			t.Fatalf("%s: got no error", name)
		}
		if got := failed.Traceback; c.traceback != "" && got != c.traceback {
			t.Errorf("%s: got the traceback %q, want %q", name, got, c.traceback)
		}
		if most := 2000; len(failed.Traceback) > most {
			t.Errorf("%s: got a traceback of %d bytes, want at most %d", name, len(failed.Traceback), most)
		}
		if most := 1100; len(failed.Message) > most {
			t.Errorf("%s: got a message of %d bytes, want at most %d", name, len(failed.Message), most)
		}
		if strings.ContainsAny(failed.Traceback, "\t\u200b") {
			t.Errorf("%s: the traceback %q holds what does not show", name, failed.Traceback)
		}
	}
}

// TestProgramsThatPeopleWriteAreRead are large, and within the bounds.
func TestProgramsThatPeopleWriteAreRead(t *testing.T) {
	r, job := helpers(t), Job
	job.Time = time.Minute // a busy machine takes several seconds for the largest
	for name, code := range map[string]string{
		"statements":   repeated("", "a = b(1, 'c', [2], { d: 3 });\n", "", megabyte),
		"rows":         repeated("export const a: Row[] = [\n", "  { id: 1, name: \"it's (a) `b` / c\", list: [1, 2, 3], ok: !x, f: () => a ? b : c },\n", "];", megabyte),
		"an interface": repeated("interface A {\n", "  onClick?: () => void\n  a?: Map<string, number>\n", "}", megabyte),
		"a class":      repeated("class A {\n", "  private a?: string\n  @b() c = () => { return this.a ? 1 : 2 }\n", "}", megabyte),
		"a union":      repeated("type A =\n", "  | 'a' | 'b' | { c: d }\n", "", 8000),
		"a sum":        repeated("const a = ''\n", "  + 'b' + c\n", "", 20000),
		"flags":        "enum F { A = 1 << 0, B = 1 << 1, C = A | B }\n" + repeated("", "if (a & F.All) b[F.C]()\n", "", 100_000),
		"8 MiB":        repeated("", "{ const a: Map<string, Array<number>> = new Map<string, Array<number>>(), b = <number>c }\n", "", sandbox.MaxSource-100),
		"nothing":      "",
	} {
		got, err := translate(t.Context(), r, job, "ann", sandbox.Source{Code: code, Name: "x.ts"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got.Error != nil {
			t.Errorf("%s: got the error %q", name, got.Error.Message)
		}
	}
}

func TestAnOrdinaryMistakeIsToldWithItsPlace(t *testing.T) {
	for _, c := range []struct {
		code, message, hint string
		line                int
	}{
		{"const a: number = 1;\nconst b: = 2;", "Unexpected \"=\"", "", 2},
		{"import fs from 'fs';\nreturn 1", "Top-level return cannot be used inside an ECMAScript module", "without return", 2},
	} {
		got, err := translate(t.Context(), helpers(t), Job, "ann", sandbox.Source{Code: c.code, Name: "x.ts"})
		if err != nil {
			t.Fatal(err)
		}
		if got.Error == nil {
			t.Fatalf("%q: got no error", c.code)
		}
		if got.Error.Message != c.message {
			t.Errorf("%q: got %q, want %q", c.code, got.Error.Message, c.message)
		}
		if got.Error.Line != c.line {
			t.Errorf("%q: got line %d, want %d", c.code, got.Error.Line, c.line)
		}
		if !strings.Contains(got.Error.Hint, c.hint) || (c.hint == "") != (got.Error.Hint == "") {
			t.Errorf("%q: got the hint %q, want %q", c.code, got.Error.Hint, c.hint)
		}
		if want := fmt.Sprintf("(line %d)\n", c.line); !strings.HasSuffix(got.Error.Traceback, want) {
			t.Errorf("%q: got the traceback %q, want it to end with %q", c.code, got.Error.Traceback, want)
		}
	}
}

func TestAMapLeadsBack(t *testing.T) {
	got, err := translate(t.Context(), helpers(t), Job, "ann", sandbox.Source{Code: "interface A {}\nlet a: A", Name: "x.ts"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.Map, `"x.ts"`) {
		t.Errorf("got the map %q, want one that names x.ts", got.Map)
	}
}

func TestACancelledTranslationIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := NewTranslator(helpers(t))(ctx, "ann", sandbox.Source{Code: "1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v and the error %v, want %v", got, err, context.Canceled)
	}
}

func BenchmarkTranslate(b *testing.B) {
	s := sandbox.Source{Code: "interface P { x: number }\nconst p: P = { x: 1 };\nconsole.log(p.x as number)\n", Name: "<cell>"}
	for name, r := range map[string]*helper.Runner{"in this process": nil, "in a helper": helpers(b)} {
		b.Run(name, func(b *testing.B) {
			translate := NewTranslator(r)
			for b.Loop() {
				if t, err := translate(b.Context(), "ann", s); err != nil || t.Error != nil {
					b.Fatal(err, t.Error)
				}
			}
		})
	}
}
