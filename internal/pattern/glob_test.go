package pattern_test

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"paddock/internal/fault"
	"paddock/internal/pattern"
)

func TestAGlobMeansWhatItMeant(t *testing.T) {
	for _, glob := range []string{"*.{js,ts,jsx}", "{src,test}/**/*.{js,ts}", "**/a", "a/**", "*{,a}*/x", "**{,a}/x", "{*,a}*/x", `\{a,b\}`, "[{,}]x", "{a[,]b,c}", "{{a,b}c,d}", "{a,}{,b}", "*"} {
		g, err := pattern.NewGlob(glob)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"", "a", "b", "x", "a/x", "a/b/x", "a.js", "src/a.ts", "src/d/e/a.js", "{a,b}", ",x", "a,b", "ac", "bc", "d", "ab"} {
			m := pattern.NewMeter(t.Context(), "", 1<<30)
			if got, err := g.Match(path, m); err != nil || got != doublestar.MatchUnvalidated(glob, path) {
				t.Errorf("%q and %q: %t, %v", glob, path, got, err)
			}
		}
	}
}

func TestAGlobsAlternativesAreBounded(t *testing.T) {
	for _, glob := range []string{strings.Repeat("{a,b}", 8), strings.Repeat("{a*,*a,", 20) + strings.Repeat("}", 20) + strings.Repeat("{,*}", 8), "[", strings.Repeat("a", 270)} {
		if _, err := pattern.NewGlob(glob); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%.20q gave %v", glob, err)
		}
	}
}

// What took 0.1 s for a name: each star divides the name again for each alternative.
func TestNestedAlternativesCostStepsInProportionToTheName(t *testing.T) {
	g, err := pattern.NewGlob("{*a*,*b*,{*c*,{*d*,*e*}*f*}*g*}*{h*,*i*}*{j*,k}*{*l,*m}z")
	if err != nil {
		t.Fatal(err)
	}
	const most = 128 * 64 * 256 // globs, bytes of each, bytes of the name
	m := pattern.NewMeter(t.Context(), "", most)
	if is, err := g.Match(strings.Repeat("abcdefghijkl", 21), m); is || err != nil {
		t.Error(is, err)
	}
}

func TestAGlobEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g, err := pattern.NewGlob("{*a,*b}{c*,*d}" + strings.Repeat("*x", 100))
	if err != nil {
		t.Fatal(err)
	}
	m := pattern.NewMeter(ctx, "", pattern.MaxSteps)
	defer m.Close()
	for range 100 {
		if _, err = g.Match(strings.Repeat("x", 4000), m); err != nil {
			return
		}
	}
	t.Error("it goes on")
}

func FuzzGlob(f *testing.F) {
	for _, glob := range []string{"*.{js,ts}", "{a,b}/**/[!c]?", `\{x\}`, "**/{*,}*/x", "{a[,]b,c}", "*{,a}**{b,/}x"} {
		f.Add(glob, "a/b/x.js")
	}
	f.Fuzz(func(t *testing.T, glob, path string) {
		if path == "" || len(path) > 100 || len(glob) > 40 || strings.Count(glob, "{") > 3 || strings.Count(glob, ",") > 6 || !utf8.ValidString(glob+"\n"+path) {
			return
		}
		g, err := pattern.NewGlob(glob)
		if valid := doublestar.ValidatePattern(glob); (err == nil) != valid {
			t.Fatalf("%v, and valid is %t", err, valid)
		}
		if err != nil {
			return
		}
		m := pattern.NewMeter(t.Context(), "", 128*256*int64(len(path)+1))
		got, err := g.Match(path, m)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(glob, "*{") {
			return // doublestar has such a star, before what is empty, not stand for nothing at a path's end
		}
		if _, inside, ok := strings.Cut(glob, "{"); ok && strings.Contains(inside, "**") {
			return // 0/** matches 0, and doublestar does not have 0/{**} match it
		}
		if want, err := doublestar.Match(glob, path); err == nil && got != want {
			t.Errorf("%q and %q: %t, doublestar says %t", glob, path, got, want)
		}
	})
}
