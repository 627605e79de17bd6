package cli

import (
	"context"
	"strings"

	"paddock/internal/app"
	"paddock/internal/pkgproxy"
	"paddock/internal/session"
)

// installing gives what puts a program's packages into its session before it runs: those of
// --with, and those that a Python program names in its inline metadata (PEP 723); nil: it
// needs none.
func (cmd runCommand) installing(ctx context.Context, a *app.App, f runFlags, req session.Request) (func(session.ID) error, error) {
	calls := splitPackages(f.with)
	python := req.Language == "python"
	var script pkgproxy.Script
	if python {
		var err error
		if script, err = pkgproxy.ReadScript(req.Code); err != nil {
			return nil, err
		}
		calls = append(calls, script.Requires...)
	}
	if len(calls) == 0 && script.Python == "" {
		return nil, nil
	}
	return func(id session.ID) error {
		info, err := a.Sessions.Info(session.Local, id)
		if err != nil {
			return unknownSession(err)
		}
		if info.Isolation == "wasm" {
			if err := script.Runs(pythonOf(ctx, a)); err != nil {
				return err
			}
		}
		if len(calls) == 0 {
			return nil
		}
		if err := cmd.prepare(ctx, a.Backends.Named(info.Isolation)); err != nil {
			return err
		}
		for _, what := range byKind(calls, python) {
			res, err := a.Install(ctx, session.Local, id, what)
			if err != nil {
				return err
			}
			if terminal(cmd.stderr) && !res.Already {
				cmd.say("installed", listPackages(res.Installed))
			}
			for _, note := range res.Notes {
				cmd.say("note", note)
			}
		}
		return nil
	}, nil
}

// pythonOf is the version of the Python in WebAssembly; empty: there is none.
func pythonOf(ctx context.Context, a *app.App) string {
	for _, b := range a.Backends.Named("wasm") {
		for _, r := range b.Probe(ctx).Runtimes {
			if r.Name == "python" {
				return r.Version
			}
		}
	}
	return ""
}

// byKind makes one installation of each kind of packages: npm's are named as such. In a
// Python program's session the others are Python's, whatever the session's language is.
func byKind(calls []string, python bool) (all []string) {
	var plain, npm []string
	for _, one := range calls {
		switch {
		case strings.HasPrefix(one, "npm:"):
			npm = append(npm, one)
		case python && !strings.HasPrefix(one, "pypi:"):
			plain = append(plain, "pypi:"+one)
		default:
			plain = append(plain, one)
		}
	}
	for _, lines := range [][]string{plain, npm} {
		if len(lines) > 0 {
			all = append(all, strings.Join(lines, "\n"))
		}
	}
	return all
}

// splitPackages takes lists of packages apart at their commas. One in brackets, or before an
// operator, belongs to a requirement: httpx[http2,socks]>=0.27,<1.
func splitPackages(lists []string) (all []string) {
	for _, list := range lists {
		start, depth := 0, 0
		for i, r := range list {
			switch r {
			case '[', '(':
				depth++
			case ']', ')':
				depth--
			case ',':
				rest := strings.TrimLeft(list[i+1:], " ")
				if depth > 0 || rest == "" || strings.ContainsRune("<>=!~^", rune(rest[0])) {
					continue
				}
				all = append(all, strings.TrimSpace(list[start:i]))
				start = i + 1
			}
		}
		all = append(all, strings.Trim(list[start:], " ,"))
	}
	return all
}

// listPackages names packages with their versions.
func listPackages(all []pkgproxy.Installed) string {
	var names []string
	for _, one := range all {
		names = append(names, one.Name+" "+one.Version)
	}
	return strings.Join(names, ", ")
}
