package pkgproxy

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
	w, err := parseWheelName(f.name)
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

// ExplainPython says why a requirement cannot be met in the wasm guest, and where it
// can; nil: it can, as far as this package alone goes.
func (p *Packages) ExplainPython(ctx context.Context, r Requirement) error {
	found, err := p.pythonProject(ctx, r.Name)
	if err != nil {
		return err
	}
	defer found.close()
	var c census
	if r.Versions != "" {
		c.constraint, _ = semver.PyPI.ParseConstraint(r.Versions)
	}
	// As with pip, what was yanked counts only where exactly that version is asked for.
	exact := strings.HasPrefix(r.Versions, "==") && !strings.ContainsAny(r.Versions, "*,")
	for f, err := range found.files() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if c.count(f, exact) {
			return nil
		}
	}
	switch {
	case c.files == 0:
		return fault.New(fault.NotFound, "the package %q has no file that may be shown", r.Name).
			WithHint("what it has is younger than packages.%s.cooldown_days, or without a digest", kindPython)
	case c.wheels+c.sources+c.old == 0:
		return fault.New(fault.NotFound, "%s has no version %s", r.Name, r.Versions).WithHint("it has %s", c.last())
	}
	return c.noWheel(r)
}

// census counts what files a package has.
type census struct {
	constraint *semver.Constraint // of what is asked for; nil: any
	files      int                // all of them
	versions   []string           // the newest of those that were not withdrawn
	more       bool               // than these

	wheels, sources, linux, old int // of those that are asked for
}

// count counts a file; true: it installs in the wasm guest.
func (c *census) count(f projectFile, exact bool) bool {
	c.files++
	if f.yanked == nil && (len(c.versions) == 0 || c.versions[len(c.versions)-1] != f.version) {
		if c.versions = append(c.versions, f.version); len(c.versions) > 5 {
			c.versions, c.more = slices.Clone(c.versions[1:]), true
		}
	}
	if c.constraint != nil && !c.constraint.Match(f.version) || f.yanked != nil && !exact {
		return false
	}
	switch {
	case !f.wheel():
		c.sources++
	case !f.takesGuest():
		c.old++
	default:
		c.wheels++
		if strings.Contains(f.name, "linux") {
			c.linux++
		}
		return f.fits()
	}
	return false
}

// last names the newest versions.
func (c *census) last() string {
	if len(c.versions) == 0 {
		return "none that was not withdrawn"
	}
	text := strings.Join(c.versions, ", ")
	if c.more {
		return "… " + text
	}
	return text
}

// noWheel is for a package of which nothing fits into the wasm guest.
func (c *census) noWheel(r Requirement) error {
	why := fmt.Sprintf("its wheels are for other versions of Python than 3.%d", guestMinor)
	switch {
	case c.wheels > 0:
		why = "its wheels have compiled parts for other machines"
	case c.old == 0:
		why = "it has no wheel, and what builds one would have to be run"
	}
	hint := fmt.Sprintf("it installs in a session with isolation %q", isolationLinux)
	if c.linux == 0 && c.sources == 0 && c.old == 0 {
		hint = "it has no wheel for Linux either; look for another package"
	}
	return fault.New(fault.Unsupported, "%s has no wheel that works with isolation %q: %s", r, isolationWasm, why).WithHint("%s", hint)
}

// pipMissing finds the requirement that pip has nothing for.
var pipMissing = regexp.MustCompile(`(?m)(?:No matching distribution found for|Could not find a version that satisfies the requirement) (.+?)(?: \(from .*)?$`)

// pipNeeded finds what packages need, where pip tells why no choice of their versions works:
// it may be a package of which no file fits.
var pipNeeded = regexp.MustCompile(`(?m)^ +\S+ \S+ depends on (.+?)\s*$`)

// What of pip's output is looked at, in bytes, and how many packages it may name: a program
// writes it, and each is looked up.
const (
	maxPrinted   = 64 << 10
	maxExplained = 10
)

// Explain makes a fault of what pip printed when it ended with an error: of a package
// without a fitting file it says in which isolation that works.
func (p *Packages) Explain(ctx context.Context, printed string) error {
	printed = printed[max(0, len(printed)-maxPrinted):]
	for _, m := range pipMissing.FindAllStringSubmatch(printed, maxExplained) {
		r, err := ParseRequirement(m[1])
		if err != nil {
			continue
		}
		if err := p.ExplainPython(ctx, r); err != nil {
			return err
		}
	}
	needed := map[string]bool{}
	for _, m := range pipNeeded.FindAllStringSubmatch(printed, 10*maxExplained) {
		r, err := ParseRequirement(m[1])
		if err != nil || needed[r.Name] || len(needed) == maxExplained {
			continue
		}
		needed[r.Name] = true
		if err := p.ExplainPython(ctx, r); fault.KindOf(err) == fault.Unsupported {
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
