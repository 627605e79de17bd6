package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/workspace"
)

// takeOut copies what a run wrote to where its person wants it, or says how to have it.
func (r runner) takeOut(ctx context.Context, id session.ID, got brought) error {
	f := r.flags
	if f.out == "" && f.write == "" && (f.keep || f.session != "" || !person(r.stderr)) {
		return nil // it stays, or no person reads how to have it
	}
	tree, done, err := r.app.Sessions.Files(session.Local, id)
	if err != nil {
		return err
	}
	defer done()
	files, err := written(ctx, tree, got)
	if err != nil || len(files) == 0 {
		return err
	}
	switch {
	case f.out != "":
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return fault.New(fault.Unavailable, "the folder %.200q cannot be made", f.out).WithCause(err)
		}
		return r.copyOut(tree, files, f.out)
	case f.write != "":
		return r.copyOut(tree, r.writable(files), f.write)
	}
	names := make([]string, 0, 3)
	for _, one := range files[:min(len(files), cap(names))] {
		names = append(names, plain(one.Path))
	}
	text := "the program wrote " + strings.Join(names, ", ")
	if more := len(files) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	r.say("hint", text+"; --out DIR copies that out, --write into the program's folder")
	return nil
}

// writable leaves out what no program may write into a person's folder: files and folders
// with a dot, which tools of that person obey.
func (r runner) writable(files []workspace.File) (kept []workspace.File) {
	for _, f := range files {
		if strings.HasPrefix(f.Path, ".") || strings.Contains(f.Path, "/.") {
			r.say("warning", plain(f.Path)+" is not written, as its name begins with a dot; --out DIR copies it")
			continue
		}
		kept = append(kept, f)
	}
	return kept
}

// copyOut copies files of a workspace into a folder of this machine. No link in the folder
// leads out of it.
func (r runner) copyOut(tree *workspace.Tree, files []workspace.File, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.New(fault.Unavailable, "the folder %.200q cannot be written", dir).WithCause(err)
	}
	defer root.Close()
	for _, f := range files {
		if err := copyFile(tree, f.Path, root, filepath.FromSlash(f.Path)); err != nil {
			return fmt.Errorf("copying %s out: %w", plain(f.Path), err)
		}
	}
	return nil
}

// copyFile copies a file of a workspace into a folder.
func copyFile(tree *workspace.Tree, from string, root *os.Root, to string) error {
	in, _, err := tree.OpenFile(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if dir := filepath.Dir(to); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	out, err := root.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
