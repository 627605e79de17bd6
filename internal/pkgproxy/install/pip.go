package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/workspace"
)

// Where pip is in the guest.
const guestPip = "/lib/python/pip.zip"

// pythonFolder has the packages of a session's Python, in its workspace.
const pythonFolder = ".paddock/python"

// reportBytes is how much pip's program may print.
const reportBytes = 4 << 20

// endTime bounds what is done after an installation, however it ended.
const endTime = time.Minute

// pip installs Python packages in a WebAssembly session.
func (p place) pip(ctx context.Context, w wishes) (res Result, err error) {
	program, err := pkgproxy.Python(pkgproxy.PythonInstall{Requirements: w.requirements, Upgrade: w.upgrade, Pip: guestPip})
	if err != nil {
		return res, err
	}
	tree, done, err := p.config.Sessions.Files(p.info.Owner, p.info.ID)
	if err != nil {
		return res, err
	}
	defer done()
	apart, end, err := p.apart(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, end()) }()
	inside, left, err := p.config.Sessions.Files(p.info.Owner, apart)
	if err != nil {
		return res, err
	}
	defer left()
	if _, err := carry(ctx, tree, inside, nil); err != nil {
		return res, fmt.Errorf("looking at what is installed: %w", err)
	}
	report, err := p.runPip(ctx, apart, program)
	if err != nil {
		return res, err
	}
	if len(report.Installed) == 0 {
		return Result{Already: true}, nil
	}
	replaced, err := carry(ctx, inside, tree, ctx.Err)
	if err != nil {
		return res, fmt.Errorf("putting the packages into the session: %w", err)
	}
	res = Result{Installed: report.Installed}
	if replaced {
		res.Notes = append(res.Notes, "what was imported before stays as it was in this interpreter: importlib.reload, or reset_workspace")
	}
	return res, nil
}

// apart makes the session that pip runs in, which reaches nothing but the front, and ends
// with it.
func (p place) apart(ctx context.Context) (id session.ID, end func() error, err error) {
	none := []string{}
	made, err := p.config.Sessions.Create(ctx, p.info.Owner, "", session.Settings{
		Language: "python", Isolation: wasm, Name: "packages for " + string(p.info.ID), Ephemeral: true, TTL: p.config.Timeout + endTime,
		Servers: &none, Network: &none, Secrets: &none,
	})
	if err != nil {
		return "", nil, fmt.Errorf("making a place for pip: %w", err)
	}
	return made.ID, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		if err := p.config.Sessions.Destroy(ctx, p.info.Owner, made.ID); err != nil && fault.KindOf(err) != fault.NotFound {
			return fmt.Errorf("removing pip's session: %w", err)
		}
		return nil
	}, nil
}

// runPip runs pip to its end, and gives what it has installed.
func (p place) runPip(ctx context.Context, apart session.ID, program string) (r pkgproxy.PythonReport, err error) {
	res, err := p.config.Sessions.Execute(ctx, p.info.Owner, apart, session.Request{
		Code: program, Language: "python", Name: "pip", Timeout: p.config.Timeout,
		Limits: sandbox.RunLimits{Fuel: p.config.Fuel, StdoutBytes: reportBytes, StderrBytes: 1 << 20},
	})
	switch {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err != nil:
		return r, fmt.Errorf("running pip: %w", err)
	}
	if err := ended(res.Exit.Cause); err != nil {
		return r, err
	}
	if r, err = pkgproxy.ReadPythonReport(res.Stdout); err != nil {
		p.config.Log.WarnContext(ctx, "pip did not come to its end", "session", p.info.ID, "cause", fault.CauseOf(err))
		return r, err
	}
	if r.Status == 0 {
		return r, nil
	}
	if full(r.Printed) {
		return r, errFull
	}
	return r, p.config.Packages.Explain(ctx, r.Printed)
}

var errFull = fault.New(fault.Exhausted, "there is no room for the packages within the session's disk limit").WithHint("delete files that are no longer needed, or install fewer packages")

// full tells whether an installation ended because a disk, or its limit, was full.
func full(printed string) bool {
	for _, said := range []string{"No space left", "Disk quota exceeded", "[Errno 28]", "[Errno 51]", "ENOSPC", "EDQUOT"} {
		if strings.Contains(printed, said) {
			return true
		}
	}
	return false
}

// ended makes a fault of how an installation was stopped.
func ended(cause sandbox.Cause) error {
	switch cause {
	case sandbox.Exited:
		return nil
	case sandbox.OutOfMemory:
		return fault.New(fault.Exhausted, "there is not enough memory to install this").WithHint("install fewer packages at once, or ask the operator to raise sessions.max_memory_mb")
	case sandbox.OutOfSpace:
		return errFull
	case sandbox.TimedOut:
		return errTooLong
	case sandbox.Cancelled:
		return fault.New(fault.Cancelled, "the installation was cancelled")
	}
	return fault.New(fault.Unavailable, "the installation did not come to its end (%s)", cause).WithHint("try again")
}

// carry makes the Python packages of a tree what those of another are, in one change;
// allow (nil: always) is asked before. It tells whether that changed or removed a file.
func carry(ctx context.Context, from, to *workspace.Tree, allow func() error) (replaced bool, err error) {
	stage, err := to.Stage()
	if err != nil {
		return false, err
	}
	defer stage.Close()
	wanted := map[string]bool{}
	_, err = from.Walk(ctx, pythonFolder+"/**", func(f workspace.File) error {
		wanted[f.Path] = true
		same, there, err := alike(from, to, f)
		if err != nil || same {
			return err
		}
		replaced = replaced || there
		src, _, err := from.OpenFile(f.Path)
		if err != nil {
			return err
		}
		defer src.Close()
		_, err = stage.Add(f.Path, src, 0)
		return err
	})
	if err != nil {
		return false, err
	}
	_, err = to.Walk(ctx, pythonFolder+"/**", func(f workspace.File) error {
		if wanted[f.Path] {
			return nil
		}
		replaced = true
		return stage.Remove(f.Path)
	})
	if err != nil {
		return false, err
	}
	return replaced, stage.Commit(allow)
}

// alike tells whether a file has the same content in both trees, and whether it is there.
func alike(from, to *workspace.Tree, f workspace.File) (same, there bool, err error) {
	other, statErr := to.Stat(f.Path)
	if statErr != nil { // what else is in its way is seen when it is put there
		return false, false, nil
	}
	if other.Size != f.Size {
		return false, true, nil
	}
	a, _, err := from.OpenFile(f.Path)
	if err != nil {
		return false, true, err
	}
	defer a.Close()
	b, _, err := to.OpenFile(f.Path)
	if err != nil {
		return false, true, err
	}
	defer b.Close()
	one, two := sha256.New(), sha256.New()
	if _, err := io.Copy(one, a); err != nil {
		return false, true, err
	}
	if _, err := io.Copy(two, b); err != nil {
		return false, true, err
	}
	return bytes.Equal(one.Sum(nil), two.Sum(nil)), true, nil
}
