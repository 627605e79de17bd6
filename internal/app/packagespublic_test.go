package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/guest"
	"paddock/internal/config"
	"paddock/internal/fault"
)

// npmSays is a part of the module in which npm defines its settings.
const npmSays = "  registry: new Definition('registry', {\n    default: 'https://r.test/',\n    type: url,\n"

func TestNpmSaysWhichRegistryItAsks(t *testing.T) {
	const module = "node_modules/@npmcli/config/lib/definitions/definitions.js"
	for name, test := range map[string]struct{ npm, file, text, want string }{
		"npm's own layout":      {"/elsewhere/lib/node_modules/npm/bin/npm-cli.js", "/elsewhere/lib/node_modules/npm/" + module, npmSays, "https://r.test"},
		"beside the command":    {`/node/npm`, "/node/node_modules/npm/" + module, npmSays, "https://r.test"},
		"Debian's":              {"/share/nodejs/npm/bin/npm-cli.js", "/share/nodejs/@npmcli/config/lib/definitions/definitions.js", npmSays, "https://r.test"},
		"one that says nothing": {"/elsewhere/lib/node_modules/npm/bin/npm-cli.js", "/elsewhere/lib/node_modules/npm/" + module, "registry: 1", ""},
		"one that is elsewhere": {"/bin/npm", "/other/" + module, npmSays, ""},
		"none":                  {"", "", "", ""},
	} {
		got := npmDefault(func(string) (string, error) {
			if test.npm == "" {
				return "", errors.New("not found")
			}
			return test.npm, nil
		}, func(path string) ([]byte, error) {
			if filepath.ToSlash(path) == test.file {
				return []byte(test.text), nil
			}
			return nil, fs.ErrNotExist
		})
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// chosenBy are the indexes that count on a machine with an npm, where the environment and
// pip's file say so.
func chosenBy(t *testing.T, pipConf string, environ ...string) (python, npm chosenIndexes) {
	t.Helper()
	home := t.TempDir()
	bin := filepath.Join(home, "npm", "bin")
	settings := filepath.Join(home, "npm", "node_modules", "@npmcli", "config", "lib", "definitions")
	for _, dir := range []string{bin, settings} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		filepath.Join(bin, "npm"): "#!/bin/sh\n", filepath.Join(settings, "definitions.js"): npmSays, filepath.Join(home, "pip.conf"): pipConf,
	} {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("PATH", bin)
	t.Setenv("PIP_CONFIG_FILE", filepath.Join(home, "pip.conf"))
	for _, name := range []string{"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "UV_DEFAULT_INDEX", "npm_config_registry", "NPM_CONFIG_REGISTRY", "NPM_CONFIG_USERCONFIG", "npm_config_userconfig"} {
		t.Setenv(name, "")
	}
	c, err := config.Load(config.Source{Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	env := &Env{Config: c, CacheDir: t.TempDir()}
	env.chooseIndexes() // what was looked for once is kept
	return env.chooseIndexes()
}

func TestWhatPipAndNpmAskByThemselvesCountsWhereNothingIsSet(t *testing.T) {
	if _, err := guest.Open("python"); fault.KindOf(err) == fault.Unavailable {
		t.Skip("the Python guest is not built: it has the pip that is asked")
	}
	wheels := "PADDOCK_PACKAGES_PYPI_INDEX=" + t.TempDir()
	for _, test := range []struct {
		name        string
		pip         string
		environ     []string
		python, npm string // public, own, none
	}{
		{name: "nothing is set", python: "public", npm: "public"},
		{name: "it is turned off", environ: []string{"PADDOCK_PACKAGES_PUBLIC=false"}, python: "none", npm: "none"},
		{name: "the operator has an index", environ: []string{wheels}, python: "own", npm: "none"},
		{name: "the machine's settings are turned off", environ: []string{"PADDOCK_PACKAGES_MACHINE=false"}, python: "none", npm: "none"},
		{name: "they are, and this is wanted", environ: []string{"PADDOCK_PACKAGES_MACHINE=false", "PADDOCK_PACKAGES_PUBLIC=true"}, python: "public", npm: "public"},
		{name: "pip is set up with a mirror", pip: "[global]\nindex-url = https://a.test/simple\n", python: "own", npm: "public"},
		{name: "pip is told to ask none", pip: "[global]\nno-index = true\n", python: "none", npm: "public"},
	} {
		python, npm := chosenBy(t, test.pip, test.environ...)
		for _, one := range []struct {
			of   chosenIndexes
			want string
		}{{python, test.python}, {npm, test.npm}} {
			got := "none"
			if len(one.of.indexes) > 0 {
				got = "own"
			}
			if one.of.public {
				got = "public"
			}
			if got != one.want {
				t.Errorf("%s: %s is %s (%+v), want %s", test.name, one.of.key, got, one.of.indexes, one.want)
			}
		}
	}
	python, npm := chosenBy(t, "[global]\nextra-index-url = https://b.test/simple\n")
	if len(python.indexes) != 2 || !strings.HasPrefix(python.indexes[0].URL, "https://") || !strings.HasSuffix(python.indexes[0].URL, "/simple") || python.indexes[1].URL != "https://b.test/simple" {
		t.Errorf("with an index beside pip's own: %+v", python.indexes)
	}
	if len(npm.indexes) != 1 || npm.indexes[0].URL != "https://r.test" {
		t.Errorf("of npm: %+v", npm.indexes)
	}
}
