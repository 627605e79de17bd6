package install

import (
	"strings"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
)

// wishes are what is to be installed.
type wishes struct {
	kind         string // packages.PyPI or packages.NPM
	lines        []string
	files        []string // of the workspace, with requirements
	upgrade      bool
	requirements []pkgproxy.Requirement // of Python's, once the files are read
}

// prefixes say of a line which kind of package it names.
const npmPrefix, pypiPrefix = "npm:", "pypi:"

// readWishes reads what is to be installed in a session of a language.
func readWishes(text, language string) (w wishes, err error) {
	usual := pkgproxy.PyPI
	if language == "javascript" || language == "typescript" {
		usual = pkgproxy.NPM
	}
	for line := range strings.Lines(text) {
		line = w.upgrades(strings.TrimSpace(line))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		kind := usual
		if file, ok := requirementsFile(line); ok {
			w.files, kind = append(w.files, file), pkgproxy.PyPI
		} else if name, ok := strings.CutPrefix(line, npmPrefix); ok {
			w.lines, kind = append(w.lines, strings.TrimSpace(name)), pkgproxy.NPM
		} else if name, ok := strings.CutPrefix(line, pypiPrefix); ok {
			w.lines, kind = append(w.lines, strings.TrimSpace(name)), pkgproxy.PyPI
		} else {
			w.lines = append(w.lines, line)
		}
		if w.kind != "" && w.kind != kind {
			return w, fault.New(fault.Invalid, "packages of Python and of npm cannot be installed in one call").WithHint("make a call for each kind")
		}
		w.kind = kind
	}
	if w.kind == "" {
		return w, fault.New(fault.Invalid, "no package is named").WithHint("write a name, such as attrs, attrs==25.3.0 or npm:zod@^3")
	}
	if w.kind == pkgproxy.NPM {
		w.lines = strings.Fields(strings.Join(w.lines, " "))
		for _, line := range w.lines {
			if _, _, err := pkgproxy.ParseNPM(line); err != nil {
				return w, err
			}
		}
		return w, nil
	}
	_, err = pkgproxy.ParseRequirements(strings.Join(w.lines, "\n"))
	return w, err
}

// upgrades takes the option to upgrade off a line.
func (w *wishes) upgrades(line string) string {
	for _, option := range []string{"--upgrade", "-U"} {
		if rest, ok := strings.CutPrefix(line, option); ok && (rest == "" || rest[0] == ' ') {
			w.upgrade = true
			return strings.TrimSpace(rest)
		}
	}
	return line
}

// requirementsFile is the file that a line says to read.
func requirementsFile(line string) (name string, ok bool) {
	for _, option := range []string{"-r", "--requirement"} {
		if rest, is := strings.CutPrefix(line, option); is && rest != "" && strings.ContainsAny(rest[:1], " =") {
			return strings.TrimSpace(rest[1:]), true
		}
	}
	return "", false
}

// maxRequirements bounds a file of them, in bytes.
const maxRequirements = 1 << 20

// complete reads the files that the wishes name.
func (p place) complete(w *wishes) error {
	if w.kind == pkgproxy.NPM {
		return nil
	}
	lines := w.lines
	if len(w.files) > 0 {
		tree, done, err := p.config.Sessions.Files(p.info.Owner, p.info.ID)
		if err != nil {
			return err
		}
		defer done()
		for _, name := range w.files {
			content, err := tree.ReadAll(name, maxRequirements)
			if err != nil {
				return err
			}
			lines = append(lines, string(content.Data))
		}
	}
	var err error
	if w.requirements, err = pkgproxy.ParseRequirements(strings.Join(lines, "\n")); err == nil && len(w.requirements) == 0 {
		err = fault.New(fault.Invalid, "no package is named in %s", strings.Join(w.files, ", "))
	}
	return err
}
