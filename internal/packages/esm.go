package packages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"

	"paddock/internal/fault"
)

// guestModules are Node's modules that the guest has (guest/js/driver/modules.js), and
// nodeModules all of Node's others.
var (
	guestModules = []string{
		"assert", "assert/strict", "buffer", "crypto", "events", "fs", "fs/promises", "module", "os", "path", "path/posix", "perf_hooks", "process",
		"readline", "readline/promises", "string_decoder", "timers", "timers/promises", "url", "util", "servers",
	}
	nodeModules = []string{
		"async_hooks", "child_process", "cluster", "console", "constants", "dgram", "diagnostics_channel", "dns", "dns/promises", "domain", "http", "http2",
		"https", "inspector", "inspector/promises", "net", "path/win32", "punycode", "querystring", "repl", "sea", "sqlite", "stream", "stream/consumers",
		"stream/promises", "stream/web", "sys", "test", "test/reporters", "tls", "trace_events", "tty", "util/types", "v8", "vm", "wasi", "worker_threads", "zlib",
	}
)

func guestHas(name string) bool {
	return slices.Contains(guestModules, strings.TrimPrefix(name, "node:"))
}

func nodeHas(name string) bool {
	return slices.Contains(nodeModules, strings.TrimPrefix(name, "node:")) || strings.HasPrefix(name, "node:")
}

// maxModules bounds what is made of the packages, in bytes; maxSubs how many modules of
// a package besides its own there are; maxSource one of its files that is read, and
// maxSources all of them.
const (
	maxModules = 64 << 20
	maxSubs    = 800
	maxSource  = 16 << 20
	maxSources = 128 << 20
)

// chunks is the folder below Modules with what several modules share.
const chunks = ".chunks/"

// bundled is what the bundler made: files below Modules.
type bundled struct {
	files map[string][]byte
	notes []string
	needs map[string]string // Node's modules that are not there, by the packages that import them
}

// entryPoint is a module that programs import by its name.
type entryPoint struct {
	spec, out string
	// common are the names that a CommonJS module exports; nil: it is another one.
	common []string
	isCJS  bool
}

// bundling makes modules of the packages in a folder.
type bundling struct {
	dir      string
	root     *os.Root
	platform api.Platform

	mu      sync.Mutex
	missing map[string][]string // Node's modules that are not there: the packages that want them
	native  []string            // packages with compiled parts
	loaded  int                 // bytes of sources
}

// bundleModules makes modules of packages, all at once, so that what they share is
// there once. It takes Node's side of a package, or the browsers' where that needs less
// of what the guest does not have.
func bundleModules(ctx context.Context, dir string, root *os.Root, names []string) (*bundled, error) {
	node := &bundling{dir: dir, root: root, platform: api.PlatformNode}
	made, err := node.run(ctx, names)
	if err != nil || len(node.missing) > 0 {
		browser := &bundling{dir: dir, root: root, platform: api.PlatformBrowser}
		other, otherErr := browser.run(ctx, names)
		if otherErr == nil && (err != nil || len(browser.missing) < len(node.missing)) {
			made, err, node = other, nil, browser
		}
	}
	if err != nil {
		return nil, err
	}
	return made, node.judge(made, names)
}

// judge refuses packages that cannot work, and notes what may not.
func (b *bundling) judge(made *bundled, names []string) error {
	if len(b.native) > 0 {
		return fault.New(fault.Unsupported, "the npm package %s has compiled parts, and does not work with isolation %q", strings.Join(b.native, ", "), isolationWasm).
			WithHint("it installs in a session with isolation %q", isolationLinux)
	}
	for _, name := range names {
		if module, ok := made.needs[name]; ok {
			return fault.New(fault.Unsupported, "the npm package %s needs Node's module %q, which isolation %q does not have", name, module, isolationWasm).
				WithHint("it installs in a session with isolation %q", isolationLinux)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(b.missing)) {
		by := slices.Compact(slices.Sorted(slices.Values(b.missing[module])))
		made.notes = append(made.notes, fmt.Sprintf("%s uses Node's module %q, which isolation %q does not have: what needs it works with isolation %q", strings.Join(by, ", "), module, isolationWasm, isolationLinux))
	}
	return nil
}

// run builds once to see which modules are CommonJS, and again with names for those.
func (b *bundling) run(ctx context.Context, names []string) (*bundled, error) {
	made := &bundled{files: map[string][]byte{}}
	var entries []entryPoint
	for _, name := range names {
		entries = append(entries, b.entries(name)...)
	}
	result, err := b.build(ctx, entries)
	if err != nil { // one of what they have besides may be at fault
		entries = slices.DeleteFunc(entries, func(e entryPoint) bool { return !slices.Contains(names, e.spec) })
		if result, err = b.build(ctx, entries); err != nil {
			return nil, err
		}
	}
	meta, err := readMeta(result.Metafile)
	if err != nil {
		return nil, err
	}
	common := false
	for name, out := range meta.Outputs {
		for k := range entries {
			if name == "out/"+entries[k].out+".js" && meta.Inputs[out.EntryPoint].Format == "cjs" {
				entries[k].isCJS, common = true, true
				entries[k].common = commonNames(b.root, meta, out.EntryPoint, 0, nil)
			}
		}
	}
	if common {
		if result, err = b.build(ctx, entries); err != nil {
			return nil, err
		}
		if meta, err = readMeta(result.Metafile); err != nil {
			return nil, err
		}
	}
	made.needs = meta.needed(meta.entries(names), b.packageOf)
	if err := b.collect(result.OutputFiles, made); err != nil {
		return nil, err
	}
	if err := made.addCommon(entries); err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, ok := made.files[name+"/index.js"]; !ok && !slices.ContainsFunc(entries, func(e entryPoint) bool { return strings.HasPrefix(e.spec, name+"/") }) {
			made.notes = append(made.notes, name+" has nothing that can be imported")
		}
	}
	return made, nil
}

