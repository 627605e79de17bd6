package workspace

import (
	"path"
	"regexp"
	"runtime"
	"strings"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/pattern"
)

const (
	maxPath = 4096
	maxName = 255
)

// prefixes are the guest's names of the folder.
var prefixes = []string{"/workspace", "/app"}

// reserved are names that Windows keeps for devices, whatever follows the
// first dot. They are refused everywhere, so that a workspace can be moved.
var reserved = regexp.MustCompile(`(?i)^(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³]) *(\.|:|$)`)

var drive = regexp.MustCompile(`^[A-Za-z]:`)

// Clean turns a path as a model writes it into one relative to the workspace:
// "/workspace/a.txt", "/app/a.txt" and "./a.txt" are all "a.txt". Anything that
// could mean something outside of the workspace, here or on another system, is
// a fault.
func Clean(name string) (string, error) {
	switch {
	case name == "":
		return "", fault.New(fault.Invalid, "the path is empty")
	case len(name) > maxPath:
		return "", fault.New(fault.Invalid, "the path is longer than %d bytes", maxPath)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return "", fault.New(fault.Invalid, "the path holds bytes that no file name can have")
	case strings.ContainsRune(name, '\\'):
		return "", fault.New(fault.Invalid, "the path holds a backslash").WithHint("separate folders with /")
	case drive.MatchString(name):
		return "", fault.New(fault.Denied, "a path with a drive letter lies outside of the workspace").WithHint("use a path below /workspace")
	}
	rel, ok := relative(name)
	if !ok {
		return "", fault.New(fault.Denied, "%q lies outside of the workspace", name).WithHint("use a path below /workspace, or one without a leading /")
	}
	for part := range strings.SplitSeq(rel, "/") {
		if err := checkName(part); err != nil {
			return "", err
		}
	}
	clean := path.Clean(rel)
	if clean == "." {
		return "", fault.New(fault.Invalid, "the path names the workspace itself and no file in it")
	}
	return clean, nil
}

// relative takes the guest's name of the folder away.
func relative(name string) (string, bool) {
	if !strings.HasPrefix(name, "/") {
		return name, true
	}
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(name, p); ok && (rest == "" || rest[0] == '/') {
			return strings.TrimLeft(rest, "/"), true
		}
	}
	return "", false
}

func checkName(part string) error {
	switch {
	case part == "..":
		return fault.New(fault.Denied, "the path holds ..").WithHint("name files from the workspace's folder on")
	case len(part) > maxName:
		return fault.New(fault.Invalid, "a name in the path is longer than %d bytes", maxName)
	case reserved.MatchString(part):
		return fault.New(fault.Invalid, "%q is the name of a device on some systems", part).WithHint("choose another name")
	case runtime.GOOS == "windows" && strings.ContainsRune(part, ':'):
		return fault.New(fault.Invalid, "a name in the path holds a colon").WithHint("choose another name")
	}
	return nil
}

// Glob chooses files by path: * and ? stand for characters of one name, **
// for any folders, [a-z] for one character, {a,b} for either. A pattern
// without a slash matches a file's name in every folder; one without any of
// these characters also matches everything below the folder of that name. The
// zero Glob matches everything.
type Glob struct{ any []pattern.Glob }

// NewGlob checks a pattern; the empty one matches everything. What it may cost is
// package pattern's to say.
func NewGlob(text string) (Glob, error) {
	if len(text) > pattern.MaxGlob {
		return Glob{}, fault.New(fault.Invalid, "the glob is too long").WithHint("it may have %d bytes", pattern.MaxGlob)
	}
	rel, ok := relative(text)
	if !ok {
		return Glob{}, fault.New(fault.Denied, "the glob %q lies outside of the workspace", text).WithHint("leave the leading / away")
	}
	rel = strings.TrimPrefix(rel, "./")
	plain := strings.TrimRight(rel, "/")
	written := []string{"**/" + rel}
	switch {
	case plain == "" || plain == ".":
		return Glob{}, nil
	case pattern.Plain(plain):
		written = []string{plain, plain + "/**", "**/" + plain}
	case strings.Contains(rel, "/"):
		written = []string{rel}
	}
	var g Glob
	for _, one := range written {
		compiled, err := pattern.NewGlob(one)
		if err != nil {
			return Glob{}, err
		}
		g.any = append(g.any, compiled)
	}
	return g, nil
}

// Match tells whether a file's path, relative and with slashes, is chosen. The error
// is the meter's.
func (g Glob) Match(p string, m *pattern.Meter) (bool, error) {
	for _, one := range g.any {
		if is, err := one.Match(p, m); is || err != nil {
			return is, err
		}
	}
	return len(g.any) == 0, m.Spend(int64(len(p)))
}
