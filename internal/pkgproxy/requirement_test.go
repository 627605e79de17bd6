package pkgproxy_test

import (
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
)

func TestRequirements(t *testing.T) {
	for text, want := range map[string]string{
		"attrs": "attrs", " Foo_Bar ": "foo-bar", "a==1.0": "a==1.0", "a >= 1 , < 2": "a>=1,<2", "a (>=1)": "a>=1", "httpx[http2, cli]~=0.27": "httpx[http2,cli]~=0.27",
		"a==1.*": "a==1.*", "a!=1.3": "a!=1.3", `a>=1; python_version < "3.9"`: `a>=1 ; python_version < "3.9"`, "a==1.0+local": "a==1.0+local", "a===1.0": "a===1.0",
	} {
		if r, err := pkgproxy.ParseRequirement(text); err != nil {
			t.Errorf("%q: got error %v, want none: %s", text, err, text)
		} else if r.String() != want {
			t.Errorf("%q: r.String(): got %q, want %q", text, r.String(), want)
		}
	}
	for text, kind := range map[string]fault.Kind{
		"": fault.Invalid, "--index-url=http://x": fault.Denied, "-r x": fault.Denied, "-e .": fault.Denied, "a --index-url http://x": fault.Denied, "a --pre": fault.Invalid,
		"a @ http://x/a.whl": fault.Denied, "a@http://x": fault.Denied, "git+https://x/a": fault.Denied, "file:///etc": fault.Denied, "./a": fault.Denied, "../a": fault.Denied,
		"/etc/a.whl": fault.Denied, `C:\a.whl`: fault.Denied, "a\n--index-url=x": fault.Denied, "a==1; --x": fault.Invalid, "a b": fault.Invalid, "a=1": fault.Invalid, "a==": fault.Invalid,
		strings.Repeat("a", 5000): fault.Invalid, "-": fault.Denied, "a;b;c": fault.Invalid, "a[x": fault.Invalid, "a\x00": fault.Denied, "$HOME": fault.Invalid,
	} {
		r, err := pkgproxy.ParseRequirement(text)
		switch f := fault.Of(err); {
		case f == nil:
			t.Errorf("%q: %q: no fault, want one", text, r)
		case f.Kind != kind:
			t.Errorf("%q: %q: f.Kind = %v, want %v: %v", text, r, f.Kind, kind, f)
		case f.Hint == "":
			t.Errorf("%q: %q: f.Hint is empty, want a text: %v", text, r, f)
		}
	}
}

func TestRequirementsFiles(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	all, err := pkgproxy.ParseRequirements("# all\r\nattrs==1 \\\n  --hash=sha256:" + sum + " --hash=sha256:" + sum + "\n\nhttpx[http2]>=0.27 # why\n")
	switch {
	case err != nil:
		t.Error(err)
	case len(all) != 2:
		t.Errorf("len(all) = %d, want 2: %+v", len(all), all)
	case all[0].String() != "attrs==1":
		t.Errorf(`all[0].String() = %q, want "attrs==1"`, all[0].String())
	case len(all[0].Hashes) != 2:
		t.Errorf("len(all[0].Hashes) = %d, want 2: %+v", len(all[0].Hashes), all[0].Hashes)
	case all[1].String() != "httpx[http2]>=0.27":
		t.Errorf(`all[1].String() = %q, want "httpx[http2]>=0.27"`, all[1].String())
	}
	for _, text := range []string{"--index-url http://x\na", "-i http://x", "-r other.txt", "-c c.txt", "-e .", "--find-links x", "a --global-option=x", "a --hash=md5:00", "a --hash=sha256:zz", "a \\\n --index-url=http://x", "a\n./b", strings.Repeat("a\n", 2000)} {
		if all, err := pkgproxy.ParseRequirements(text); err == nil {
			t.Errorf("%.50q: %+v", text, all)
		}
	}
}

