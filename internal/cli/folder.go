package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/trust"
	"paddock/internal/workspace"
)

// Bounds of a program's folder that is put into its session: what is larger is left out
// whole, but for the program and the files that its arguments name.
const (
	mostFolderBytes = 64 << 20
	mostFolderFiles = 5000
)

// errFolderTooLarge ends the walk through a folder.
var errFolderTooLarge = errors.New("the folder is too large")

// brought are the files that a run was given: by their path in the workspace, as they were.
type brought map[string]workspace.File

// folderFiles lists the files of a folder that a program sees, by paths with slashes: none
// that begins with a dot, none that git ignores, no link, and nothing of paddock's own.
func (cl *cli) folderFiles(ctx context.Context, root *os.Root) (files []string, err error) {
	var ignored []gitignore.Pattern
	var own []fs.FileInfo
	for _, dir := range []string{cl.StateDir, cl.CacheDir} {
		if info, err := os.Stat(dir); err == nil {
			own = append(own, info)
		}
	}
	bytes := int64(0)
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		parts := strings.Split(p, "/")
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrPermission):
			return nil
		case err != nil:
			return err
		case p == ".":
			ignored = append(ignored, ignoredIn(root, p)...)
			return nil
		case strings.HasPrefix(d.Name(), "."), gitignore.NewMatcher(ignored).Match(parts, d.IsDir()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.IsDir() && (!d.Type().IsRegular() || d.Name() == trust.Name):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil // it went away
		}
		if d.IsDir() {
			if slices.ContainsFunc(own, func(o fs.FileInfo) bool { return os.SameFile(o, info) }) {
				return fs.SkipDir
			}
			ignored = append(ignored, ignoredIn(root, p)...)
			return nil
		}
		files, bytes = append(files, p), bytes+info.Size()
		if bytes > mostFolderBytes || len(files) > mostFolderFiles {
			return errFolderTooLarge
		}
		return nil
	})
	return files, err
}

// ignoredIn reads the patterns of a folder's .gitignore.
func ignoredIn(root *os.Root, dir string) (all []gitignore.Pattern) {
	file, err := root.Open(path.Join(dir, ".gitignore"))
	if err != nil {
		return nil
	}
	defer file.Close()
	var domain []string
	if dir != "." {
		domain = strings.Split(dir, "/")
	}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if line := lines.Text(); strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			all = append(all, gitignore.ParsePattern(line, domain))
		}
	}
	return all
}

// bringing puts what a program needs into the workspace of its session.
type bringing struct {
	*cli
	tree *workspace.Tree
	got  brought
}

// folder brings the folder of a program. One that is too large stays outside, and a person
// is told.
func (b *bringing) folder(ctx context.Context, dir, program string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.New(fault.Unavailable, "the folder of the program cannot be read").WithCause(err)
	}
	defer root.Close()
	files, err := b.folderFiles(ctx, root)
	if errors.Is(err, errFolderTooLarge) {
		b.say("warning", fmt.Sprintf("the program's folder has more than %d files or %s: only the program is there, and files that its arguments name", mostFolderFiles, amount(mostFolderBytes)))
		b.say("hint", "move the program to a folder of its own, or say --bare")
		files, err = []string{program}, nil
	}
	if err != nil {
		return fmt.Errorf("reading the program's folder: %w", err)
	}
	if !slices.Contains(files, program) { // a dot file, or one that git ignores
		files = append(files, program)
	}
	for _, p := range files {
		if err := b.file(root, p, p); err != nil {
			return err
		}
	}
	return nil
}

// file brings one file of a folder; it follows no link that leads out of it.
func (b *bringing) file(root *os.Root, from, to string) error {
	file, err := root.Open(filepath.FromSlash(from))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil // the program will say so, if it needs it
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the file %.200q cannot be read", from).WithCause(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	put, err := b.tree.Put(to, file, info.Size())
	if err != nil {
		return fmt.Errorf("giving the program the file %.200q: %w", from, err)
	}
	b.got[put.Path] = put
	return nil
}

// arguments brings the files that arguments name, and gives the arguments as the program
// finds those files: by the same names below the current folder, and by their last name
// where they are elsewhere.
func (b *bringing) arguments(args []string) ([]string, error) {
	shown := slices.Clone(args)
	for i, arg := range args {
		info, err := os.Stat(arg)
		if err != nil || !info.Mode().IsRegular() {
			continue // it is not a file
		}
		dir, name := filepath.Split(arg)
		to := path.Clean(filepath.ToSlash(arg))
		if !filepath.IsLocal(arg) {
			if to = name; b.has(to) {
				to = fmt.Sprintf("%d-%s", i+1, name)
			}
			shown[i] = to
		}
		root, err := os.OpenRoot(filepath.Clean(dir)) // "" is the current folder
		if err != nil {
			return nil, fault.New(fault.Unavailable, "the file %.200q cannot be read", arg).WithCause(err)
		}
		err = b.file(root, name, to)
		_ = root.Close() // it was only read
		if err != nil {
			return nil, err
		}
	}
	return shown, nil
}

// ownChanges are the changes of a run without those that bringing files was.
func ownChanges(tree *workspace.Tree, all []session.Change, got brought) []session.Change {
	own := []session.Change{}
	for _, c := range all {
		if was, given := got[c.Path]; given {
			now, err := tree.Stat(c.Path)
			if err == nil && now.Size == was.Size && now.Modified.Equal(was.Modified) {
				continue
			}
			if c.Change == "added" {
				c.Change = "modified"
			}
		}
		own = append(own, c)
	}
	return own
}

func (b *bringing) has(p string) bool { _, ok := b.got[p]; return ok }

// written lists the files of a workspace that a run wrote: those that it was not given, and
// those that are no longer as they were.
func written(ctx context.Context, tree *workspace.Tree, got brought) (files []workspace.File, err error) {
	_, err = tree.Walk(ctx, "", func(f workspace.File) error {
		was, given := got[f.Path]
		own := strings.HasPrefix(f.Path, session.Shown+"/") || slices.Contains(strings.Split(f.Path, "/"), "__pycache__")
		if !own && (!given || was.Size != f.Size || !was.Modified.Equal(f.Modified)) {
			files = append(files, f)
		}
		return nil
	})
	return files, err
}
