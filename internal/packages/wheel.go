package packages

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deps.dev/util/pypi"
	"deps.dev/util/semver"

	"paddock/internal/fault"
)

// The isolations, as sandbox.Backend calls them.
const (
	isolationWasm  = "wasm"
	isolationLinux = "linux"
)

// guestMinor is the guest's Python: 3.13.
const guestMinor = 13

// pure tells whether a wheel works wherever the guest's Python does: it has no
// compiled part.
func pure(tags []pypi.PEP425Tag) bool {
	return slices.ContainsFunc(tags, func(t pypi.PEP425Tag) bool {
		if t.ABI != "none" || t.Platform != "any" {
			return false
		}
		for _, prefix := range []string{"py", "cp"} {
			version, ok := strings.CutPrefix(t.Python, prefix)
			if !ok {
				continue
			}
			if version == "3" && prefix == "py" {
				return true
			}
			minor, ok := strings.CutPrefix(version, "3")
			if n, err := strconv.Atoi(minor); ok && err == nil && n <= guestMinor && (prefix == "py" || n == guestMinor) {
				return true
			}
		}
		return false
	})
}

// fits tells whether a file installs in the wasm guest.
func (f projectFile) fits() bool {
	if !f.wheel() {
		return false
	}
	w, err := pypi.ParseWheelName(f.name)
	return err == nil && pure(w.Platforms) && f.takesGuest()
}

// takesGuest tells whether it is for the guest's version of Python.
func (f projectFile) takesGuest() bool {
	if f.requiresPython == "" {
		return true
	}
	c, err := semver.PyPI.ParseConstraint(strings.ReplaceAll(f.requiresPython, " ", ""))
	return err != nil || c.Match(fmt.Sprintf("3.%d.0", guestMinor)) || c.Match(fmt.Sprintf("3.%d.99", guestMinor))
}

// matches are the files of the versions that a requirement takes. As with pip, what was
// yanked counts only where exactly that version is asked for, and what is preliminary
// where nothing else is there.
func (p *project) matches(r Requirement) (out []projectFile) {
	var constraint *semver.Constraint
	if r.Versions != "" {
		constraint, _ = semver.PyPI.ParseConstraint(r.Versions)
	}
	exact := strings.HasPrefix(r.Versions, "==") && !strings.ContainsAny(r.Versions, "*,")
	for _, f := range p.files {
		if constraint != nil && !constraint.Match(f.version) || f.yanked != nil && !exact {
			continue
		}
		out = append(out, f)
	}
	return out
}

// ExplainPython says why a requirement cannot be met in the wasm guest, and where it
// can; nil: it can, as far as this package alone goes.
func (p *Packages) ExplainPython(ctx context.Context, r Requirement) error {
	found, _, err := p.pythonProject(ctx, r.Name)
	if err != nil {
		return err
	}
	all := found.matches(r)
	switch {
	case len(found.files) == 0:
		return fault.New(fault.NotFound, "the package %q has no file that may be shown", r.Name).
			WithHint("what it has is younger than packages.%s.cooldown_days, or without a digest", kindPython)
	case len(all) == 0:
		return fault.New(fault.NotFound, "%s has no version %s", r.Name, r.Versions).WithHint("it has %s", lastOf(found.files))
	case slices.ContainsFunc(all, projectFile.fits):
		return nil
	}
	return errNoWheel(r, all)
}

// lastOf names the newest versions.
func lastOf(files []projectFile) string {
	var versions []string
	for _, f := range files {
		if f.yanked == nil && !slices.Contains(versions, f.version) {
			versions = append(versions, f.version)
		}
	}
	if len(versions) == 0 {
		return "none that was not withdrawn"
	}
	text := strings.Join(versions[max(0, len(versions)-5):], ", ")
	if len(versions) > 5 {
		return "… " + text
	}
	return text
}

// errNoWheel is for a package of which nothing fits into the wasm guest.
func errNoWheel(r Requirement, all []projectFile) error {
	wheels, sources, linux, old := 0, 0, 0, 0
	for _, f := range all {
		switch {
		case !f.wheel():
			sources++
		case !f.takesGuest():
			old++
		default:
			wheels++
			if strings.Contains(f.name, "linux") {
				linux++
			}
		}
	}
	why := fmt.Sprintf("its wheels are for other versions of Python than 3.%d", guestMinor)
	switch {
	case wheels > 0:
		why = "its wheels have compiled parts for other machines"
	case old == 0:
		why = "it has no wheel, and what builds one would have to be run"
	}
	hint := fmt.Sprintf("it installs in a session with isolation %q", isolationLinux)
	if linux == 0 && sources == 0 && old == 0 {
		hint = "it has no wheel for Linux either; look for another package"
	}
	return fault.New(fault.Unsupported, "%s has no wheel that works with isolation %q: %s", r, isolationWasm, why).WithHint("%s", hint)
}

// pipMissing finds the requirement that pip has nothing for.
var pipMissing = regexp.MustCompile(`(?m)(?:No matching distribution found for|Could not find a version that satisfies the requirement) (.+?)(?: \(from .*)?$`)

// Explain makes a fault of what pip printed when it ended with an error: of a package
// without a fitting file it says in which isolation that works.
func (p *Packages) Explain(ctx context.Context, printed string) error {
	for _, m := range pipMissing.FindAllStringSubmatch(printed, -1) {
		r, err := ParseRequirement(m[1])
		if err != nil {
			continue
		}
		if err := p.ExplainPython(ctx, r); err != nil {
			return err
		}
	}
	last := "pip ended with an error"
	for line := range strings.Lines(printed) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "ERROR: "); ok {
			last = text
		}
	}
	return fault.New(fault.Unavailable, "pip could not install it: %.500s", last).WithHint("loosen the versions, or see what else pip said")
}
