package pkgproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"
)

// A pack is one npm package as the JavaScript guest loads it (guest/js/driver/packages.js):
// 16 hexadecimal digits that say how long its header is, the header, and the files'
// contents. It depends on the package's own files alone, so it is made once for all trees
// that have the package.

// packFormat counts the ways to make packs: with the compiler's version it is part of their
// key.
const packFormat = 2

// madeBy is what makes packs: a pack of another one is made again.
var madeBy = sync.OnceValue(func() string {
	compiler := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/evanw/esbuild" {
				compiler = m.Version
			}
		}
	}
	return fmt.Sprintf("%d %s", packFormat, compiler)
})

// packHeader says what a pack holds.
type packHeader struct {
	// Files are the contents by their names in the package: the offset behind the header,
	// the length, and what it is (a pack… constant).
	Files map[string]packedFile `json:"files"`
}

type packedFile struct {
	At, Size int64
	Kind     string
}

// MarshalJSON implements [json.Marshaler].
func (f packedFile) MarshalJSON() ([]byte, error) { return json.Marshal([]any{f.At, f.Size, f.Kind}) }

// UnmarshalJSON implements [json.Unmarshaler].
func (f *packedFile) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&f.At, &f.Size, &f.Kind})
}

// What a file of a pack is.
const (
	packCommon = "c" // CommonJS, as it came
	packModule = "m" // an ES module, as the function that CommonJS is
	packAwait  = "a" // an ES module that waits at its outermost level, as it came
	packJSON   = "j"
	packAsset  = "f" // anything else: a file of its own beside the pack, for who reads it
	packNative = "n" // compiled for a machine; left out
	packBroken = "x" // what says why it cannot be loaded
)

// maxModules bounds the packs of an installation, in bytes; maxSource one file that is
// read, maxSources those of one package, maxAsset a file of its own, and maxAssets how
// many of them a package has.
const (
	maxModules = 64 << 20
	maxSource  = 16 << 20
	maxSources = 48 << 20
	maxAsset   = 4 << 20
	maxAssets  = 200
)

// packing makes a pack of a folder.
type packing struct {
	root   *os.Root
	folder string
	header packHeader
	body   bytes.Buffer
	assets int
}

// makePack makes the pack of the package in a folder.
func makePack(ctx context.Context, root *os.Root, folder string) ([]byte, error) {
	p := &packing{root: root, folder: folder, header: packHeader{Files: map[string]packedFile{}}}
	if err := p.take(ctx, "", false); err != nil {
		return nil, err
	}
	header, err := json.Marshal(p.header)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{fmt.Appendf(nil, "%016x", len(header)), header, p.body.Bytes()}, nil), nil
}

// take packs a folder of the package. modules tells what its package.json above says: its
// .js are ES modules.
func (p *packing) take(ctx context.Context, inner string, modules bool) error {
	if text, err := p.read(path.Join(inner, "package.json")); err == nil {
		var m struct{ Type any }
		modules = json.Unmarshal(text, &m) == nil && m.Type == "module"
	}
	list, err := fs.ReadDir(p.root.FS(), path.Join(p.folder, inner))
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := path.Join(inner, e.Name())
		if e.IsDir() {
			below := modules && e.Name() != "node_modules"
			if err := p.take(ctx, name, below); err != nil {
				return err
			}
			continue
		}
		if err := p.file(name, modules); err != nil {
			return err
		}
	}
	return nil
}

func (p *packing) read(inner string) ([]byte, error) {
	f, err := p.root.Open(path.Join(p.folder, inner))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, maxSource)
}

// notForPrograms are files that no program loads: types, maps, and what people read.
var notForPrograms = regexp.MustCompile(`(?i)(?:\.(?:[cm]?tsx?|map|md|markdown|flow|tsbuildinfo|snap)|(?:^|/)(?:\.[^/]*|licen[cs]e[^/]*|readme[^/]*|changelog[^/]*|authors|contributing[^/]*|makefile))$`)

