package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/session"
	"paddock/internal/workspace"
)

// copyCommand is paddock cp.
type copyCommand struct{ *cli }

func (cmd copyCommand) command() *cobra.Command {
	var principal string
	c := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files into a session and out of it",
		Long: `Copies a file or a folder between this machine and a session. One of FROM and TO is
SESSION:PATH, with a path below /workspace; SESSION is an id, its beginning or a name.
Without a PATH the file goes into /workspace under its own name, or all files come out.
Links are not copied. TO may be - for stdout.

Exit codes: 0 done, 1 failed, or no such session or file, 2 wrong usage.`,
		Example: `  paddock cp data.csv report:
  paddock cp report:charts/sales.png .`,
		Args: count(2, 2, "a FROM and a TO"),
		RunE: func(c *cobra.Command, args []string) error { return cmd.copy(c, principal, args[0], args[1]) },
	}
	principalFlag(c, &principal)
	return c
}

// placeOf tells a place in a session from one on this machine, which may begin with a drive.
func placeOf(text string) (sessionText, file string, ok bool) {
	before, after, found := strings.Cut(text, ":")
	if !found || len(before) < 2 || strings.ContainsAny(before, `/\.`) {
		return "", text, false
	}
	after = strings.TrimPrefix(after, session.Workspace)
	return before, strings.TrimPrefix(after, "/"), true
}

func (cmd copyCommand) copy(c *cobra.Command, principal, from, to string) error {
	fromSession, fromPath, out := placeOf(from)
	toSession, toPath, in := placeOf(to)
	if out == in {
		return usage("one of FROM and TO is SESSION:PATH").WithHint("paddock cp data.csv SESSION: copies a file in, paddock cp SESSION:data.csv . out")
	}
	return cmd.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owners, err := cmd.owners(principal)
		if err != nil {
			return err
		}
		if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
			return err
		}
		o, id, err := chosen(m, owners, fromSession+toSession)
		if err != nil {
			return err
		}
		tree, done, err := m.Files(o, id)
		if err != nil {
			return err
		}
		defer done()
		if in {
			return cmd.copyIn(tree, from, toPath)
		}
		return cmd.copyFrom(ctx, tree, fromPath, to)
	})
}

// copyIn copies a file or a folder of this machine into a workspace.
func (cmd copyCommand) copyIn(tree *workspace.Tree, from, to string) error {
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "there is no file %q", from)
	}
	if err != nil {
		return fmt.Errorf("reading what is to be copied: %w", err)
	}
	if to == "" || strings.HasSuffix(to, "/") {
		absolute, err := filepath.Abs(from)
		if err != nil {
			return fmt.Errorf("finding the current folder: %w", err)
		}
		to = path.Join(to, filepath.Base(absolute))
	}
	if !info.IsDir() {
		return receive(tree, to, func() (fs.File, error) { return os.Open(from) })
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		return fmt.Errorf("reading what is to be copied: %w", err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return receive(tree, path.Join(to, p), func() (fs.File, error) { return root.Open(filepath.FromSlash(p)) })
	})
}

// receive puts a file of this machine into a workspace, and keeps it.
func receive(tree *workspace.Tree, to string, open func() (fs.File, error)) error {
	file, err := open()
	if err != nil {
		return fmt.Errorf("reading what is to be copied: %w", err)
	}
	defer file.Close()
	_, _, err = tree.Receive(to, file, -1, nil)
	return err
}

// copyFrom copies a file or a folder of a workspace to this machine.
func (cmd copyCommand) copyFrom(ctx context.Context, tree *workspace.Tree, from, to string) error {
	if from != "" {
		if _, err := tree.Stat(from); err == nil {
			return cmd.copyOne(tree, from, to)
		} else if to == standard {
			return err
		}
	}
	if to == standard {
		return usage("a folder is nothing for stdout").WithHint("name a folder of this machine")
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() && from != "" {
		to = filepath.Join(to, path.Base(from))
	}
	var root *os.Root // once there is a file
	defer func() {
		if root != nil {
			_ = root.Close() // all files in it are closed
		}
	}()
	_, err := tree.Walk(ctx, "", func(f workspace.File) error {
		rest, below := f.Path, true
		if from != "" {
			rest, below = strings.CutPrefix(f.Path, strings.TrimSuffix(from, "/")+"/")
		}
		if !below {
			return nil
		}
		if root == nil {
			if err := os.MkdirAll(to, 0o755); err != nil {
				return unwritable(to, err, nil)
			}
			opened, err := os.OpenRoot(to)
			if err != nil {
				return unwritable(to, err, nil)
			}
			root = opened
		}
		return copyFile(tree, f.Path, root, filepath.FromSlash(rest))
	})
	if err == nil && root == nil && from != "" {
		_, err = tree.Stat(from) // says that there is no such file
	}
	return err
}

// copyOne copies a single file out, to stdout or under the name that was given.
func (cmd copyCommand) copyOne(tree *workspace.Tree, from, to string) error {
	if to == standard {
		in, _, err := tree.OpenFile(from)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(cmd.stdout, in)
		return err
	}
	dir, name := filepath.Split(to)
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		dir, name = to, path.Base(from)
	}
	root, err := os.OpenRoot(filepath.Clean(dir)) // "" is the current folder
	if err != nil {
		return unwritable(to, err, nil)
	}
	defer root.Close()
	if err := copyFile(tree, from, root, name); err != nil {
		return unwritable(to, nil, err)
	}
	return nil
}
