package main

import (
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// version is a release's, which each kind of package writes in its own way.
type version struct {
	semver string // 1.2.3-rc.1
	python string // 1.2.3rc1
	debian string // 1.2.3~rc.1
}

// released are the forms of a version before a release that PyPI orders as we do.
var released = regexp.MustCompile(`^(alpha|beta|rc)\.(\d+)$`)

var short = map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}

// readVersion reads a semantic version. What comes before a release and is called otherwise
// than alpha.N, beta.N or rc.N is a build of a developer, which PyPI does not take.
func readVersion(text string) (version, error) {
	if !semver.IsValid("v"+text) || semver.Build("v"+text) != "" || strings.Count(text, ".") < 2 {
		return version{}, fmt.Errorf("-version is %q, want a semantic version, as 1.2.3 or 1.2.3-rc.1", text)
	}
	v := version{semver: text, python: text, debian: text}
	core, pre, ok := strings.Cut(text, "-")
	if !ok {
		return v, nil
	}
	v.debian = core + "~" + strings.ReplaceAll(pre, "-", ".")
	if m := released.FindStringSubmatch(pre); m != nil {
		v.python = core + short[m[1]] + m[2]
	} else {
		v.python = core + ".dev0+" + strings.ToLower(strings.ReplaceAll(pre, "-", "."))
	}
	return v, nil
}
