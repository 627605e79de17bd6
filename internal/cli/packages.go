package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/internal/cli/config"
	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/image"
	"paddock/internal/membudget"
	"paddock/internal/pkgproxy"
	"paddock/internal/pkgproxy/install"
)

// packagesFolder is where the cache of packages is, in the cache folder.
const packagesFolder = "packages"

// openPackages makes the front that sessions have their packages from; nil: nobody has
// said where those come from.
func (p *program) openPackages(memory *membudget.Budget, helpers *helper.Runner) (*pkgproxy.Packages, error) {
	c := p.config.Packages
	set := pkgproxy.Config{
		Dir: filepath.Join(p.places.cache, packagesFolder), CacheBytes: c.CacheBytes, FileBytes: c.FileBytes, Budget: memory, Log: p.log,
		Python: ecosystem(c, c.PyPI), NPM: ecosystem(c, c.NPM),
	}
	certs := []string{c.Cert}
	if c.Machine {
		m := ofMachine(os.Getenv, os.ReadFile)
		if !p.config.IsSet("packages.pypi.index") {
			set.Python.Indexes = m.pypi.indexes
			certs = append(certs, m.pypi.cert)
		}
		if !p.config.IsSet("packages.npm.index") {
			set.NPM.Indexes = m.npm.indexes
			certs = append(certs, m.npm.cert)
		}
	}
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
// the system's; nil: those alone.
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
func (p *program) newInstaller(o *parts) *install.Installer {
	names := imageNames(p.config)
	c := install.Config{
		Sessions: o.sessions, Packages: o.packages, Log: p.log,
		OnHost: func(called string) bool { return names.Resolve(called) == image.Host },
	}
	if longest := p.config.Sessions.MaxTimeout; longest < 10*time.Minute {
		c.Timeout = longest
	}
	if p.config.Policy.Fuel > 0 {
		c.Fuel = 1 << 62 // its time is bounded
	}
	return install.New(c)
}

// examinePackages tells where packages come from.
func (p *program) examinePackages(d *diagnosis) {
	front, err := p.openPackages(nil, nil)
	if err != nil {
		d.fail("packages", err)
		return
	}
	if front != nil {
		defer front.Close()
	}
	c, m := p.config.Packages, machinePackages{}
	if c.Machine {
		m = ofMachine(os.Getenv, os.ReadFile)
	}
	none := 0
	say := func(kind, key string, own []string, of machineIndexes) string {
		switch {
		case p.config.IsSet(key) && len(own) > 0:
			return fmt.Sprintf("%s come from %d indexes of %s", kind, len(own), key)
		case !p.config.IsSet(key) && len(of.indexes) > 0:
			return fmt.Sprintf("%s come from %d indexes of this machine's own (%s)", kind, len(of.indexes), of.from)
		}
		none++
		return kind + " cannot be installed (" + key + ")"
	}
	detail := say("Python packages", "packages.pypi.index", c.PyPI.Index, m.pypi) + "; " + say("npm packages", "packages.npm.index", c.NPM.Index, m.npm)
	hint := ""
	if none > 0 {
		hint = "packages.pypi.index and packages.npm.index say where they come from"
	}
	d.add("packages", good, detail, hint)
}
