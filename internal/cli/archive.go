package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
)

// standard is the name of stdin or stdout in place of a file's.
const standard = "-"

func (p *program) exportCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use: "export ID [FILE|-]", Short: "Write a session as one archive",
		Long: `Writes a session, with its variables and files as they are now, as one archive
that paddock session import takes, here or on another machine. It goes to
FILE, which is the user's alone and is there whole or not at all, or to stdout.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Example: `  paddock session export s-… work.paddock
  paddock session export s-… | ssh elsewhere paddock session import -`,
		Args: count(1, 2, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			file := standard
			if t.id = session.ID(args[0]); len(args) > 1 {
				file = args[1]
			}
			return p.exportSession(c, &t, file)
		},
	}
	principalFlag(c, &t.principal)
	return c
}

func (p *program) exportSession(c *cobra.Command, t *target, file string) error {
	if file == standard && person(p.stdout) {
		return usage("an archive is nothing for a terminal").WithHint("name a FILE, or send stdout to one")
	}
	return p.withSession(c, t, func(ctx context.Context, m *session.Manager, o session.Owner) error {
		export := func(w io.Writer) error { return m.Export(ctx, o, t.id, w) }
		if file != standard {
			return writeWhole(file, export)
		}
		out := &sink{to: p.stdout}
		if err := export(out); out.err != nil || err != nil {
			return unwritable("stdout", out.err, err)
		}
		return nil
	})
}

// person tells whether somebody types or looks at a stream.
func person(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok || !terminal(f) {
		return false
	}
	here, err := f.Stat()
	nowhere, other := os.Stat(os.DevNull)
	return err != nil || other != nil || !os.SameFile(here, nowhere)
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
	temp, err := os.CreateTemp(filepath.Dir(place), ".paddock-export-*")
	if err != nil {
		return unwritable(file, err, nil)
	}
	defer os.Remove(temp.Name()) // it is there after an error alone
	out := &sink{to: temp}
	err = write(out)
	if out.err == nil && err == nil {
		out.err = temp.Sync()
	}
	if closed := temp.Close(); out.err == nil && err == nil {
		out.err = closed
	}
	if out.err == nil && err == nil {
		out.err = os.Rename(temp.Name(), place)
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

func (p *program) importCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use: "import FILE|-", Short: "Make a session of an archive",
		Long: `Makes a session of an archive that paddock session export wrote, from FILE or from
stdin, and prints its id. An archive that is damaged, or that this paddock cannot
go on with, leaves nothing behind.

Exit codes: 0 done, 1 failed or there is a session of that id, 2 wrong usage.`,
		Args: count(1, 1, "the file of an archive, or -"),
		RunE: func(c *cobra.Command, args []string) error { return p.importSession(c, t, args[0]) },
	}
	c.Flags().StringVar((*string)(&t.id), "id", "", "give it the `ID`; else a new one")
	jsonFlag(c, &t.json)
	c.Flags().StringVar(&t.principal, "principal", "", "make it a session of the principal `ID`, or of the token of that name")
	return c
}

func (p *program) importSession(c *cobra.Command, t target, file string) error {
	in, err := p.archive(file)
	if err != nil {
		return err
	}
	defer in.Close()
	return p.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owner, err := p.newOwner(t.principal)
		if err != nil {
			return err
		}
		if err := auth.CheckFolder(p.StateDir); err != nil {
			return err
		}
		info, notice, err := m.Import(ctx, owner, t.id, in)
		if err != nil {
			return err
		}
		if t.json {
			return p.printJSON(struct {
				sessionJSON
				Notice string `json:"notice,omitempty"`
			}{sessionOf(info), notice})
		}
		if notice != "" {
			p.say("notice", notice)
		}
		_, err = fmt.Fprintln(p.stdout, info.ID)
		return err
	})
}

// archive opens an archive to read.
func (p *program) archive(file string) (io.ReadCloser, error) {
	if file == standard {
		if person(p.stdin) {
			return nil, usage("an archive cannot be typed").WithHint("name a FILE, or send one to stdin")
		}
		return io.NopCloser(p.stdin), nil
	}
	in, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "there is no file %q", file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	if info, err := in.Stat(); err == nil && info.IsDir() {
		_ = in.Close() // it was only opened
		return nil, fault.New(fault.Invalid, "%s is a folder and no archive", file).WithHint("paddock session export writes archives")
	}
	return in, nil
}

// newOwner is whose a new session is to be: the user's own, where no principal
// was named. A name has to be that of one token that is good.
func (p *program) newOwner(principal string) (session.Owner, error) {
	switch {
	case principal == "":
		return session.Local, nil
	case principal == auth.Local, strings.Contains(principal, ":"): // no token is called so
		return session.Owner(principal), nil
	}
	tokens, err := auth.OpenTokens(p.StateDir).List()
	if err != nil {
		return "", p.explainTokens(err)
	}
	for _, t := range tokens {
		if t.Revoked.IsZero() && (t.Name == principal || t.ID == principal) {
			return session.Owner(auth.OfToken + t.ID), nil
		}
	}
	return "", fault.New(fault.NotFound, "there is no token %q", principal).WithHint("paddock token ls lists those that there are; other principals are named by their id")
}

func (p *program) collectCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "gc", Short: "Give back what no session needs any more",
		Long: `Removes the sessions of all principals that have expired, checkpoints that are too
many, and what no checkpoint refers to any more. It is done beside running
processes, and they do the same from time to time.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withSessions(c, func(ctx context.Context, m *session.Manager) error {
				if err := auth.CheckFolder(p.StateDir); err != nil {
					return err
				}
				sum, err := m.Collect(ctx)
				if err != nil {
					return fmt.Errorf("collecting: %w", err)
				}
				if asJSON {
					return p.printJSON(sum)
				}
				return p.printTable([][]string{
					{"sessions", fmt.Sprint(sum.Sessions)}, {"checkpoints", fmt.Sprint(sum.Checkpoints)},
					{"blobs", fmt.Sprint(sum.Blobs)}, {"given back", amount(sum.Bytes)},
				})
			})
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
