package pkgproxy

import (
	"errors"
	"regexp"
	"strings"

	"deps.dev/util/pypi"
	"deps.dev/util/semver"

	"paddock/internal/fault"
)

// Requirement is a wish for a Python package (PEP 508) from the configured index: a
// name with extras, versions and a marker. It names no URL, path or option.
type Requirement struct {
	// Name is the package's, in the one way to write it.
	Name string
	// Extras, Versions and Marker are as they were written; empty: none.
	Extras, Versions, Marker string
	// Hashes are those that the file has to have one of, as pip writes them.
	Hashes []string
}

// String is the requirement as pip reads it, without its hashes.
func (r Requirement) String() string {
	s := r.Name + r.Extras + r.Versions
	if r.Marker != "" {
		s += " ; " + r.Marker
	}
	return s
}

var (
	requirementText = regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(\[[A-Za-z0-9._,\s-]*\])?\s*(\([^()]*\)|[^;()@\[\]]*)\s*(?:;(.*))?$`)
	clause          = regexp.MustCompile(`^\s*(?:~=|===|==|!=|<=|>=|<|>)\s*[A-Za-z0-9._*+!-]+\s*$`)
	markerText      = regexp.MustCompile(`^[A-Za-z0-9_.,'"()<>=!~*+\s-]*$`)
	optionText      = regexp.MustCompile(`(?:^|\s)-`) // pip would read an option
	hashOption      = regexp.MustCompile(`^--hash=(sha256|sha384|sha512):([0-9a-fA-F]+)$`)
)

// maxRequirement bounds one, in bytes, maxRequirements a file's number of them, and
// maxClauses the conditions on one's versions: reading them costs their square.
const maxRequirement, maxRequirements, maxClauses = 2000, 1000, 50

// ParseRequirement reads one. What could be read as anything else than a wish for a
// package of the index is refused: a URL, a path, an option.
func ParseRequirement(text string) (Requirement, error) {
	text = strings.TrimSpace(text)
	if len(text) > maxRequirement {
		return Requirement{}, errRequirement(text, "it is too long")
	}
	switch {
	case text == "":
		return Requirement{}, errRequirement(text, "it is empty")
	case strings.HasPrefix(text, "-"):
		return Requirement{}, fault.New(fault.Denied, "%.100q is an option of pip's", text).WithHint("where packages come from is the operator's decision; name packages only")
	case strings.Contains(text, "://"), strings.Contains(text, "@"):
		return Requirement{}, fault.New(fault.Denied, "%.100q names where a package is from", text).
			WithHint("packages come from the configured index; write a name and versions, such as attrs>=23")
	case strings.HasPrefix(text, "."), strings.ContainsAny(text, "/\\\r\n\x00"):
		return Requirement{}, fault.New(fault.Denied, "%.100q is a path", text).WithHint("write a package's name; files of the session are imported as they are")
	}
	m := requirementText.FindStringSubmatch(text)
	if m == nil || !pythonName.MatchString(m[1]) {
		return Requirement{}, errRequirement(text, "it is not a name with versions")
	}
	r := Requirement{Name: pypi.CanonPackageName(m[1]), Extras: strings.Join(strings.Fields(m[2]), ""), Marker: strings.TrimSpace(m[4])}
	if !markerText.MatchString(r.Marker) || optionText.MatchString(r.Marker) {
		return Requirement{}, errRequirement(text, "what follows ; is not a marker")
	}
	if list := strings.TrimSpace(strings.Trim(m[3], "()")); list != "" {
		if strings.Count(list, ",") >= maxClauses {
			return Requirement{}, errRequirement(text, "it has too many conditions on its versions")
		}
		for one := range strings.SplitSeq(list, ",") {
			if !clause.MatchString(one) {
				return Requirement{}, errRequirement(text, "its versions are not written as ==1.2 or >=1,<2")
			}
		}
		r.Versions = strings.Join(strings.Fields(list), "")
		if _, err := semver.PyPI.ParseConstraint(r.Versions); err != nil && !strings.Contains(r.Versions, "===") {
			return Requirement{}, errRequirement(text, "its versions are not written as ==1.2 or >=1,<2")
		}
	}
	return r, nil
}

func errRequirement(text, why string) error {
	return fault.New(fault.Invalid, "%.100q is not a requirement: %s", text, why).WithHint("write a package's name, such as attrs, attrs==25.3.0 or httpx[http2]>=0.27,<1")
}

// ParseRequirements reads a requirements.txt: a requirement on each line, with --hash
// options; comments; lines that go on after a backslash. Any other option is refused,
// and all mistakes are reported at once.
func ParseRequirements(text string) ([]Requirement, error) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	var all []Requirement
	var mistakes []error
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		if at := strings.Index(line, " #"); at >= 0 {
			line = line[:at]
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if len(all) >= maxRequirements {
			return nil, fault.New(fault.Exhausted, "there are more than %d requirements", maxRequirements)
		}
		wish, options, _ := strings.Cut(line, " --")
		r, err := ParseRequirement(wish)
		if err == nil && options != "" {
			r.Hashes, err = hashes("--" + options)
		}
		mistakes = append(mistakes, err)
		all = append(all, r)
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return all, nil
}

func hashes(options string) (all []string, err error) {
	for option := range strings.FieldsSeq(options) {
		m := hashOption.FindStringSubmatch(option)
		if m == nil {
			return nil, fault.New(fault.Denied, "%.100q is an option that no requirement may have", option).WithHint("only --hash is read")
		}
		all = append(all, m[1]+":"+strings.ToLower(m[2]))
	}
	return all, nil
}
