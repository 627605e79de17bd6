package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
	"paddock/internal/pkgproxy/install"
	"paddock/internal/session"
)

// maxPackageText bounds what install_package is asked for, in characters.
const maxPackageText = 20_000

// maxPackages bounds the packages that a result lists.
const maxPackages = 500

func (s *Server) installTool() tool {
	t := define("install_package", "Install package", "Install Python or npm packages.", hints{idempotent: true},
		func(in *packageInput) []param {
			return []param{
				text("package_name", &in.name, 0, maxPackageText, "attrs==25.3, npm:zod@3, -r requirements.txt").must(),
				sessionID(&in.session, aboutSession),
			}
		}, installPackage)
	return t.open()
}

type packageInput struct {
	name    string
	session session.ID
}

type installation struct {
	Installed        []pkgproxy.Installed `json:"installed"`
	AlreadySatisfied bool                 `json:"already_satisfied"`
	Notes            []string             `json:"notes,omitempty"`
	SessionID        session.ID           `json:"session_id"`
	Notice           string               `json:"notice,omitempty"`
}

func installPackage(ctx context.Context, c *call, in packageInput) (out installation, a answer, err error) {
	installer := c.server.config.Packages
	if installer == nil {
		return out, a, fault.New(fault.Unsupported, "this server installs no packages")
	}
	if err := c.ensure(ctx, in.session, session.Settings{}); err != nil {
		return out, a, err
	}
	err = c.inSession(ctx, in.session, session.Settings{}, func(id session.ID) error {
		res, err := installer.Install(ctx, c.bound.Owner, id, in.name)
		if err != nil {
			return err
		}
		out = installation{Installed: []pkgproxy.Installed{}, AlreadySatisfied: res.Already, Notes: res.Notes, SessionID: id, Notice: c.notice}
		out.Installed = append(out.Installed, res.Installed[:min(len(res.Installed), maxPackages)]...)
		if more := len(res.Installed) - len(out.Installed); more > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("%d more packages were installed; get_workspace_info lists them", more))
		}
		return nil
	})
	return out, a, err
}

// packagesIn names the packages that are installed in a session.
func (c *call) packagesIn(ctx context.Context, id session.ID) (all []string, err error) {
	found, err := install.Listed(ctx, c.server.config.Sessions, c.bound.Owner, id)
	for _, one := range found[:min(len(found), maxPackages)] {
		all = append(all, one.Name+" "+one.Version)
	}
	return all, err
}

// notInstalled is what interpreters say in their hints of a module that a package may
// have.
var notInstalled = []string{
	" is not installed in this ", "is no part of Python's standard library", "packages cannot be installed this way", "there is no module ",
}

// advise adds to an error's hint what installs the module that was missed.
func (s *Server) advise(e *ProgramError) {
	if e == nil || !s.config.Packages.Serves() {
		return
	}
	if slices.ContainsFunc(notInstalled, func(said string) bool { return strings.Contains(e.Hint, said) }) {
		e.Hint += "; install_package installs packages"
	}
}

// withoutIndex are what pip, uv and npm print, in a machine that has no index, for want of one.
var withoutIndex = []struct{ says, kind string }{
	{"No matching distribution found for", pkgproxy.PyPI},
	{"Could not find a version that satisfies the requirement", pkgproxy.PyPI},
	{"npm error network", pkgproxy.NPM}, {"npm ERR! network", pkgproxy.NPM},
	{"npm error code E403", pkgproxy.NPM}, {"npm error code ENOTFOUND", pkgproxy.NPM},
}

// LacksIndex says what is missing, and who can add it, where a program of a Linux session
// asked for packages and there is no index of that kind; empty: nothing is.
func LacksIndex(res session.Result, served func(kind string) error) string {
	if res.Isolation != "linux" || res.Exit.Code == 0 {
		return ""
	}
	for _, one := range withoutIndex {
		if !strings.Contains(res.Stderr, one.says) && !strings.Contains(res.Stdout, one.says) {
			continue
		}
		if f := fault.Of(served(one.kind)); f != nil {
			return f.Message + ": " + f.Hint
		}
	}
	return ""
}
