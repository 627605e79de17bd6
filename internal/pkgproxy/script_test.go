package pkgproxy

import (
	"slices"
	"testing"

	"paddock/internal/fault"
)

func TestAProgramSaysWhatItNeeds(t *testing.T) {
	for _, test := range []struct {
		name, code string
		requires   []string
		python     string
		kind       fault.Kind
	}{
		{name: "nothing", code: "print(1)\n"},
		{name: "the example of PEP 723", code: "# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"requests<3\",\n#   \"rich\",\n# ]\n# ///\n\nimport requests\n", requires: []string{"requests<3", "rich"}, python: ">=3.11"},
		{name: "behind a shebang, with lines of Windows", code: "#!/usr/bin/env python\r\n# /// script\r\n# dependencies = ['attrs']\r\n#\r\n# ///\r\nprint(1)", requires: []string{"attrs"}},
		{name: "at the end of the file", code: "# /// script\n# dependencies = ['attrs']\n# ///", requires: []string{"attrs"}},
		{name: "another kind of block", code: "# /// other\n# dependencies = ['attrs']\n# ///\n"},
		{name: "a block that does not end", code: "# /// script\n# dependencies = ['attrs']\nprint(1)\n"},
		{name: "two blocks", code: "# /// script\n# dependencies = []\n# ///\n\n# /// script\n# dependencies = []\n# ///\n", kind: fault.Invalid},
		{name: "what is not TOML", code: "# /// script\n# dependencies = [\n# ///\n", kind: fault.Invalid},
		{name: "what is not a requirement", code: "# /// script\n# dependencies = ['--index-url=x']\n# ///\n", kind: fault.Denied},
		{name: "what is not a version", code: "# /// script\n# requires-python = 'new'\n# ///\n", kind: fault.Invalid},
	} {
		s, err := ReadScript(test.code)
		if fault.KindOf(err) != test.kind || !slices.Equal(s.Requires, test.requires) || s.Python != test.python {
			t.Errorf("%s: %+v (%v)", test.name, s, err)
		}
	}
	needs := Script{Python: ">=3.11,<3.14"}
	for version, want := range map[string]bool{"3.13.5": true, "3.10.1": false, "3.14.0": false, "": true} {
		if err := needs.Runs(version); (err == nil) != want {
			t.Errorf("with %q: %v", version, err)
		}
	}
}
