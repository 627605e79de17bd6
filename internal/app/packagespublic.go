package app

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"paddock/guest"
	"paddock/internal/atomicfile"
	"paddock/internal/pkgproxy"
)

// chosenIndexes are where one kind of packages comes from.
type chosenIndexes struct {
	machineIndexes
	key    string
	public bool // from is the client whose own default it is
}

// chooseIndexes finds out where packages come from: the configuration says it, or this
// machine's own pip and npm are set up with it, or it is what pip and npm ask by themselves.
func (env *Env) chooseIndexes() (python, npm chosenIndexes) {
	c := env.Config.Packages
	python.key, npm.key = "packages.pypi.index", "packages.npm.index"
	python.indexes, npm.indexes = ecosystem(c, c.PyPI).Indexes, ecosystem(c, c.NPM).Indexes
	own := env.Config.IsSet(python.key) || env.Config.IsSet(npm.key)
	if c.Machine {
		m := ofMachine(os.Getenv, os.ReadFile)
		if !env.Config.IsSet(python.key) {
			python.machineIndexes = m.pypi
		}
		if !env.Config.IsSet(npm.key) {
			npm.machineIndexes = m.npm
		}
	}
	// An operator who named one index has decided where packages come from, and one who
	// turned the machine's settings off has asked for none that are not named.
	if !c.Public || own || !c.Machine && !env.Config.IsSet("packages.public") {
		return python, npm
	}
	if len(python.indexes) == 0 && !python.none {
		if index, ok := indexAt(pipDefault(env.CacheDir)); ok {
			python.indexes, python.from, python.public = append([]pkgproxy.Index{index}, python.more...), "pip", true
		}
	}
	if len(npm.indexes) == 0 {
		if index, ok := indexAt(npmDefault(exec.LookPath, os.ReadFile)); ok {
			npm.indexes, npm.from, npm.public = []pkgproxy.Index{index}, "npm", true
		}
	}
	return python, npm
}

// pipIndex is a URL in pip's module that names its index; the first is the one that it asks.
var pipIndex = regexp.MustCompile(`https://[A-Za-z0-9.-]+/`)

// pipDefault is the simple index that pip asks where nothing is set: what the pip that the
// Python guest has says of itself. Its module is looked at once for each guest; "": there
// is no such guest in this binary.
func pipDefault(cache string) string {
	g, err := guest.Open("python")
	if err != nil {
		return ""
	}
	kept := filepath.Join(cache, "pip-index", g.Digest)
	if text, err := os.ReadFile(kept); err == nil && pipIndex.Match(text) {
		return string(text)
	}
	module, err := moduleOfPip(g, "pip/_internal/models/index.pyc")
	if err != nil {
		return ""
	}
	at := pipIndex.Find(module)
	if at == nil {
		return ""
	}
	index := string(at) + "simple"
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err == nil {
		// Where it cannot be kept it is looked for again.
		_ = atomicfile.WriteFile(kept, []byte(index), atomicfile.Options{})
	}
	return index
}

func moduleOfPip(g *guest.Guest, name string) ([]byte, error) {
	library, err := g.Library()
	if err != nil {
		return nil, err
	}
	packed, err := fs.ReadFile(library, "pip.zip")
	if err != nil {
		return nil, err
	}
	pip, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return nil, err
	}
	return fs.ReadFile(pip, name)
}

// npmRegistry is how npm's module of its settings names the registry that it asks.
var npmRegistry = regexp.MustCompile(`\bregistry: new Definition\('registry', \{\s*default: '(https?://[^']+)'`)

// npmDefault is the registry that npm asks where nothing is set: what the npm on the PATH says
// of itself, in the module where its settings are defined; "": there is no npm.
func npmDefault(look func(string) (string, error), read func(string) ([]byte, error)) string {
	npm, err := look("npm")
	if err != nil {
		return ""
	}
	if whole, err := filepath.EvalSymlinks(npm); err == nil {
		npm = whole
	}
	settings := filepath.Join("@npmcli", "config", "lib", "definitions", "definitions.js")
	for dir := filepath.Dir(npm); ; dir = filepath.Dir(dir) {
		for _, modules := range []string{"node_modules", filepath.Join("node_modules", "npm", "node_modules"), "."} {
			if text, err := read(filepath.Join(dir, modules, settings)); err == nil {
				if found := npmRegistry.FindSubmatch(text); found != nil {
					return strings.TrimSuffix(string(found[1]), "/")
				}
			}
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}
