package pkgproxy

import (
	"regexp"
	"strings"

	"deps.dev/util/semver"
	"github.com/BurntSushi/toml"

	"paddock/internal/fault"
)

// Script is what a Python program says of itself in its inline metadata (PEP 723).
type Script struct {
	// Requires are its dependencies, as requirements.
	Requires []string
	// Python are the versions of Python that it runs with, as a specifier; empty: any.
	Python string
}

// scriptBlock is a block of metadata, as PEP 723 defines it.
var scriptBlock = regexp.MustCompile(`(?m)^# /// script$\n((?:^#(?:| .*)$\n)+)^# ///$`)

// ReadScript reads a program's inline metadata; without any the Script is empty.
func ReadScript(code string) (s Script, err error) {
	blocks := scriptBlock.FindAllStringSubmatch(strings.ReplaceAll(code, "\r\n", "\n")+"\n", -1)
	switch len(blocks) {
	case 0:
		return s, nil
	case 1:
	default:
		return s, fault.New(fault.Invalid, "the program has %d blocks of script metadata", len(blocks)).WithHint("it may have one (PEP 723)")
	}
	var text strings.Builder
	for line := range strings.Lines(blocks[0][1]) {
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
	}
	var is struct {
		Dependencies []string `toml:"dependencies"`
		Python       string   `toml:"requires-python"`
	}
	if _, err := toml.Decode(text.String(), &is); err != nil {
		return s, fault.New(fault.Invalid, "the program's script metadata cannot be read").
			WithHint("between # /// script and # /// stands TOML, with dependencies and requires-python (PEP 723)").WithCause(err)
	}
	s = Script{Requires: is.Dependencies, Python: is.Python}
	if _, err := ParseRequirements(strings.Join(s.Requires, "\n")); len(s.Requires) > 0 && err != nil {
		return Script{}, err
	}
	if s.Python != "" {
		if _, err := semver.PyPI.ParseConstraint(s.Python); err != nil {
			return Script{}, fault.New(fault.Invalid, "requires-python = %.100q cannot be read", s.Python).
				WithHint("write it as >=3.11 or >=3.11,<4").WithCause(err)
		}
	}
	return s, nil
}

// Runs says by a fault.Unsupported that the program does not run with a version of Python.
func (s Script) Runs(version string) error {
	if s.Python == "" || version == "" {
		return nil
	}
	c, err := semver.PyPI.ParseConstraint(s.Python)
	if err != nil {
		return err
	}
	if !c.Match(version) {
		return fault.New(fault.Unsupported, "the program needs Python %s (requires-python), and this one is %s", s.Python, version).
			WithHint("--isolation linux --image NAME runs it in an image that has another")
	}
	return nil
}
