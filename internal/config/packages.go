package config

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"
)

// Packages is where the packages come from that are installed in sessions.
type Packages struct {
	// Machine says that indexes which are not set are those that this machine's own pip
	// and npm are set up with.
	Machine bool
	// Public says that what is neither set nor known of this machine comes from where pip
	// and npm get it by themselves.
	Public bool
	// PyPI is of Python packages, and NPM of npm's.
	PyPI, NPM PackageIndex
	// Credentials are secret: USER:PASSWORD or a token, by the host, with its port where
	// the URL has one.
	Credentials map[string]string
	// Files are rules of package egress for hosts that files may come from besides.
	Files                 []string
	CacheBytes, FileBytes int64
	Cert                  string // a file with authorities; empty: the system's
}

// PackageIndex is what of one kind of packages may be installed.
type PackageIndex struct {
	Index        []string // URLs or absolute paths, in the order of asking
	Allow        []string // names or patterns
	CooldownDays int64
}

// packageKeys are the keys of one kind of packages.
func packageKeys(kind, what, page string, of func(*Config) *PackageIndex) []Key {
	return []Key{
		define("packages."+kind+".index", "where "+what+" come from: URLs of "+page+", or folders of this machine, asked in this order, where a package is of the first that has it; not set: what this machine's own client is set up with (packages.machine), or asks by itself (packages.public)", "", indexes(), func(c *Config) *[]string { return &of(c).Index }),
		define("packages."+kind+".allow", "which "+what+" may be installed: names, or patterns such as name-*", "*", packageNames(), func(c *Config) *[]string { return &of(c).Allow }),
		define("packages."+kind+".cooldown_days", "how old a release has to be to be installed; one whose age the index does not tell is not old enough; 0: any", "0", count(0, 3650), func(c *Config) *int64 { return &of(c).CooldownDays }),
	}
}

// indexes is a list of URLs and folders.
func indexes() kind[[]string] {
	return each("URLs and absolute paths of folders", func(s string) error {
		if filepath.IsAbs(s) {
			return nil
		}
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return errors.New("one of them is not a URL of http or https, and no absolute path")
		case u.User != nil:
			return fmt.Errorf("the URL at %s holds credentials, which belong into packages.credentials", u.Host)
		case u.RawQuery != "" || u.Fragment != "":
			return fmt.Errorf("the URL at %s has a query or a fragment", u.Host)
		}
		return nil
	})
}

// packageNames is a list of patterns.
func packageNames() kind[[]string] {
	return each("packages' names, or patterns of them", func(s string) error {
		if _, err := path.Match(s, ""); err != nil || s == "" {
			return fmt.Errorf("%q is not a pattern", s)
		}
		return nil
	})
}

// packageCredentials is a table of USER:PASSWORD, or of tokens, by hosts, of which only
// the hosts are shown.
func packageCredentials() kind[map[string]string] {
	k := table("a table of USER:PASSWORD or tokens by hosts; as a variable HOST=USER:PASSWORD,HOST=TOKEN", func(host, secret string) error {
		switch {
		case host == "" || strings.ContainsAny(host, "/*?#@ "):
			return fmt.Errorf("%q is not a host", host)
		case secret == "" || strings.ContainsAny(secret, "\r\n") || strings.HasPrefix(secret, ":"):
			return fmt.Errorf("what it has for %s is not of the form USER:PASSWORD, and no token", host)
		}
		return nil
	})
	k.data = func(all map[string]string) any {
		shown := map[string]string{}
		for host := range all {
			shown[host] = "(hidden)"
		}
		return shown
	}
	text := k.text
	k.text = func(s string) (map[string]string, error) {
		all, err := text(s)
		if err != nil && strings.Contains(err.Error(), "is not of the form NAME=value") {
			err = errors.New("it is not of the form HOST=USER:PASSWORD,HOST=TOKEN") // without repeating it
		}
		return all, err
	}
	return k
}

// packagesKeys are those of the section.
func packagesKeys() []Key {
	all := packageKeys("pypi", "Python packages", "simple indexes", func(c *Config) *PackageIndex { return &c.Packages.PyPI })
	all = append(all, packageKeys("npm", "npm packages", "registries", func(c *Config) *PackageIndex { return &c.Packages.NPM })...)
	return append(all,
		define("packages.machine", "whether indexes that are not set are those that this machine's own pip and npm are set up with, in their variables and files", "true", boolean(), func(c *Config) *bool { return &c.Packages.Machine }),
		define("packages.public", "whether packages come from where pip and npm get them by themselves, where no index is set and this machine's pip and npm are not set up with one; with packages.machine off only if this key is set", "true", boolean(), func(c *Config) *bool { return &c.Packages.Public }),
		define("packages.credentials", "USER:PASSWORD, or a token, for indexes of packages, by their host, with its port where the URL has one", "", packageCredentials(), func(c *Config) *map[string]string { return &c.Packages.Credentials }),
		define("packages.files", "hosts that are not public and that files of packages may come from, beside the indexes' own: rules as of network.allow", "", requestRules(), func(c *Config) *[]string { return &c.Packages.Files }),
		define("packages.cache_mb", "how much the cache of packages may take, which all sessions share", "2048", size(1<<20, 1<<20, mostDisk), func(c *Config) *int64 { return &c.Packages.CacheBytes }),
		define("packages.max_file_mb", "how large a package's file may be", "512", size(1<<20, 1<<20, mostDisk), func(c *Config) *int64 { return &c.Packages.FileBytes }),
		define("packages.cert", "a file with the certificates of authorities that indexes are believed by; empty: the system's", "", words(0, 4096), func(c *Config) *string { return &c.Packages.Cert }),
	)
}
