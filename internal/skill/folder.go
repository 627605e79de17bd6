// Package skill finds, fetches, checks, keeps and serves skills: folders with a
// SKILL.md as the Agent Skills format (agentskills.io/specification) has them. A
// [Source] says where one is, a [Store] installs it and keeps what an owner has,
// and [Modules] makes of it what programs import.
//
// Nothing in a skill is believed: it is text that somebody else wrote. What is
// odd about one is told with it ([Warning]); what it may use it has to declare
// ([Manifest]), and whoever runs its code holds it to that.
package skill

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"paddock/internal/fault"
	"paddock/internal/linkfarm"
	"paddock/internal/workspace"
)

// MainFile is what every skill has.
const MainFile = "SKILL.md"

// maxDepth bounds how deep a file lies; the format recommends one folder.
const maxDepth = 16

// File is one file of a skill; its path is below the skill's folder.
type File = linkfarm.File

// Folder is the files of a skill, in the order of their paths. It is not changed
// once it is made.
type Folder []File

// newFolder puts files together. A path that could mean something else on another
// system, and two that are one there, are a fault.
func newFolder(files []File) (Folder, error) {
	f := Folder(slices.Clone(files))
	slices.SortFunc(f, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	seen := map[string]string{} // what each folded path is spelled like
	isFile := map[string]bool{}
	for k := range f {
		clean, err := cleanPath(f[k].Path)
		if err != nil {
			return nil, err
		}
		f[k].Path = clean
		for at := clean; at != "."; at = path.Dir(at) {
			key := fold(at)
			other, known := seen[key]
			switch {
			case known && other != at:
				return nil, fault.New(fault.Invalid, "the skill has %.100q and %.100q, which some systems take for one", other, at).WithHint("rename one of them")
			case known && (at == clean || isFile[key]):
				return nil, fault.New(fault.Invalid, "the skill has %.100q twice, or a file below it", at).WithHint("pack each file once")
			}
			seen[key] = at
			if at == clean {
				isFile[key] = true
			}
		}
	}
	return f, nil
}

// fold gives paths that some file system takes for the same the same key.
func fold(p string) string { return norm.NFC.String(cases.Fold().String(norm.NFKC.String(p))) }

// cleanPath checks the path of a file of a skill.
func cleanPath(name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		return "", fault.New(fault.Denied, "the skill holds the absolute path %.100q", name).WithHint("pack it with relative names")
	}
	clean, err := workspace.Clean(name)
	if err != nil {
		said := fault.Of(err)
		return "", fault.New(said.Kind, "the skill holds the path %.100q: %s", name, said.Message).
			WithHint("pack it with names that lead to files of the skill, on every system").WithCause(err)
	}
	if strings.Count(clean, "/") >= maxDepth {
		return "", fault.New(fault.Invalid, "the path %.100q is too deep", name)
	}
	for part := range strings.SplitSeq(clean, "/") {
		if strings.ContainsFunc(part, unicode.IsControl) || strings.ContainsAny(part, `:<>"|?*`) || strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") {
			return "", fault.New(fault.Invalid, "the name %.100q cannot be a file's on every system", part).WithHint("rename it")
		}
	}
	return clean, nil
}

// gits gives the part of a path that git, on some file system, takes for the folder of a
// repository, whose configuration can name programs; empty: there is none. It is what
// git itself refuses (core.protectHFS and core.protectNTFS).
func gits(name string) string {
	for part := range strings.SplitSeq(name, "/") {
		plain := strings.ToLower(strings.Map(func(r rune) rune {
			if invisible(r) != "" {
				return -1
			}
			return r
		}, part))
		if plain = strings.TrimRight(plain, ". "); plain == ".git" || plain == "git~1" {
			return part
		}
	}
	return ""
}

// Get finds a file by its path.
func (f Folder) Get(name string) (File, bool) {
	k, ok := slices.BinarySearchFunc(f, name, func(file File, name string) int { return cmp.Compare(file.Path, name) })
	if !ok {
		return File{}, false
	}
	return f[k], true
}

// Bytes is how much its files hold together.
func (f Folder) Bytes() (sum int64) {
	for _, file := range f {
		sum += int64(len(file.Data))
	}
	return sum
}

// Digest is what a folder is, whatever it came in: "sha256:" and the digest of a
// line for each file with its mode, its own digest and its path, quoted as Go
// does.
func (f Folder) Digest() string {
	h := sha256.New()
	for _, file := range f {
		mode := "644"
		if file.Executable {
			mode = "755"
		}
		fmt.Fprintf(h, "%s %x %q\n", mode, sha256.Sum256(file.Data), file.Path)
	}
	return digestPrefix + hex.EncodeToString(h.Sum(nil))
}

const digestPrefix = "sha256:"

// parseDigest reads a digest as people write it, with or without its prefix.
func parseDigest(text string) (string, error) {
	digits := strings.ToLower(strings.TrimPrefix(text, digestPrefix))
	if b, err := hex.DecodeString(digits); err != nil || len(b) != sha256.Size {
		return "", fault.New(fault.Invalid, "%.100q is not a digest of a skill", text).WithHint("it is sha256: and 64 hexadecimal digits, as an installation tells them")
	}
	return digestPrefix + digits, nil
}

// Diff is what an installation changed. Paths are in order.
type Diff struct {
	Before  string   `json:"before"` // digest
	After   string   `json:"after"`
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
}

// Same tells that nothing changed.
func (d Diff) Same() bool { return d.Before == d.After }

// diff compares two folders.
func diff(before, after Folder) Diff {
	d := Diff{Before: before.Digest(), After: after.Digest(), Added: []string{}, Changed: []string{}, Removed: []string{}}
	for _, file := range after {
		old, there := before.Get(file.Path)
		switch {
		case !there:
			d.Added = append(d.Added, file.Path)
		case old.Executable != file.Executable || string(old.Data) != string(file.Data):
			d.Changed = append(d.Changed, file.Path)
		}
	}
	for _, file := range before {
		if _, there := after.Get(file.Path); !there {
			d.Removed = append(d.Removed, file.Path)
		}
	}
	return d
}
