package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// command is a program of the machine that installs something.
type command struct {
	what  string // for people
	args  []string
	stdin string
}

// inMachine has the pip or npm of a machine install packages into the session's files:
// below ~/.local of /workspace, or in /workspace/node_modules.
func (p place) inMachine(ctx context.Context, w wishes) (Result, error) {
	if w.kind == pkgproxy.NPM {
		return p.npm(ctx, w)
	}
	var lines strings.Builder
	for _, r := range w.requirements {
		lines.WriteString(r.String())
		for _, h := range r.Hashes {
			lines.WriteString(" --hash=" + h)
		}
		lines.WriteByte('\n')
	}
	args := append([]string{"python3", "-c", wholeOrNothing}, p.pipOfMachine()...)
	args = append(args, "install", "--user", "--quiet", "--no-input", "--no-color", "--disable-pip-version-check", "--progress-bar", "off",
		"--no-warn-script-location", "--report", "-", "-r", "/dev/stdin")
	if w.upgrade {
		args = append(args, "--upgrade", "--upgrade-strategy", "only-if-needed")
	}
	res, err := p.run(ctx, command{"pip", args, lines.String()})
	if err != nil {
		return Result{}, err
	}
	if strings.Contains(res.Stderr, "No module named pip") {
		return Result{}, errNoProgram("pip")
	}
	if res.Exit.Code != 0 {
		return Result{}, p.explainPip(ctx, res.Stdout+"\n"+res.Stderr)
	}
	var report struct {
		Install []struct{ Metadata pkgproxy.Installed }
	}
	if err := json.Unmarshal([]byte(res.Stdout), &report); err != nil {
		return Result{}, fault.New(fault.Unavailable, "what pip says cannot be read").WithHint("list what is there with python3 -m pip list").WithCause(err)
	}
	out := Result{Already: len(report.Install) == 0}
	for _, one := range report.Install {
		out.Installed = append(out.Installed, one.Metadata)
	}
	out.Notes = p.found(ctx)
	return out, nil
}

// wholeOrNothing runs Python with its arguments, and removes the files that came below the
// session's folder where that fails: pip leaves what it had written of a package that it
// then refuses.
const wholeOrNothing = `import os, site, subprocess, sys
base = site.getuserbase()
def files():
    return {os.path.join(folder, name) for folder, _, names in os.walk(base) for name in names}
before = files()
code = subprocess.call([sys.executable, *sys.argv[2:]])
if code:
    for name in files() - before:
        os.remove(name)
        try:
            os.removedirs(os.path.dirname(name))
        except OSError:
            pass
sys.exit(code)`

// ownPip runs pip with what is installed below the session's folder alone in sight.
const ownPip = `import sys, pip, pip._internal.cli.main as main, site
kept = site.getusersitepackages()
hidden = tuple(f for f in site.getsitepackages() if f != kept)
sys.path = [f for f in sys.path if f not in hidden]
sys.exit(main.main(sys.argv[1:]))`

// pipOfMachine is what runs the pip of the session's machine.
func (p place) pipOfMachine() []string {
	image := ""
	if m := p.info.Settings.Machine; m != nil {
		image = m.Image
	}
	if p.config.OnHost != nil && p.config.OnHost(image) {
		return []string{"python3", "-c", ownPip}
	}
	return []string{"python3", "-m", "pip"}
}

// look adds the user's folder of packages to where a live interpreter finds modules: a
// folder that was not there when it began would else come last, after what the image or
// the host has of the same name.
const look = `exec("""
import importlib, site, sys
mine, others = site.getusersitepackages(), site.getsitepackages()
site.addsitedir(mine)
if mine in sys.path:
    sys.path.remove(mine)
    sys.path.insert(min((k for k, folder in enumerate(sys.path) if folder in others), default=len(sys.path)), mine)
importlib.invalidate_caches()
""", {})`