// collect takes what the bundler made.
func (b *bundling) collect(files []api.OutputFile, made *bundled) error {
	size := 0
	for _, file := range files {
		rel, err := filepath.Rel(filepath.Join(b.dir, "out"), file.Path)
		if err != nil || !filepath.IsLocal(rel) {
			return fmt.Errorf("the bundler made a file elsewhere: %q", file.Path)
		}
		if size += len(file.Contents); size > maxModules {
			return errTooLarge()
		}
		made.files[filepath.ToSlash(rel)] = file.Contents
	}
	return nil
}

func errTooLarge() error {
	return fault.New(fault.Exhausted, "the packages' modules are larger than %d bytes", maxModules).WithHint("install fewer, or smaller ones")
}

// entries are the modules of a package that programs may import: itself, and what its
// exports name, or its files where it names none.
func (b *bundling) entries(name string) []entryPoint {
	var in struct {
		Exports               any
		Main, Module, Browser any
		Types, Typings        any
	}
	folder := "node_modules/" + name
	text, err := b.read(folder + "/package.json")
	if err != nil || json.Unmarshal(text, &in) != nil {
		return nil
	}
	var all []entryPoint
	if b.hasMain(folder, in.Exports, in.Main, in.Module) {
		all = append(all, entryPoint{spec: name, out: name + "/index"})
	}
	add := func(sub string) {
		sub = strings.TrimPrefix(sub, "./")
		out := subEnding.ReplaceAllString(sub, "")
		switch path.Ext(sub) {
		case ".json", ".css", ".map", ".ts", ".cts", ".mts", ".md", ".node", ".wasm", ".html", ".txt":
			return
		}
		if sub == "" || sub == "." || out == "index" || len(all) > maxSubs || !fs.ValidPath(sub) || strings.HasPrefix(sub, "node_modules") {
			return
		}
		e := entryPoint{spec: name + "/" + sub, out: name + "/" + out}
		if !slices.ContainsFunc(all, func(o entryPoint) bool { return o.out == e.out }) {
			all = append(all, e)
		}
	}
	if exports, ok := in.Exports.(map[string]any); ok {
		for _, key := range slices.Sorted(maps.Keys(exports)) {
			if strings.HasPrefix(key, "./") && !strings.Contains(key, "*") && exports[key] != nil {
				add(key)
			}
		}
	} else if in.Exports == nil {
		list, _ := fs.ReadDir(b.root.FS(), folder)
		for _, e := range list {
			if e.Type().IsRegular() && subFile.MatchString(e.Name()) && !strings.Contains(e.Name(), ".config.") && !strings.HasPrefix(e.Name(), ".") {
				add(e.Name())
			}
		}
	}
	return all
}

var (
	subEnding = regexp.MustCompile(`\.(?:js|mjs|cjs)$`)
	subFile   = regexp.MustCompile(`^[\w$][\w$.-]*\.(?:js|mjs|cjs)$`)
)