// What a parsed requirement is written as can be read as nothing else by pip.
func FuzzParseRequirement(f *testing.F) {
	for _, text := range []string{"a", "a[b]>=1,<2; python_version<'3'", "a @ http://x", "-e .", "a\n-b", "a ; b --x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := pkgproxy.ParseRequirement(text)
		if err != nil {
			return
		}
		s := r.String()
		switch again, err := pkgproxy.ParseRequirement(s); {
		case err != nil:
			t.Errorf("%q: %v", text, err)
		case again.String() != s:
			t.Errorf("%q: again.String() = %q, want %q", text, again.String(), s)
		case strings.ContainsAny(s, "\n\r\x00@/\\"):
			t.Errorf("%q: s = %q, want none of %q in it", text, s, "\n\r\x00@/\\")
		case strings.HasPrefix(s, "-"):
			t.Errorf(`%q: s = %q, want no prefix "-"`, text, s)
		case strings.Contains(s, " -"):
			t.Errorf(`%q: s = %q, want no " -" in it`, text, s)
		case strings.Contains(s, "://"):
			t.Errorf(`%q: s = %q, want no "://" in it`, text, s)
		}
	})
}

// A package without a file that fits says so, and where it works.
func TestExplanations(t *testing.T) {
	x := newIndex(t)
	native := distribution{Name: "native-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", Data: []byte("x")}
	windows := distribution{Name: "win-1.0-cp313-cp313-win_amd64.whl", Data: []byte("x")}
	ancient := simple(t, "ancient", "1.0")
	ancient.Requires = "<3.8"
	yanked := simple(t, "yanked", "1.0")
	yanked.Yanked = "broken"
	x.Add("native", native).Add("win", windows).Add("source", distribution{Name: "source-1.0.tar.gz", Data: []byte("x")}).Add("ancient", ancient).Add("pure", simple(t, "pure", "1.0")).Add("yanked", yanked)
	x.Add("two", distribution{Name: "two-1.0-py2.py3-none-any.whl", Data: []byte("x")}).Add("new", distribution{Name: "new-1.0-py314-none-any.whl", Data: []byte("x")})
	p, _ := pythonOf(t, x)
	for text, want := range map[string]string{
		"pure": "", "two": "", "yanked==1.0": "",
		"native": `works with isolation "wasm": its wheels have compiled parts|isolation "linux"`, "win": "compiled parts for other machines|no wheel for Linux either",
		"source": `it has no wheel, and what builds one would have to be run|isolation "linux"`, "ancient": "for other versions of Python than 3.13|",
		"nothing": "no index has|", "pure>=2": "has no version >=2|1.0", "yanked": "has no version|none that was not withdrawn", "new": "compiled parts|",
	} {
		r, err := pkgproxy.ParseRequirement(text)
		if err != nil {
			t.Fatal(err)
		}
		f := fault.Of(p.ExplainPython(t.Context(), r))
		message, hint, _ := strings.Cut(want, "|")
		switch {
		case (f == nil) != (want == ""):
			t.Errorf("%s: got error %v, want %q", text, f, want)
		case f == nil:
		case !strings.Contains(f.Message, message):
			t.Errorf("%s: got the message %q, want %q in it", text, f.Message, message)
		case !strings.Contains(f.Hint, hint):
			t.Errorf("%s: got the hint %q, want %q in it", text, f.Hint, hint)
		}
	}
	err := p.Explain(t.Context(), "ERROR: Could not find a version that satisfies the requirement native>=1 (from pure) (from versions: none)\nERROR: No matching distribution found for native>=1\n")
	if fault.KindOf(err) != fault.Unsupported {
		t.Errorf("of what pip printed: %v", err)
	}
	err = p.Explain(t.Context(), "ERROR: Cannot install a\n\nThe conflict is caused by:\n    a 2.0 depends on pure\n    a 2.0 depends on native>=1\n    a 1.0 depends on native>=1\n\nERROR: ResolutionImpossible: for help\n")
	if fault.KindOf(err) != fault.Unsupported {
		t.Fatalf("of what a package needs: got %v, want one of kind %v", err, fault.Unsupported)
	}
	if !strings.Contains(err.Error(), "native") {
		t.Errorf("of what a package needs: got error %v, want %q in it", err, "native")
	}
	if err := p.Explain(t.Context(), "ERROR: ResolutionImpossible: a and b\n"); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("of what pip printed: got %v, want one of kind %v", err, fault.Unavailable)
	} else if !strings.Contains(err.Error(), "ResolutionImpossible") {
		t.Errorf("of what pip printed: got error %v, want %q in it", err, "ResolutionImpossible")
	}
}
