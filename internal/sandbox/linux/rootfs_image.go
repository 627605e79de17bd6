//go:build linux && (amd64 || arm64)

package linux

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxEtc bounds a file of an image that is read for a box, in bytes.
const maxEtc = 1 << 20

// imageRootfs is an unpacked image. Of its files of users, groups and hosts a box
// has versions of its own, in which those of the box are; the image stays as it is.
func imageRootfs(image Image, user string) (rootfs, error) {
	r := rootfs{steps: []step{{Path: rootPath, Bind: image.Dir, ReadOnly: true}}, name: cmp.Or(image.ID, image.Dir), env: image.Env, tree: image.Dir, done: image.Release}
	dir, err := os.OpenRoot(image.Dir)
	if err != nil {
		r.release()
		return rootfs{}, fmt.Errorf("opening the image: %w", err)
	}
	defer dir.Close()
	if info, err := dir.Lstat("etc"); err != nil || !info.IsDir() {
		return r, nil
	}
	for name, change := range map[string]func(text string) string{
		"passwd": func(text string) string { return withUser(withEntry(text, passwdEntry, 2), user) },
		"group":  func(text string) string { return withGroup(withEntry(text, groupEntry, 2), user) },
		"hosts":  func(string) string { return hosts },
	} {
		text, err := readPlain(dir, path.Join("etc", name))
		if err != nil {
			continue // there is none, or none that would be read as one
		}
		r.steps = append(r.steps, step{Path: name, Text: change(text)},
			step{Path: path.Join(rootPath, "etc", name), Bind: path.Join(scaffold, name), ReadOnly: true})
	}
	return r, nil
}

// readPlain reads a file of an image that is one, and no link.
func readPlain(dir *os.Root, name string) (string, error) {
	info, err := dir.Lstat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxEtc {
		return "", fs.ErrInvalid
	}
	f, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEtc))
	return string(text), err
}

// withEntry appends an entry to a list in which no other has its name or, in the
// field with that index, its number.
func withEntry(list, entry string, number int) string {
	want := strings.Split(entry, ":")
	for line := range strings.Lines(list) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > number && f[number] == want[number] {
			return list
		}
	}
	if list != "" && !strings.HasSuffix(list, "\n") {
		list += "\n"
	}
	return list + entry + "\n"
}
