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
		if _, err := fs.Stat(dist, "dist/"+name+".json"); err == nil {
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
	// HasLibrary tells whether there is a Library.
	HasLibrary bool `json:"library,omitempty"`
}

// Guest is one packed guest. It is safe for concurrent use. Its pack is opened
// when something of it is needed: a process that runs captured guests with
// code of its own seldom needs any.
type Guest struct {
	Manifest
	pack func() (*zip.Reader, error)
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
	manifest, err := dist.ReadFile("dist/" + name + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Unavailable, "this binary was built without the %s guest", name).
			WithHint("run make in paddock's source folder; it builds the guests and a binary that holds them")
	}
	g := &Guest{pack: sync.OnceValues(func() (*zip.Reader, error) { return openPack(name) })}
	if err == nil {
		err = json.Unmarshal(manifest, &g.Manifest)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the embedded %s guest's manifest: %w", name, err)
	}
	open[name] = g
	return g, nil
}

func openPack(name string) (*zip.Reader, error) {
	pack, err := dist.ReadFile("dist/" + name + ".zip")
	if err != nil {
		return nil, err
	}
	files, err := zip.NewReader(bytes.NewReader(pack), int64(len(pack)))
	if err != nil {
		return nil, fmt.Errorf("opening the embedded %s guest: %w", name, err)
	}
	files.RegisterDecompressor(zstd.ZipMethodWinZip, zstd.ZipDecompressor())
	return files, nil
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

// Library is the language's own library, as the guest sees it. A guest without
// one has all of it in its driver.
func (g *Guest) Library() (fs.FS, error) {
	files, err := g.pack()
	if err != nil {
		return nil, err
	}
	return fs.Sub(files, "lib")
}

func (g *Guest) file(name string) ([]byte, error) {
	files, err := g.pack()
	if err != nil {
		return nil, err
	}
	f, err := files.Open(name)
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
