package checkpoint

import (
	"context"
	"io"
	"strings"
	"unicode/utf8"

	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// Note is what a checkpoint says of the call that it was made after.
type Note struct {
	Cause, Label              string // history's
	Execution, Language, Code string // of an execution
	Always                    bool   // also when nothing changed
	// MachineMoved says that the session's machine is not what it was at head any more,
	// and Save saves what it is; nil: it is not saved.
	MachineMoved bool
	Save         SaveMachine
	// Resting says that this is the session at rest, and no step of its.
	Resting bool
	// Waiting is the run that it is made in the middle of, and Content what is needed to
	// go on with that. Over says that what waited at head does not any more; else that
	// still does.
	Waiting *history.Waiting
	Content []byte
	Over    bool
	// Output is what the execution was and did; nil: it is not kept.
	Output *Output
}

// Snapshot is a live interpreter's sandbox.Snapshotter.Snapshot. It may write the whole
// state where that was not asked for.
type Snapshot func(ctx context.Context, w io.Writer, o sandbox.SnapshotOptions) (sandbox.Snapshot, error)

// SaveMachine is a sandbox.Keeper's, which calls still once, while nothing in the
// machine runs. held is what its interpreters hold, by their runtimes; nil: one did
// not say.
type SaveMachine func(ctx context.Context, w io.Writer, still func() error) (state []byte, held map[string]*sandbox.Inspection, err error)

// Begin makes a new session's first checkpoint: of the files that are there, or, where
// from is not nil, of the state of another one's, whose files they become. Then, when
// it is set, is called once they are there, while the disk is waited for.
func (r *Repo) Begin(ctx context.Context, cause string, from *history.Manifest, then func()) error {
	if r.c.Ephemeral {
		return nil
	}
	d, err := r.draft(ctx, cause)
	if err != nil {
		return err
	}
	defer d.close()
	if from == nil {
		err = d.capture()
	} else {
		err = d.startFrom(from)
	}
	if err != nil {
		return err
	}
	if then != nil {
		then()
	}
	return d.persist(ctx)
}

// Commit makes a checkpoint of the files and of these interpreters, by their runtimes;
// nil stands for one that is gone, and others are what they were at head. Where
// nothing changed there is none. It gives what changed of the files that are shown,
// also after an error; then what is live is not what the head says, and its next
// Snapshots have to be whole.
func (r *Repo) Commit(ctx context.Context, n Note, live map[string]Snapshot) ([]workspace.Change, error) {
	if r.c.Ephemeral {
		return nil, nil
	}
	d, err := r.draft(ctx, n.Cause)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.captureWith(ctx, n); err != nil {
		return nil, err
	}
	for runtime, take := range live {
		if take != nil {
			err = d.snapshot(ctx, runtime, take)
		} else if _, there := d.next.Interpreters[runtime]; there {
			delete(d.next.Interpreters, runtime)
			d.changed = true
		}
		if err != nil {
			return d.files, err
		}
	}
	if err := d.wait(n); err != nil {
		return d.files, err
	}
	if err := d.takeOutput(n); err != nil {
		return d.files, err
	}
	if !d.changed && !n.Always {
		r.lists = d.lists
		return d.files, nil
	}
	if n.Resting {
		d.captureUnchanged()
	}
	d.next.Label, d.next.Execution, d.next.Language, d.next.Code = n.Label, n.Execution, n.Language, firstLine(n.Code)
	return d.files, d.persist(ctx)
}

// CommitPaths makes a checkpoint of files of the shown folder that were written from
// outside of programs. Interpreters and other files stay as at head.
func (r *Repo) CommitPaths(ctx context.Context, paths []string) error {
	if r.c.Ephemeral {
		return nil
	}
	d, err := r.draft(ctx, history.CauseFiles)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.capturePaths(paths); err != nil || !d.changed {
		return err
	}
	return d.persist(ctx)
}

// firstLine is what a list shows of a program.
func firstLine(code string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
	line = strings.TrimSpace(line)
	const most = 80
	if utf8.RuneCountInString(line) > most {
		line = string([]rune(line)[:most-1]) + "…"
	}
	return line
}
