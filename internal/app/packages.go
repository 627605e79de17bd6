package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/image"
	"paddock/internal/membudget"
	"paddock/internal/pkgproxy"
	"paddock/internal/pkgproxy/install"
	"paddock/internal/session"
)

// packagesFolder is where the cache of packages is, in the cache folder.
const packagesFolder = "packages"

// openPackages makes the front that sessions get their packages from; nil if no index is
// configured.
func (env *Env) openPackages(memory *membudget.Budget, helpers *helper.Runner) (*pkgproxy.Packages, error) {
	c := env.Config.Packages
	set := pkgproxy.Config{
		Dir: filepath.Join(env.CacheDir, packagesFolder), CacheBytes: c.CacheBytes, FileBytes: c.FileBytes, Budget: memory, Log: env.Log,
		Python: ecosystem(c, c.PyPI), NPM: ecosystem(c, c.NPM),
	}
	python, npm := env.chooseIndexes()
	set.Python.Indexes, set.NPM.Indexes = python.indexes, npm.indexes
	certs := []string{c.Cert, python.cert, npm.cert}
	if len(set.Python.Indexes)+len(set.NPM.Indexes) == 0 {
		return nil, nil
	}
	var err error
	if set.TLS, err = believing(certs); err != nil {
		return nil, err
	}
	set.Helpers = helpers
	front, err := pkgproxy.Open(set)
	if err != nil {
		return nil, fmt.Errorf("opening the indexes of packages: %w", err)
	}
	return front, nil
}

// ecosystem is what the configuration says of one kind of packages.
func ecosystem(c config.Packages, one config.PackageIndex) pkgproxy.Ecosystem {
	e := pkgproxy.Ecosystem{Allow: one.Allow, Cooldown: time.Duration(one.CooldownDays) * 24 * time.Hour}
	for _, at := range one.Index {
		index := pkgproxy.Index{URL: at, Files: c.Files}
		if u, err := url.Parse(at); err == nil {
			if secret := c.Credentials[u.Host]; secret != "" {
				var password bool
				if index.User, index.Password, password = strings.Cut(secret, ":"); !password {
					index.User, index.Token = "", secret
				}
			}
		}
		e.Indexes = append(e.Indexes, index)
	}
	return e
}

// believing is a client's configuration that believes the authorities of files as well as
// the system's; nil if there are no files.
func believing(files []string) (*tls.Config, error) {
	var pool *x509.CertPool
	for _, file := range files {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err == nil && pool == nil {
			pool, err = x509.SystemCertPool()
		}
		if err == nil && !pool.AppendCertsFromPEM(text) {
			err = errors.New("there is no certificate in it")
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "the file with authorities for indexes of packages cannot be used").
				WithHint("it is named by packages.cert, or by this machine's pip or npm").WithCause(err)
		}
	}
	if pool == nil {
		return nil, nil
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// newInstaller makes what puts packages into sessions.
func (a *App) newInstaller() *install.Installer {
	names := a.ImageNames()
	c := install.Config{
		Sessions: a.Sessions, Packages: a.packages, Log: a.Log,
		OnHost: func(called string) bool { return names.Resolve(called) == image.Host },
	}
	if longest := a.Config.Sessions.MaxTimeout; longest < 10*time.Minute {
		c.Timeout = longest
	}
	if a.Config.Policy.Fuel > 0 {
		c.Fuel = 1 << 62 // its time is bounded
	}
	return install.New(c)
}

// Install puts packages into a session.
func (a *App) Install(ctx context.Context, owner session.Owner, id session.ID, what string) (install.Result, error) {
	return a.newInstaller().Install(ctx, owner, id, what)
}

// ServesPackages says by a fault.Unsupported that nothing of a kind of packages can be installed.
func (a *App) ServesPackages(kind string) error { return a.packages.Serves(kind) }

// PackageSource is where one kind of packages comes from.
type PackageSource struct {
	Key     string // the configuration's
	Indexes int    // zero: from nowhere
	Machine string // what of this machine names them; empty: the configuration does
	Public  string // the host that pip or npm asks by itself; empty: something names another
}

// PackageSources tells where packages come from, and what is wrong with it.
func (env *Env) PackageSources() (python, npm PackageSource, err error) {
	front, err := env.openPackages(nil, nil)
	if err != nil {
		return python, npm, err
	}
	if front != nil {
		defer front.Close()
	}
	source := func(of chosenIndexes) PackageSource {
		s := PackageSource{Key: of.key, Indexes: len(of.indexes), Machine: of.from}
		if of.public {
			if u, err := url.Parse(of.indexes[0].URL); err == nil {
				s.Public = u.Host
			}
		}
		return s
	}
	p, n := env.chooseIndexes()
	return source(p), source(n), nil
}