// hasMain tells whether a package itself can be imported.
func (b *bundling) hasMain(folder string, exports, main, module any) bool {
	if object, ok := exports.(map[string]any); ok {
		subs := 0
		for key := range object {
			if key == "." {
				return true
			}
			if strings.HasPrefix(key, "./") {
				subs++
			}
		}
		return subs == 0
	}
	if exports != nil {
		return true
	}
	for _, text := range []any{main, module} {
		if name, ok := text.(string); ok && name != "" {
			return true
		}
	}
	for _, name := range []string{"index.js", "index.json", "index.mjs", "index.cjs"} {
		if info, err := b.root.Stat(folder + "/" + name); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// read reads a file of the packages, which no name leads out of.
func (b *bundling) read(name string) ([]byte, error) {
	f, err := b.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, maxSource)
}

// build has the bundler make modules of entries.
func (b *bundling) build(ctx context.Context, entries []entryPoint) (*api.BuildResult, error) {
	b.missing, b.native, b.loaded = map[string][]string{}, nil, 0
	points := make([]api.EntryPoint, 0, len(entries))
	for k, e := range entries {
		points = append(points, api.EntryPoint{InputPath: fmt.Sprintf("%s%d", entryPrefix, k), OutputPath: e.out})
	}
	if len(points) == 0 {
		return &api.BuildResult{Metafile: "{}"}, nil
	}
	c, failed := api.Context(api.BuildOptions{
		AbsWorkingDir: b.dir, Outdir: filepath.Join(b.dir, "out"), EntryPointsAdvanced: points, ChunkNames: chunks + "[name]-[hash]",
		Bundle: true, Splitting: true, Format: api.FormatESModule, Platform: b.platform, Target: api.ES2023, Metafile: true,
		MainFields: map[api.Platform][]string{api.PlatformNode: {"module", "main"}, api.PlatformBrowser: {"browser", "module", "main"}}[b.platform],
		Define:     map[string]string{"process.env.NODE_ENV": `"production"`, "global": "globalThis", "__filename": `"/index.js"`, "__dirname": `"/"`},
		LogLevel:   api.LogLevelSilent, LegalComments: api.LegalCommentsInline, TsconfigRaw: "{}", Plugins: []api.Plugin{b.plugin(entries)},
		LogOverride: map[string]api.LogLevel{"import-is-undefined": api.LogLevelSilent},
	})
	if failed != nil {
		return nil, b.failed(failed.Errors)
	}
	defer c.Dispose()
	stop := context.AfterFunc(ctx, c.Cancel)
	defer stop()
	result := c.Rebuild()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(result.Errors) > 0 {
		return nil, b.failed(result.Errors)
	}
	return &result, nil
}

// failed says why the bundler could not make something.
func (b *bundling) failed(all []api.Message) error {
	first := all[0]
	text := strings.ReplaceAll(strings.ReplaceAll(first.Text, b.dir+string(filepath.Separator), ""), b.dir, "")
	if first.Location != nil {
		text = fmt.Sprintf("%s:%d: %s", first.Location.File, first.Location.Line, text)
	}
	return fault.New(fault.Unsupported, "a module cannot be made of the packages: %.300s", text).
		WithHint("it may install in a session with isolation %q", isolationLinux).WithCause(errors.New(first.Text))
}

// The namespaces of what is no file.
const (
	entryPrefix     = "paddock-entry:"
	entrySpace      = "entry"
	missingSpace    = "missing"
	resolvedAlready = "resolved"
)

// plugin keeps the bundler within the folder, and says what the guest has.
func (b *bundling) plugin(entries []entryPoint) api.Plugin {
	return api.Plugin{Name: "packages", Setup: func(build api.PluginBuild) {
		build.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			if a.PluginData == resolvedAlready {
				return api.OnResolveResult{}, nil
			}
			return b.find(build, entries, a), nil
		})
		build.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: entrySpace}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			text := entries[entryNumber(a.Path)].stub()
			return api.OnLoadResult{Contents: &text, ResolveDir: b.dir, Loader: api.LoaderJS}, nil
		})
		build.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: missingSpace}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			text := fmt.Sprintf(missingModule, missingText(a.Path))
			return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}, nil
		})
		build.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: "file"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) { return b.load(a.Path) })
	}}
}

// missingModule stands for a module that is not there: what it would have can be named,
// and fails when it is called.
const missingModule = `const fail = () => { throw new Error(%q); };
const part = () => new Proxy(function () {}, {
  get: (t, k) => k === "prototype" ? t.prototype : k === "then" || k === "__esModule" || typeof k === "symbol" ? undefined : part(),
  apply: fail, construct: fail,
});
module.exports = part();
`

func missingText(module string) string {
	if nodeHas(module) {
		return fmt.Sprintf("Node's module %q is not there with isolation %q; with isolation %q it is", module, isolationWasm, isolationLinux)
	}
	return fmt.Sprintf("could not load module '%s'", module)
}

func entryNumber(text string) (n int) {
	_, _ = fmt.Sscanf(strings.TrimPrefix(text, entryPrefix), "%d", &n)
	return n
}

// stub is a module that has the names of a CommonJS one.
func (e entryPoint) stub() string {
	var s strings.Builder
	fmt.Fprintf(&s, "import * as all from %q;\nexport default all.default;\n", e.spec)
	for k, name := range e.common {
		fmt.Fprintf(&s, "const x%d = all.%s; export { x%d as %s };\n", k, name, k, name)
	}
	return s.String()
}

