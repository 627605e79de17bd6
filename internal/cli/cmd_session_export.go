package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
	"paddock/internal/notebook"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// standard is the name of stdin or stdout in place of a file's.
const standard = "-"

func (cmd sessionCommand) exportCommand() *cobra.Command {
	var t target
	var format string
	c := &cobra.Command{
		Use: "export ID [FILE|-]", Short: "Write a session as one archive",
		Long: `Writes a session, with its variables and files as they are now, as one archive
that paddock session import takes, here or on another machine. It goes to
FILE, which is the user's alone and is there whole or not at all, or to stdout. With
--format zip or tar it is an archive of the files alone, for other programs, and with
--format ipynb a Jupyter notebook of what was executed, with what that printed and
displayed, also of what was undone.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Example: `  paddock session export s-… work.paddock
  paddock session export s-… | ssh elsewhere paddock session import -
  paddock session export s-… --format ipynb work.ipynb`,
		Args: count(1, 2, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			file := standard
			if t.id = session.ID(args[0]); len(args) > 1 {
				file = args[1]
			}
			return cmd.exportSession(c, &t, file, format)
		},
	}
	c.Flags().StringVar(&format, "format", "paddock", "the `FORMAT`: paddock, zip, tar or ipynb")
	principalFlag(c, &t.principal)
	return c
}

func (cmd sessionCommand) exportSession(c *cobra.Command, t *target, file, format string) error {
	if format != "paddock" && format != "ipynb" && formats[format] == nil {
		return usage("there is no format %.100q", format).WithHint("name one of paddock, zip, tar, ipynb")
	}
	if file == standard && format != "ipynb" && person(cmd.stdout) {
		return usage("an archive is nothing for a terminal").WithHint("name a FILE, or send stdout to one")
	}
	return cmd.withSession(c, t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
		export := func(w io.Writer) error { return m.Export(ctx, o, t.id, w) }
		switch format {
		case "paddock":
		case "ipynb":
			all, err := m.Executions(o, t.id)
			if err != nil {
				return err
			}
			export = func(w io.Writer) error {
				return notebook.Write(w, all, func(e session.Execution) ([]sandbox.Display, error) { return m.Displays(o, t.id, e) })
			}
		default:
			export = func(w io.Writer) error { return packFiles(ctx, m, o, t.id, format, w) }
		}
		if file != standard {
			return writeWhole(file, export)
		}
		out := &sink{to: cmd.stdout}
		if err := export(out); out.err != nil || err != nil {
			return unwritable("stdout", out.err, err)
		}
		return nil
	})
}

// writeWhole has write fill a file that is its user's alone. Until it has been
// filled and is on the disk, what the file held before stays.
func writeWhole(file string, write func(io.Writer) error) error {
	place, err := filepath.EvalSymlinks(file)
	if err != nil {
		place = file
	}
	if info, err := os.Stat(place); err == nil && !info.Mode().IsRegular() {
		return fault.New(fault.Invalid, "%s is not an ordinary file", file).WithHint("give the name of one, or - and redirect stdout")
	}
	fresh, err := atomicfile.Create(place, atomicfile.Options{Durable: true, Prefix: ".paddock-export-"})
	if err != nil {
		return unwritable(file, err, nil)
	}
	defer fresh.Discard()
	out := &sink{to: fresh}
	err = write(out)
	if out.err == nil && err == nil {
		out.err = fresh.Commit()
	}
	if out.err != nil || err != nil {
		return unwritable(file, out.err, err)
	}
	return nil
}

// unwritable is why a file could not be written: its own error, or else that of
// what was to be written.
func unwritable(file string, own, other error) error {
	if own == nil {
		return other
	}
	if errors.Is(own, syscall.ENOSPC) || errors.Is(own, syscall.EDQUOT) {
		return fault.New(fault.Exhausted, "there is no room for %s", file).WithHint("free some, or write it elsewhere").WithCause(own)
	}
	reason := own
	var path *fs.PathError
	var link *os.LinkError
	switch { // without the temporary file's name
	case errors.As(own, &path):
		reason = path.Err
	case errors.As(own, &link):
		reason = link.Err
	}
	return fault.New(fault.Unavailable, "%s cannot be written: %v", file, reason).WithCause(own)
}
