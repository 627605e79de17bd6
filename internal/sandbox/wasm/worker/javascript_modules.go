package worker

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/wasi"
)

// hostNormalize gives a module's full name: a file's path with its time, so
// that a file that was changed is loaded again, or a built-in's name.
func hostNormalize(in *instance, stack []uint64) {
	base, name := cString(in.bytes(), uint32(stack[0])), cString(in.bytes(), uint32(stack[1]))
	m := nested{in.vm}
	p, err := putString(m, in.modules(m).name(base, name))
	if err != nil {
		p = 0
	}
	stack[0] = p
}

// modules finds and reads what a JavaScript program imports: files of the guest's, files
// in packs of packages, which the driver knows, and built-ins, which the driver has. The
// full name of a file has its time, so that one that was changed is another module.
type modules struct {
	files *wasi.System
	dir   string // the program's working folder
	// driver asks the driver, while it is itself waiting for the host. What fails has no
	// answer.
	driver func(request any) (answer []byte)
	// translate takes the types out of TypeScript; false: the program has to end.
	translate func(sandbox.Source) (sandbox.Translation, bool)
}

// modules are those of the guest, which is in a call to the host.
func (in *instance) modules(m machine) modules {
	return modules{
		files: in.system, dir: path.Clean("/" + in.start.Dir),
		driver: func(request any) []byte { return in.program.askDriver(m, request) },
		translate: func(s sandbox.Source) (sandbox.Translation, bool) {
			t, ok := in.worker.loop.Translate(s, in.mustEnd())
			if !ok {
				in.interruptHere()
			}
			return t, ok
		},
	}
}

// serversModule is the built-in module that has the servers which are bound.
const serversModule = "servers"

// name gives the full name of a module that base imports; what is not found keeps its own.
func (l modules) name(base, name string) string {
	name = strings.TrimPrefix(name, "file://")
	base, _, _ = strings.Cut(base, "?")
	file := name
	switch {
	case strings.HasPrefix(base, installedFolder+"/"):
		if found := l.packaged(base, name); found != "" {
			return found
		}
		return name
	case strings.HasPrefix(name, "/"):
	case strings.HasPrefix(name, "."):
		dir := l.dir
		if strings.HasPrefix(base, "/") {
			dir = path.Dir(base)
		}
		file = path.Join(dir, name)
	case name == serversModule:
		// What it has changes with the folder.
		if info, err := l.files.Stat("/"+serversModule, true); err == nil {
			return fmt.Sprintf("%s?%d", name, info.Modified)
		}
		return name
	default:
		if file = l.provided(name); file == "" {
			if found := l.packaged(base, name); found != "" {
				return found
			}
			file = l.installed(name)
		}
		if file == "" {
			return strings.TrimPrefix(name, "node:")
		}
	}
	for _, candidate := range candidates(path.Clean(file)) {
		if modified, ok := l.isFile(candidate); ok {
			return fmt.Sprintf("%s?%d", candidate, modified)
		}
	}
	if provided := l.provided(name); provided != "" {
		modified, _ := l.isFile(provided)
		return fmt.Sprintf("%s?%d", provided, modified)
	}
	return path.Clean(file)
}

// candidates are the files that the name of one may stand for, as programs in
// TypeScript write it.
func candidates(file string) []string {
	all := []string{file}
	switch path.Ext(file) {
	case ".js":
		all = append(all, strings.TrimSuffix(file, ".js")+".ts")
	case ".mjs":
		all = append(all, strings.TrimSuffix(file, ".mjs")+".mts")
	}
	for _, end := range []string{".ts", ".mts", ".js", ".mjs", ".json", "/index.ts", "/index.js", "/index.mjs"} {
		all = append(all, file+end)
	}
	return all
}

// isFile tells whether there is a file, and when it was changed.
func (l modules) isFile(name string) (modified int64, ok bool) {
	info, err := l.files.Stat(name, true)
	if err != nil || info.Kind != "file" {
		return 0, false
	}
	return info.Modified, true
}