// find resolves an import: within the packages, to the guest's own modules, or to one
// that says that it is not there.
func (b *bundling) find(build api.PluginBuild, entries []entryPoint, a api.OnResolveArgs) api.OnResolveResult {
	asked, dir, kind := a.Path, a.ResolveDir, a.Kind
	if kind == api.ResolveEntryPoint {
		e := entries[entryNumber(asked)]
		if e.isCJS {
			return api.OnResolveResult{Path: asked, Namespace: entrySpace}
		}
		asked, dir, kind = e.spec, b.dir, api.ResolveJSImportStatement
	}
	if strings.HasPrefix(asked, "data:") || strings.HasPrefix(asked, "http:") || strings.HasPrefix(asked, "https:") || strings.HasPrefix(asked, "//") {
		return b.notThere(a, asked)
	}
	if b.platform == api.PlatformNode && guestHas(asked) && !strings.HasSuffix(asked, "/") {
		return api.OnResolveResult{Path: strings.TrimPrefix(asked, "node:"), External: true}
	}
	found := build.Resolve(asked, api.ResolveOptions{ResolveDir: dir, Importer: a.Importer, Namespace: "file", Kind: kind, PluginData: resolvedAlready})
	name := strings.TrimSuffix(asked, "/")
	switch {
	case len(found.Errors) == 0 && !found.External && found.Namespace == "file" && b.inside(found.Path),
		len(found.Errors) == 0 && found.Namespace != "file" && !found.External: // switched off by a field "browser"
		return api.OnResolveResult{Path: found.Path, Namespace: found.Namespace, Suffix: found.Suffix, SideEffects: map[bool]api.SideEffects{true: api.SideEffectsTrue, false: api.SideEffectsFalse}[found.SideEffects]}
	case guestHas(name):
		return api.OnResolveResult{Path: strings.TrimPrefix(name, "node:"), External: true}
	}
	return b.notThere(a, name)
}

// inside tells whether a file is one of the packages'.
func (b *bundling) inside(file string) bool {
	rel, err := filepath.Rel(b.dir, file)
	return err == nil && filepath.IsLocal(rel) && strings.HasPrefix(filepath.ToSlash(rel), "node_modules/")
}

// notThere notes that a module is wanted which is not there, and by which package.
func (b *bundling) notThere(a api.OnResolveArgs, module string) api.OnResolveResult {
	if nodeHas(module) {
		by := b.packageOf(a.Importer)
		b.mu.Lock()
		module := strings.TrimPrefix(module, "node:")
		b.missing[module] = append(b.missing[module], by)
		b.mu.Unlock()
	}
	return api.OnResolveResult{Path: module, Namespace: missingSpace}
}

// packageOf is the package that a file belongs to.
func (b *bundling) packageOf(file string) string {
	rel := filepath.ToSlash(file)
	at := strings.LastIndex(rel, "node_modules/")
	if at < 0 {
		return "a package"
	}
	parts := strings.SplitN(rel[at+len("node_modules/"):], "/", 3)
	if strings.HasPrefix(parts[0], "@") && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// loaders are how files are read by their ending; all others are empty.
var loaders = map[string]api.Loader{
	".js": api.LoaderJS, ".mjs": api.LoaderJS, ".cjs": api.LoaderJS, ".jsx": api.LoaderJSX, ".ts": api.LoaderTS, ".mts": api.LoaderTS, ".cts": api.LoaderTS,
	".tsx": api.LoaderTSX, ".json": api.LoaderJSON, ".txt": api.LoaderText, ".wasm": api.LoaderBinary, "": api.LoaderJS,
}

// load reads a file of the packages.
func (b *bundling) load(file string) (api.OnLoadResult, error) {
	rel, err := filepath.Rel(b.dir, file)
	if err != nil || !b.inside(file) {
		return api.OnLoadResult{}, errors.New("a file that is not a package's")
	}
	if filepath.Ext(file) == ".node" {
		b.mu.Lock()
		if by := b.packageOf(file); !slices.Contains(b.native, by) {
			b.native = append(b.native, by)
		}
		b.mu.Unlock()
	}
	loader, ok := loaders[filepath.Ext(file)]
	if !ok {
		text := ""
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderEmpty}, nil
	}
	f, err := b.root.Open(filepath.ToSlash(rel))
	if err != nil {
		return api.OnLoadResult{}, errors.New("a file that cannot be read")
	}
	defer f.Close()
	data, err := readBounded(f, maxSource)
	if err != nil {
		return api.OnLoadResult{}, errors.New("a file that cannot be read, or is too large")
	}
	b.mu.Lock()
	b.loaded += len(data)
	over := b.loaded > maxSources
	b.mu.Unlock()
	if over {
		return api.OnLoadResult{}, errors.New("the packages' sources are too large")
	}
	text := string(data)
	return api.OnLoadResult{Contents: &text, Loader: loader, ResolveDir: filepath.Dir(file)}, nil
}
