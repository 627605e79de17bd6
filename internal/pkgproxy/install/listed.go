package install

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
	"paddock/internal/session"
	"paddock/internal/workspace"
)

// Folder tells whether a path of a workspace is of an installed package: its files are of
// interest to nobody one by one.
func Folder(name string) bool {
	name = "/" + name
	return strings.Contains(name, "/node_modules/") || strings.Contains(name, "/site-packages/") || strings.HasPrefix(name, "/"+pythonFolder+"/")
}

// installedPython finds the packages of a site folder by what they say of themselves.
var installedPython = regexp.MustCompile(`(?:^|/)site-packages/([^/]+?)-([0-9][^/-]*)\.dist-info/METADATA$`)

// modulesLock is what npm writes down of what it has installed.
const modulesLock = "node_modules/.package-lock.json"

// maxLock bounds it, in bytes.
const maxLock = 16 << 20

// Listed lists the packages that are installed in a session's files, those that others
// depend on included.
func Listed(ctx context.Context, m *session.Manager, owner session.Owner, id session.ID) (all []pkgproxy.Installed, err error) {
	tree, done, err := m.Files(owner, id)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, glob := range []string{pythonFolder + "/lib/*/site-packages/*.dist-info/METADATA", ".local/lib/*/site-packages/*.dist-info/METADATA"} {
		_, err := tree.Walk(ctx, glob, func(f workspace.File) error {
			if m := installedPython.FindStringSubmatch(f.Path); m != nil {
				all = append(all, pkgproxy.Installed{Name: m[1], Version: m[2]})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if record, err := tree.ReadAll(pkgproxy.ModulesRecord, maxRecord); err == nil {
		all = append(all, pkgproxy.InstalledModules(record.Data)...)
	}
	locked, err := lockedIn(tree)
	if err != nil {
		return nil, err
	}
	all = append(all, locked...)
	slices.SortFunc(all, compare)
	return slices.Compact(all), nil
}

func compare(a, b pkgproxy.Installed) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version))
}

// locked are the packages that the machine's npm has installed.
func (p place) locked() ([]pkgproxy.Installed, error) {
	tree, done, err := p.config.Sessions.Files(p.info.Owner, p.info.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	return lockedIn(tree)
}

// lockedIn reads npm's record; what cannot be read as one, as a program wrote it, has none.
func lockedIn(tree *workspace.Tree) (all []pkgproxy.Installed, err error) {
	content, err := tree.ReadAll(modulesLock, maxLock)
	switch kind := fault.KindOf(err); {
	case kind == fault.NotFound, kind == fault.Exhausted, kind == fault.Invalid, kind == fault.Denied:
		return nil, nil
	case err != nil:
		return nil, err
	}
	var lock struct {
		Packages map[string]struct{ Version string }
	}
	if json.Unmarshal(content.Data, &lock) != nil {
		return nil, nil
	}
	for at, one := range lock.Packages {
		_, name, ok := cutLast(at, "node_modules/")
		if ok && one.Version != "" && len(name) < 300 && path.Clean(name) == name {
			all = append(all, pkgproxy.Installed{Name: name, Version: one.Version})
		}
	}
	slices.SortFunc(all, compare)
	return slices.Compact(all), nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if at := strings.LastIndex(s, sep); at >= 0 {
		return s[:at], s[at+len(sep):], true
	}
	return s, "", false
}