// providers matches what names a module below /servers or /skills: servers/github, and
// ./servers/github where the workspace has none.
var providers = regexp.MustCompile(`^(?:\.{0,2}/)*(servers|skills)/([^/]+)(/.+)?$`)

// notPlain matches what the names of packages have not.
var notPlain = regexp.MustCompile(`[^A-Za-z0-9_]`)

// provided gives the file of a module such as servers/github; empty: there is none.
func (l modules) provided(name string) string {
	parts := providers.FindStringSubmatch(name)
	if parts == nil {
		return ""
	}
	for _, of := range []string{parts[2], notPlain.ReplaceAllString(parts[2], "_")} {
		for _, end := range []string{"/index.js", "", ".js", ".ts"} {
			file := path.Join("/", parts[1], of+parts[3]+end)
			if _, ok := l.isFile(file); ok {
				return file
			}
		}
	}
	return ""
}

// installedFolder has the npm packages that were installed for the session
// (packages.Modules).
const installedFolder = "/workspace/.paddock/node_modules"

// packaged gives the driver's name of a module of such a package: a file that lies in a
// pack, or a built-in's name; empty: it knows of none.
func (l modules) packaged(base, name string) (found string) {
	if _, ok := l.isFile(installedFolder + "/.tree.json"); !ok {
		return ""
	}
	if json.Unmarshal(l.driver(map[string]string{"op": "module", "name": name, "base": base}), &found) != nil {
		return ""
	}
	return found
}

// installed gives the file of a module of a package that an earlier paddock installed,
// which made a file of each; empty: there is none.
func (l modules) installed(name string) string {
	base := path.Join(installedFolder, name)
	if !strings.HasPrefix(base, installedFolder+"/") {
		return ""
	}
	for _, end := range []string{"/index.js", "", ".js"} {
		if _, ok := l.isFile(base + end); ok {
			return base + end
		}
	}
	return ""
}

// hostLoad gives a module's source.
func hostLoad(in *instance, stack []uint64) {
	m := nested{in.vm}
	source, ok := in.modules(m).source(cString(in.bytes(), uint32(stack[0])))
	if !ok {
		stack[0] = 0
		return
	}
	p, err := putString(m, source)
	if room, e := slice(in.bytes(), uint32(stack[1]), 4); err == nil && e == nil {
		binary.LittleEndian.PutUint32(room, uint32(len(source)))
		stack[0] = p
		return
	}
	stack[0] = 0
}

// source gives the source of the module with this full name; false: it cannot be imported.
func (l modules) source(name string) (string, bool) {
	file, _, _ := strings.Cut(name, "?")
	_, old := l.isFile(file)
	if !strings.HasPrefix(name, "/") || strings.HasPrefix(name, installedFolder+"/") && !old {
		var source string
		answer := l.driver(map[string]string{"op": "builtin", "name": file})
		if json.Unmarshal(answer, &source) != nil || source == "" {
			return "", false
		}
		return source, true
	}
	b, err := l.files.ReadFile(file)
	if err != nil {
		return "", false
	}
	text := strings.ToValidUTF8(string(b), "\ufffd")
	switch path.Ext(file) {
	case ".json":
		return "export default " + text, json.Valid(b)
	case ".ts", ".mts":
		t, ok := l.translate(sandbox.Source{Code: text, Name: path.Base(file)})
		switch {
		case !ok:
			return "", false
		case t.Error != nil:
			return notTypeScript(file, t.Error.Line, t.Error.Message), true
		}
		l.driver(map[string]string{"op": "translated", "name": file, "map": t.Map})
		return t.Code, true
	}
	return text, true
}

// notTypeScript is a module whose import fails and says why: it is the name of one that
// there is not, which the driver knows by how it begins.
func notTypeScript(file string, line int, why string) string {
	if line > 0 {
		file = fmt.Sprintf("%s, line %d", file, line)
	}
	text, err := json.Marshal(strings.ReplaceAll(fmt.Sprintf("TypeScript in %s: %s", file, why), "'", "’"))
	if err != nil {
		return ""
	}
	return "export * from " + string(text) + ";\n"
}