// file packs one file.
func (p *packing) file(name string, modules bool) error {
	ext := path.Ext(name)
	switch {
	case ext == ".node":
		p.add(name, packNative, nil)
		return nil
	case ext != ".json" && ext != ".js" && ext != ".cjs" && ext != ".mjs":
		return p.asset(name, notForPrograms.MatchString(name))
	}
	text, err := p.read(name)
	if err != nil || p.body.Len()+len(text) > maxSources {
		p.add(name, packBroken, []byte("the file is too large"))
		return nil
	}
	if ext == ".json" {
		p.add(name, packJSON, bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
		return nil
	}
	kind, code := sourceOf(name, text, ext == ".mjs" || ext == ".js" && modules, ext == ".js" && !modules)
	p.add(name, kind, code)
	return nil
}

// asset notes a file that programs may read.
func (p *packing) asset(name string, skip bool) error {
	info, err := p.root.Stat(path.Join(p.folder, name))
	if skip || err != nil || info.Size() > maxAsset || p.assets >= maxAssets {
		return nil
	}
	text, err := p.read(name)
	if err != nil || p.body.Len()+len(text) > maxSources {
		return nil
	}
	p.assets++
	p.add(name, packAsset, text)
	return nil
}

func (p *packing) add(name, kind string, text []byte) {
	p.header.Files[name] = packedFile{int64(p.body.Len()), int64(len(text)), kind}
	p.body.Write(text)
}

// moduleSyntax matches what no CommonJS file has at the beginning of a line. As Node does,
// a file that does not say what it is may be an ES module by what stands in it.
var moduleSyntax = regexp.MustCompile(`(?m)^[ \t]*(?:import\s*(?:[\w*{$]|["'])|export\s*(?:[*{]|default\b|(?:const|let|var|function|class|async)\b))|\bimport\.meta\b|;export\s*\{|\bexport\s*\{[^}]*\};?\s*$|^import\b`)

// sourceOf is a source as the guest loads it.
func sourceOf(name string, text []byte, module, maybe bool) (kind string, code []byte) {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(text, []byte("#!")) {
		text = append([]byte("//"), text...)
	}
	if !module && !(maybe && moduleSyntax.Match(text)) {
		return packCommon, text
	}
	source := text
	if module { // what exports nothing is one as well
		source = append(bytes.Clone(text), "\nexport {};\n"...)
	}
	result := transform(name, source, api.FormatCommonJS)
	if len(result.Errors) == 0 {
		if !module && !more(result.Code, text, "__toCommonJS") && !more(result.Code, text, "__toESM(require(") {
			return packCommon, text
		}
		return packModule, append([]byte(`"use strict";`), result.Code...)
	}
	if !module {
		return packCommon, text // it says itself what is wrong with it
	}
	if alone := transform(name, text, api.FormatESModule); len(alone.Errors) == 0 {
		return packAwait, text
	}
	first := result.Errors[0]
	if first.Location != nil {
		return packBroken, fmt.Appendf(nil, "SyntaxError: %.300s (line %d)", first.Text, first.Location.Line)
	}
	return packBroken, fmt.Appendf(nil, "SyntaxError: %.300s", first.Text)
}

// more tells whether a compiler has written something into a source: the source may be what
// the same compiler made.
func more(code, text []byte, what string) bool {
	return bytes.Count(code, []byte(what)) > bytes.Count(text, []byte(what))
}

// transform writes one source in another form. What it imports stays as it is. The source has
// a name in .js: of one in .mjs esbuild would have the whole of what it imports as its
// default, which is for the guest to say.
func transform(name string, text []byte, format api.Format) api.TransformResult {
	return api.Transform(string(text), api.TransformOptions{
		Format: format, Platform: api.PlatformNode, Target: api.ES2023, LogLevel: api.LogLevelSilent, TsconfigRaw: "{}", Sourcefile: strings.TrimSuffix(path.Base(name), path.Ext(name)) + ".js", LegalComments: api.LegalCommentsInline,
		Define:      map[string]string{"import.meta": "__paddock_meta"},
		LogOverride: map[string]api.LogLevel{"empty-import-meta": api.LogLevelSilent},
		Supported:   map[string]bool{"dynamic-import": true},
	})
}
