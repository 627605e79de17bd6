// Package guest holds what runs inside the wasm isolation: the interpreters'
// WebAssembly modules, their initial memories, their libraries and drivers,
// packed by `make guests` and embedded into the binary.
package guest

import (
	"archive/zip"
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/fault"
)

//go:embed all:dist
var dist embed.FS

// Names lists the guests there are.
func Names() []string { return []string{"python", "javascript"} }

// Available lists those that this binary was built with.
func Available() []string {
	var there []string
	for _, name := range Names() {
		if _, err := fs.Stat(dist, "dist/"+name+".zip"); err == nil {
			there = append(there, name)
		}
	}
	return there
}

// Manifest describes a packed guest.
type Manifest struct {
	Name    string `json:"name"`
	Version string `json:"version"` // of the language's interpreter
	// Digest is the SHA-256 of everything in the pack, in hex: two guests with
	// the same digest behave the same and share captured memories.
	Digest string `json:"digest"`
}

// Guest is one packed guest. It is safe for concurrent use.
type Guest struct {
	Manifest
	files *zip.Reader
	lib   fs.FS
}

var (
	mu   sync.Mutex
	open = map[string]*Guest{}
)

// Open gives the guest called name. A binary that was built without it says
// so in a fault.Unavailable.
func Open(name string) (*Guest, error) {
	mu.Lock()
	defer mu.Unlock()
	if g := open[name]; g != nil {
		return g, nil
	}
	pack, err := dist.ReadFile("dist/" + name + ".zip")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Unavailable, "this binary was built without the %s guest", name).
			WithHint("run make in paddock's source folder; it builds the guests and a binary that holds them")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the embedded %s guest: %w", name, err)
	}
	g, err := read(name, pack)
	if err != nil {
		return nil, fmt.Errorf("opening the embedded %s guest: %w", name, err)
	}
	open[name] = g
	return g, nil
}

func read(name string, pack []byte) (*Guest, error) {
	files, err := zip.NewReader(bytes.NewReader(pack), int64(len(pack)))
	if err != nil {
		return nil, err
	}
	files.RegisterDecompressor(zstd.ZipMethodWinZip, zstd.ZipDecompressor())
	g := &Guest{files: files}
	manifest, err := g.file("manifest.json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(manifest, &g.Manifest); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if g.Name != name {
		return nil, fmt.Errorf("the pack holds %q", g.Name)
	}
	if _, err := fs.Stat(files, "lib"); err == nil {
		g.lib, err = fs.Sub(files, "lib")
		return g, err
	}
	return g, nil
}

// Module is the instrumented WebAssembly module, without its memory.
func (g *Guest) Module() ([]byte, error) { return g.file("module.wasm") }

// Memory is the module's initial memory from address zero; the rest is zeros.
func (g *Guest) Memory() ([]byte, error) { return g.file("memory.bin") }

// Driver is the text of a driver that is evaluated rather than imported; it
// is empty for guests whose driver lies in Library.
func (g *Guest) Driver() (string, error) {
	b, err := g.file("driver.js")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

// Library is the language's own library, as the guest sees it; nil for a guest
// that has all of it in its driver.
func (g *Guest) Library() fs.FS { return g.lib }

func (g *Guest) file(name string) ([]byte, error) {
	f, err := g.files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}
