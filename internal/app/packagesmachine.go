package app

import (
	"encoding/base64"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"paddock/internal/pkgproxy"
)

// machineIndexes are the indexes that a client of this machine is set up with.
type machineIndexes struct {
	indexes []pkgproxy.Index
	cert    string // a file with authorities; empty: none is named
	from    string // what says so: a variable, or a file
	// more are in addition to the client's own, which nothing names; none says that the
	// client is told to ask no index.
	more []pkgproxy.Index
	none bool
}

// machinePackages are those of its pip and of its npm.
type machinePackages struct{ pypi, npm machineIndexes }

// ofMachine reads what this machine's pip and npm are set up with. What cannot be read, and
// what is not a URL, is as if it were not there.
func ofMachine(env func(string) string, read func(string) ([]byte, error)) machinePackages {
	return machinePackages{pypi: pipOf(env, read), npm: npmOf(env, read)}
}

// settings reads a file of NAME = VALUE lines: those of a section, or where that is "" all.
func settings(text []byte, section string) map[string]string {
	all, in := map[string]string{}, section == ""
	last := ""
	for line := range strings.Lines(string(text)) {
		bare := strings.TrimSpace(line)
		switch {
		case bare == "" || strings.HasPrefix(bare, "#") || strings.HasPrefix(bare, ";"):
		case section != "" && strings.HasPrefix(bare, "["):
			in = bare == "["+section+"]"
		case !in:
		case section != "" && last != "" && strings.TrimLeft(line, " \t") != line: // it goes on
			all[last] += " " + bare
		default:
			name, value, _ := strings.Cut(bare, "=")
			last = strings.TrimSpace(name)
			all[last] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return all
}

// pipFiles are where pip looks, what counts more first.
func pipFiles(env func(string) string) (all []string) {
	if file := env("PIP_CONFIG_FILE"); file != "" {
		return []string{file}
	}
	if venv := env("VIRTUAL_ENV"); venv != "" {
		all = append(all, filepath.Join(venv, "pip.conf"))
	}
	if dir, err := os.UserConfigDir(); err == nil {
		all = append(all, filepath.Join(dir, "pip", "pip.conf"), filepath.Join(dir, "pip", "pip.ini"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		all = append(all, filepath.Join(home, ".config", "pip", "pip.conf"), filepath.Join(home, ".pip", "pip.conf"))
	}
	if runtime.GOOS != "windows" {
		all = append(all, "/etc/pip.conf")
	}
	return all
}

func pipOf(env func(string) string, read func(string) ([]byte, error)) (m machineIndexes) {
	first, more := env("PIP_INDEX_URL"), env("PIP_EXTRA_INDEX_URL")
	m.cert, m.from = env("PIP_CERT"), "PIP_INDEX_URL"
	m.none = truth(env("PIP_NO_INDEX"))
	if first == "" {
		if first = env("UV_DEFAULT_INDEX"); first != "" {
			m.from = "UV_DEFAULT_INDEX"
		}
	}
	for _, file := range pipFiles(env) {
		text, err := read(file)
		if err != nil {
			continue
		}
		global := settings(text, "global")
		if first == "" && global["index-url"] != "" {
			first, m.from = global["index-url"], file
		}
		if more == "" {
			more = global["extra-index-url"]
		}
		if m.cert == "" {
			m.cert = global["cert"]
		}
		m.none = m.none || truth(global["no-index"])
	}
	if first == "" { // an extra one is in addition to pip's own, which is not named
		return machineIndexes{more: indexesAt(strings.Fields(more)), cert: m.cert, none: m.none}
	}
	m.indexes = indexesAt(append([]string{first}, strings.Fields(more)...))
	return m
}

// truth reports whether pip reads a value as yes.
func truth(value string) bool {
	return slices.Contains([]string{"y", "yes", "t", "true", "on", "1"}, strings.ToLower(value))
}

// indexesAt are the indexes of the URLs among texts.
func indexesAt(texts []string) (all []pkgproxy.Index) {
	for _, at := range texts {
		if index, ok := indexAt(at); ok {
			all = append(all, index)
		}
	}
	return all
}

// indexAt is the index of a URL that may hold credentials; false: it is none.
func indexAt(text string) (pkgproxy.Index, bool) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return pkgproxy.Index{}, false
	}
	index := pkgproxy.Index{}
	if u.User != nil {
		index.User = u.User.Username()
		index.Password, _ = u.User.Password()
		u.User = nil
	}
	u.RawQuery, u.Fragment = "", ""
	index.URL = u.String()
	return index, true
}

func npmOf(env func(string) string, read func(string) ([]byte, error)) (m machineIndexes) {
	at := ""
	for _, name := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY"} {
		if at == "" && env(name) != "" {
			at, m.from = env(name), name
		}
	}
	files := []string{env("NPM_CONFIG_USERCONFIG"), env("npm_config_userconfig")}
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".npmrc"))
	}
	said := map[string]string{}
	for _, file := range files {
		text, err := read(file)
		if file == "" || err != nil {
			continue
		}
		for name, value := range settings(text, "") {
			if said[name] == "" {
				said[name] = os.Expand(value, env)
			}
		}
		if at == "" && said["registry"] != "" {
			at, m.from = said["registry"], file
		}
	}
	index, ok := indexAt(at)
	if !ok {
		return machineIndexes{}
	}
	m.cert = said["cafile"]
	if index.User == "" {
		npmCredentials(&index, said)
	}
	m.indexes = []pkgproxy.Index{index}
	return m
}

// npmCredentials puts in what npm's settings have for a registry: for its path, or one
// above.
func npmCredentials(index *pkgproxy.Index, said map[string]string) {
	u, err := url.Parse(index.URL)
	if err != nil {
		return
	}
	at := "//" + u.Host + strings.TrimSuffix(u.Path, "/") + "/"
	for len(at) > len("//")+1 {
		if token := said[at+":_authToken"]; token != "" {
			index.Token = token
			return
		}
		if both, err := base64.StdEncoding.DecodeString(said[at+":_auth"]); err == nil && len(both) > 0 {
			index.User, index.Password, _ = strings.Cut(string(both), ":")
			return
		}
		at = strings.TrimSuffix(at, "/")
		at = at[:strings.LastIndexByte(at, '/')+1]
	}
}
