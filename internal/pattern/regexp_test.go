package pattern_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/pattern"
)

// ordinary are expressions as people and models write them.
var ordinary = []string{
	`TODO|FIXME|XXX`, `^\s*(?:async\s+)?def\s+(\w+)\s*\(`, `func (\(\w+ \*?\w+\) )?\w+\(`, `\b(?:[\w.+-]+@[\w-]+\.)+[a-z]{2,}\b`,
	`https?://[^\s"'<>]+`, `(?i)\bselect\b.*\bfrom\b`, `^(?:\d{1,3}\.){3}\d{1,3}$`, `\p{L}{1,50}`, `x{1000}`, `^[A-Za-z0-9_-]{1,64}$`,
	`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, `^\S{1,1000}$`, `(?i)^[а-яё ]{1,100}$`, `^[\x{4e00}-\x{9fff}]+$`,
	`^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.|$)){4}`, `^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`,
	`^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)$`,
	`^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$`, `^arn:aws:[a-z0-9-]{1,50}:[a-z0-9-]{0,50}:\d{12}:.{1,1000}$`,
}

func TestOrdinaryExpressionsAreTaken(t *testing.T) {
	for _, source := range ordinary {
		if _, err := pattern.Compile(source); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
}

func TestWhatIsTooLargeIsRefusedBeforeItIsCompiled(t *testing.T) {
	for name, source := range map[string]string{
		"a counted repetition of a long part":  `(?:` + strings.Repeat(`a?b|`, 100) + `c){1000}`,
		"repetitions in each other":            `(?:(?:.?.?.?.?.?.?.?.?.?.?.?.?){10}){100}`,
		"ranges that are folded one by one":    `(?i)` + strings.Repeat("[A-\U0001e900]", 100),
		"the same written with escapes":        `(?i)` + strings.Repeat(`[\x{41}-\x{1e900}]`, 80),
		"classes of Unicode":                   strings.Repeat(`[\pL\PN]|`, 180),
		"more bytes than there may be":         strings.Repeat("a", pattern.MaxSource+1),
		"what the syntax does not have at all": `(?=x)`,
	} {
		if _, err := pattern.Compile(source); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheExpressionsOfADocumentAreBoundedTogether(t *testing.T) {
	c := pattern.NewCompiler(10_000)
	refused := 0
	for k := range 100 {
		if _, err := c.Compile(fmt.Sprintf("x{900}%d", k)); err != nil {
			refused++
		}
		if _, err := c.Compile("x{900}0"); err != nil {
			t.Fatal("what was compiled is counted again")
		}
	}
	if refused != 90 || c.Weight() > 10_000 {
		t.Errorf("%d refused, weight %d", refused, c.Weight())
	}
}

// An expression of 800 bytes took hours for a MiB.
func TestACostlyMatchEnds(t *testing.T) {
	re, err := pattern.Compile(`(?:a?){900}(?:a?){900}b`)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(strings.Repeat("a", 1<<20))
	t.Run("with its steps", func(t *testing.T) {
		m := pattern.NewMeter(t.Context(), "", 1<<24)
		defer m.Close()
		if _, err := re.Match(text, m); fault.KindOf(err) != fault.Exhausted {
			t.Error(err)
		}
		if err := m.Spend(1); fault.KindOf(err) != fault.Exhausted {
			t.Error("it goes on", err)
		}
	})
	t.Run("with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		m := pattern.NewMeter(ctx, "", 1<<22) // it is noticed before these are used up
		defer m.Close()
		if _, err := re.Match(text, m); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestALongTextIsMatchedWhole(t *testing.T) {
	re, err := pattern.Compile(`\bneedle\b`)
	if err != nil {
		t.Fatal(err)
	}
	m := pattern.NewMeter(t.Context(), "", pattern.MaxSteps)
	defer m.Close()
	text := strings.Repeat("é ", 1<<18)
	if at, err := re.Match([]byte(text+"needle"), m); at != len(text) || err != nil {
		t.Error(at, err)
	}
	if at, err := re.Match([]byte(text), m); at != -1 || err != nil {
		t.Error(at, err)
	}
}

func FuzzRegexp(f *testing.F) {
	for _, source := range ordinary {
		f.Add(source, "some text 1.2.3.4 x@y.de")
	}
	for _, source := range []string{`(?:(?:a?){9}){9}`, `(?i)[k-ſ]`, `x{0}`, `(a|b|){2,}`, `(?:a*)*`, `(?:)`, `()*?`, `(?s).{2,5}?$`} {
		f.Add(source, "aaa")
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		re, err := pattern.Compile(source)
		if err != nil {
			return
		}
		parsed, err := syntax.Parse(source, syntax.Perl)
		if err != nil {
			t.Fatal("what is malformed was compiled")
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if size := re.Steps(1) - re.Steps(0); int64(len(program.Inst)) > size || size > pattern.MaxInstructions {
			t.Fatalf("%d instructions were taken for %d", len(program.Inst), size)
		}
		if len(text) > 1000 || !utf8.ValidString(text) {
			return
		}
		m := pattern.NewMeter(t.Context(), "", re.Steps(len(text)))
		defer m.Close()
		got, err := re.Match([]byte(text), m)
		want := -1
		if loc := regexp.MustCompile(source).FindStringIndex(text); loc != nil {
			want = loc[0]
		}
		if err != nil || got != want {
			t.Fatalf("%q in %q: %d, %v, want %d", source, text, got, err, want)
		}
	})
}