// found has the live interpreter find what was installed. No variable of the program's
// changes.
func (p place) found(ctx context.Context) (notes []string) {
	now, err := p.config.Sessions.Info(p.info.Owner, p.info.ID)
	if err == nil && now.Waiting == nil {
		_, err = p.config.Sessions.Execute(ctx, p.info.Owner, p.info.ID, session.Request{Code: look, Language: "python", Name: "packages"})
	}
	if err != nil || now.Waiting != nil {
		return []string{"a Python interpreter that lives already may need import site; site.addsitedir(site.getusersitepackages())"}
	}
	return nil
}

// explainPip makes a fault of what a machine's pip printed.
func (p place) explainPip(ctx context.Context, printed string) error {
	if full(printed) {
		return errFull
	}
	err := p.config.Packages.Explain(ctx, printed)
	if kind := fault.KindOf(err); kind == fault.NotFound || kind == fault.Denied || kind == fault.Unavailable {
		return err
	}
	return fault.New(fault.Unavailable, "pip could not install it: %.500s", lastError(printed)).WithHint("loosen the versions, or see what pip says in a program")
}

func lastError(printed string) string {
	last := "it ended with an error"
	for line := range strings.Lines(printed) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "ERROR: "); ok {
			last = text
		}
	}
	return last
}

// npm has the machine's npm install packages.
func (p place) npm(ctx context.Context, w wishes) (Result, error) {
	before, err := p.locked()
	if err != nil {
		return Result{}, err
	}
	wanted := slices.Clone(w.lines)
	if w.upgrade {
		for k, line := range wanted {
			if _, spec, err := pkgproxy.ParseNPM(line); err == nil && spec == "" {
				wanted[k] = line + "@latest"
			}
		}
	}
	args := append([]string{"npm", "install", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error", "--prefix", "/workspace", "--"}, wanted...)
	res, err := p.run(ctx, command{"npm", args, ""})
	if err != nil {
		return Result{}, err
	}
	if res.Exit.Code != 0 {
		return Result{}, explainNPM(res.Stdout + "\n" + res.Stderr)
	}
	after, err := p.locked()
	if err != nil {
		return Result{}, err
	}
	out := Result{}
	for _, one := range after {
		if !slices.Contains(before, one) {
			out.Installed = append(out.Installed, one)
		}
	}
	out.Already = len(out.Installed) == 0
	return out, nil
}

// explainNPM makes a fault of what npm printed.
func explainNPM(printed string) error {
	if full(printed) {
		return errFull
	}
	var said []string
	kind := fault.Unavailable
	for line := range strings.Lines(printed) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "npm error ")
		if !ok {
			text, ok = strings.CutPrefix(strings.TrimSpace(line), "npm ERR! ")
		}
		if !ok || strings.HasPrefix(text, "A complete log") {
			continue
		}
		switch strings.TrimSpace(text) {
		case "code E404", "code ETARGET":
			kind = fault.NotFound
		case "code E403":
			kind = fault.Denied
		}
		said = append(said, strings.TrimSpace(text))
	}
	return fault.New(kind, "npm could not install it: %.500s", cmp.Or(strings.Join(said, "; "), "it ended with an error")).WithHint("check the name and the version")
}

// run runs a program that installs something to its end. What it ends with is the
// caller's to look at.
func (p place) run(ctx context.Context, c command) (session.Result, error) {
	res, err := p.config.Sessions.Execute(ctx, p.info.Owner, p.info.ID, session.Request{
		Command: c.args, Stdin: strings.NewReader(c.stdin), Timeout: p.config.Timeout,
		Limits: sandbox.RunLimits{StdoutBytes: 16 << 20, StderrBytes: 1 << 20},
	})
	switch {
	case ctx.Err() != nil:
		return res, context.Cause(ctx)
	case err != nil:
		return res, fmt.Errorf("running %s: %w", c.what, err)
	case res.Exit.Code == 127 || res.Exit.Code == 126:
		return res, errNoProgram(c.what)
	}
	return res, ended(res.Exit.Cause)
}

func errNoProgram(name string) error {
	return fault.New(fault.Unsupported, "the image of this session has no %s", name).WithHint("create a session with an image that has it, or one with isolation %q", wasm)
}
