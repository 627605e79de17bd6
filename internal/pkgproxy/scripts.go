package pkgproxy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"paddock/internal/fault"
)

// Modules is the folder of a workspace with the npm packages of the wasm guest: ModulesTree,
// the packs that it names, and beside them, where npm puts them, the packages' files that
// are no modules.
const Modules = ".paddock/node_modules"

// ModulesTree is the file that says which pack of ModulesPacks each folder below Modules
// stands for.
const (
	ModulesTree  = Modules + "/.tree.json"
	ModulesPacks = Modules + "/.packs"
)

// ModulesRecord is the file in it that says what was asked for.
const ModulesRecord = Modules + "/packages.json"

// maxRecord bounds that file, in bytes.
const maxRecord = 1 << 20

// ScriptInstall is what is to be installed for JavaScript in a wasm guest.
type ScriptInstall struct {
	// Owner is for whom it is done.
	Owner string
	// Wanted are names of packages, each with a version, a range or a tag behind an @,
	// or without.
	Wanted []string
	// Record is what ModulesRecord holds; nil: nothing is installed yet. It is a guest's
	// file: nothing in it is believed but that these packages are wanted, too.
	Record []byte
	// Upgrade takes newer versions also of what is there.
	Upgrade bool
}

// Scripts is what an installation gives.
type Scripts struct {
	// Files are the contents of Modules, all of it, by paths in the workspace: they take
	// the place of what is there.
	Files map[string][]byte
	// Installed are the packages, those that others depend on included; Already tells
	// that nothing changed.
	Installed []Installed
	Already   bool
	// Notes say what somebody who uses them has to know.
	Notes []string
}

// record is ModulesRecord's content.
type record struct {
	Wanted map[string]string `json:"wanted"`
	Locked map[string]string `json:"locked"` // versions, by name
	Format int               `json:"format"`
}

// recordFormat counts the ways to make modules of packages: a record of another one
// means that they have to be made again.
const recordFormat = 3

func readRecord(text []byte) record {
	var r record
	if len(text) > maxRecord || json.Unmarshal(text, &r) != nil {
		r = record{}
	}
	wanted, locked := map[string]string{}, map[string]string{}
	for name, spec := range r.Wanted {
		if validNPMName(name) && len(spec) < 256 && len(wanted) < 500 {
			wanted[name] = spec
		}
	}
	for name, version := range r.Locked {
		if validNPMName(name) && plainVersion(version) {
			locked[name] = version
		}
	}
	return record{wanted, locked, r.Format}
}

// InstalledModules are the packages that ModulesRecord says are there, without those that
// lie in others' folders.
func InstalledModules(text []byte) (all []Installed) {
	for name, version := range readRecord(text).Locked {
		all = append(all, Installed{name, version})
	}
	return all
}

// ParseNPM reads NAME or NAME@SPEC.
func ParseNPM(text string) (name, spec string, err error) {
	text = strings.TrimSpace(text)
	name = text
	if at := strings.LastIndexByte(text, '@'); at > 0 {
		name, spec = text[:at], text[at+1:]
	}
	if strings.HasPrefix(text, "-") || strings.Contains(text, ":") || strings.Contains(spec, "/") || !strings.HasPrefix(name, "@") && strings.Contains(name, "/") {
		return "", "", fault.New(fault.Denied, "%.100q names where a package is from, or is an option", text).
			WithHint("packages come from the configured registry; write a name and a version, such as zod@^3")
	}
	if !validNPMName(name) || len(spec) > 200 || strings.ContainsAny(spec, "\r\n\x00") {
		return "", "", fault.New(fault.Invalid, "%.100q is not a name of an npm package", text).WithHint("write zod, zod@3.23.8 or @scope/name@^1")
	}
	return name, spec, nil
}

// JavaScript installs npm packages for the wasm guest: it finds out what npm would
// install, checks and unpacks what it has not seen before, and makes packs of it from which
// the guest loads modules. No script of a package is run, here or anywhere.
func (p *Packages) JavaScript(ctx context.Context, in ScriptInstall) (*Scripts, error) {
	before := readRecord(in.Record)
	now := record{Wanted: maps.Clone(before.Wanted), Locked: map[string]string{}, Format: recordFormat}
	if len(in.Wanted) == 0 {
		return nil, fault.New(fault.Invalid, "there is nothing to install")
	}
	preferred := maps.Clone(before.Locked)
	for _, text := range in.Wanted {
		name, spec, err := ParseNPM(text)
		if err != nil {
			return nil, err
		}
		if guestHas(name) {
			return nil, fault.New(fault.Conflict, "%q is a module that is there already", name).WithHint("import it")
		}
		if spec != "" || now.Wanted[name] == "" {
			now.Wanted[name] = spec
		}
		if in.Upgrade {
			preferred = nil
		}
	}
	var wishes []dependency
	for _, name := range slices.Sorted(maps.Keys(now.Wanted)) {
		wishes = append(wishes, dependency{name: name, spec: now.Wanted[name]})
	}
	release, err := p.config.Budget.Acquire(ctx, in.Owner, resolveMemory)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx = context.WithValue(ctx, askerKey{}, asker{in.Owner, true})
	t, err := p.resolve(ctx, wishes, preferred)
	if err != nil {
		return nil, err
	}
	out := &Scripts{Installed: t.installed(), Notes: t.notes()}
	for _, n := range t.all {
		if n.parent == t.root {
			now.Locked[n.name] = n.release.Version
		}
	}
	if before.Format == recordFormat && maps.Equal(before.Wanted, now.Wanted) && maps.Equal(before.Locked, now.Locked) {
		out.Already = true
		return out, nil
	}
	if err := p.makeModules(ctx, t, out); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return nil, err
	}
	out.Files[ModulesRecord] = append(text, '\n')
	return out, nil
}

// resolveMemory is what a resolution takes in memory.
const resolveMemory = maxHeld + pageMemory

// installed lists a tree's packages, each version once.
func (t *tree) installed() (all []Installed) {
	for _, n := range t.all {
		all = append(all, Installed{n.release.Name, n.release.Version})
	}
	slices.SortFunc(all, func(a, b Installed) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version))
	})
	return slices.Compact(all)
}

// notes tell of scripts that were not run, of what is deprecated and of what was left out.
func (t *tree) notes() (notes []string) {
	for _, n := range t.all {
		if n.release.installScripts() {
			notes = append(notes, fmt.Sprintf("%s has scripts that npm would run when it installs it; they were not run", n.label()))
		}
		if text, ok := n.release.Deprecated.(string); ok && text != "" && n.parent == t.root {
			notes = append(notes, fmt.Sprintf("%s is deprecated: %.200s", n.label(), text))
		}
	}
	slices.Sort(t.left)
	for _, label := range slices.Compact(t.left) {
		notes = append(notes, fmt.Sprintf("%s has compiled parts for some machines, which were left out: where it needs them it works with isolation %q", label, isolationLinux))
	}
	return notes
}
