package packages

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// A CommonJS module says what it exports only when it runs, which it does not do here.
// Names are found in its text as Node finds them: assignments to exports.NAME and what
// compilers write in their place.
var (
	exportNames = []*regexp.Regexp{
		regexp.MustCompile(`\bexports\.([A-Za-z_$][\w$]*)\s*=[^=]`),
		regexp.MustCompile(`\bexports\[['"]([A-Za-z_$][\w$]*)['"]\]\s*=[^=]`),
		regexp.MustCompile(`\bdefineProperty\(\s*(?:module\.)?exports\s*,\s*['"]([A-Za-z_$][\w$]*)['"]`),
	}
	exportObject   = regexp.MustCompile(`\bmodule\.exports\s*=\s*\{([^{}]*)\}`)
	exportHint     = regexp.MustCompile(`0\s*&&\s*\(module\.exports\s*=\s*\{([^{}]*)\}\)`) // esbuild's
	exportKey      = regexp.MustCompile(`(?:^|,)\s*(?:\.\.\.[^,]*|['"]?([A-Za-z_$][\w$]*)['"]?)\s*(?:[:,]|$)`)
	exportGetters  = regexp.MustCompile(`\b__export\(\s*\w+\s*,\s*\{([^{}]*)\}`)
	exportedModule = regexp.MustCompile(`(?:\bmodule\.exports\s*=\s*|\b__exportStar\(\s*|\b__export\(\s*|\btslib_?\d*\.__exportStar\(\s*)require\(\s*['"]([^'"]+)['"]\s*\)`)
)

// Bounds of the search.
const (
	maxNames       = 2000
	maxNamesText   = 8 << 20
	maxNamesNested = 6
)

// builtWith is what esbuild says of a build, in JSON.
type builtWith struct {
	Inputs map[string]struct {
		Format  string
		Imports []struct{ Path, Original, Kind string }
	}
	Outputs map[string]struct {
		EntryPoint string `json:"entryPoint"`
	}
}

func readMeta(text string) (m builtWith, err error) { return m, json.Unmarshal([]byte(text), &m) }

// entries are the packages' own modules.
func (m builtWith) entries(names []string) (files []string) {
	for _, name := range names {
		if out, ok := m.Outputs["out/"+name+"/index.js"]; ok {
			files = append(files, out.EntryPoint)
		}
	}
	return files
}

// needed are Node's modules that packages import which are not there, by the package: of
// those modules alone that one of the entries leads to.
func (m builtWith) needed(entries []string, packageOf func(string) string) map[string]string {
	seen, needs := map[string]bool{}, map[string]string{}
	for len(entries) > 0 {
		file := entries[0]
		entries = entries[1:]
		for _, one := range m.Inputs[file].Imports {
			if module, ok := strings.CutPrefix(one.Path, missingSpace+":"); ok && one.Kind == "import-statement" && nodeHas(module) {
				needs[packageOf(file)] = strings.TrimPrefix(module, "node:")
			}
			if !seen[one.Path] {
				seen[one.Path] = true
				entries = append(entries, one.Path)
			}
		}
	}
	return needs
}

// commonNames are the names that a CommonJS module exports, and the modules that it
// passes on.
func commonNames(root *os.Root, meta builtWith, file string, depth int, into []string) []string {
	if depth > maxNamesNested || len(into) > maxNames {
		return into
	}
	in, err := root.Open(file)
	if err != nil {
		return into
	}
	text, err := io.ReadAll(io.LimitReader(in, maxNamesText))
	in.Close()
	if err != nil {
		return into
	}
	add := func(name string) {
		if name != "" && name != "default" && name != "__esModule" && len(into) < maxNames && !slices.Contains(into, name) {
			into = append(into, name)
		}
	}
	for _, pattern := range exportNames {
		for _, m := range pattern.FindAllSubmatch(text, -1) {
			add(string(m[1]))
		}
	}
	for _, pattern := range []*regexp.Regexp{exportObject, exportHint, exportGetters} {
		for _, m := range pattern.FindAllSubmatch(text, -1) {
			for _, key := range exportKey.FindAllSubmatch(m[1], -1) {
				add(string(key[1]))
			}
		}
	}
	for _, m := range exportedModule.FindAllSubmatch(text, -1) {
		for _, one := range meta.Inputs[file].Imports {
			if one.Original == string(m[1]) || one.Original == "" && strings.HasSuffix(one.Path, path.Base(string(m[1]))) {
				into = commonNames(root, meta, one.Path, depth+1, into)
				break
			}
		}
	}
	return into
}

// addCommon adds for each module NAME.js a NAME.cjs, which is what the guest's require
// gives: the same code, and of a CommonJS module what it exports itself. Modules that
// wait while they are loaded, and those that may need such ones, can be imported only.
func (made *bundled) addCommon(entries []entryPoint) error {
	isCJS := map[string]bool{}
	for _, e := range entries {
		isCJS[e.out+".js"] = e.isCJS
	}
	common, size := map[string][]byte{}, 0
	for name, code := range made.files {
		size += len(code)
		if path.Ext(name) != ".js" {
			continue
		}
		options := api.TransformOptions{Format: api.FormatCommonJS, Target: api.ES2023, LogLevel: api.LogLevelSilent, TsconfigRaw: "{}", Sourcefile: name}
		if isCJS[name] {
			options.Footer = "module.exports = module.exports.default;"
		}
		result := api.Transform(string(code), options)
		if len(result.Errors) > 0 {
			if strings.HasPrefix(name, chunks) {
				return nil
			}
			continue
		}
		common[strings.TrimSuffix(name, ".js")+".cjs"] = result.Code
		if size += len(result.Code); size > maxModules {
			return errTooLarge()
		}
	}
	maps.Copy(made.files, common)
	return nil
}
