package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"paddock/guest"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
)

// bootMemory is what an interpreter may use while it starts.
const bootMemory = 256 << 20

// imageVersion changes when the way of capturing does.
const imageVersion = "2"

// languageOf is how the guest called name is driven; nil: not known.
func languageOf(name string) language {
	switch name {
	case "python":
		return python{}
	case "javascript":
		return javascript{}
	}
	return nil
}

// program is one guest, compiled and captured, ready to be instantiated.
type program struct {
	guest    *guest.Guest
	language language
	code     code
	image    *linear.Image
	library  *wasi.Archive
}

// loader loads programs when they are first asked for. It is safe for
// concurrent use.
type loader struct {
	engine engine
	dir    string // cache folder

	mu       sync.Mutex // guards programs, and the engine while it loads
	programs map[string]*program
}

// ImagePath is where in a cache folder the captured memory of g lies: it is
// named by everything that the memory depends on, which the machine and the
// engine are not.
func ImagePath(cacheDir string, g *guest.Guest) string {
	return filepath.Join(cacheDir, "images", g.Name+"-"+version(g)+".img")
}

// compiledPath is a file that is there once wazero's compiled code of g is.
func compiledPath(cacheDir string, g *guest.Guest) string {
	return filepath.Join(compiledDir(cacheDir), wazeroVersion()+"-"+runtime.GOOS+"-"+runtime.GOARCH+"-"+g.Name+"-"+version(g))
}

func version(g *guest.Guest) string {
	sum := sha256.Sum256([]byte(imageVersion + "\x00" + g.Digest))
	return hex.EncodeToString(sum[:12])
}

// compiledDir is where in a cache folder wazero keeps compiled code.
func compiledDir(cacheDir string) string { return filepath.Join(cacheDir, "compiled") }

func newLoader(ctx context.Context, cacheDir string) (*loader, error) {
	e, err := newEngine(ctx, compiledDir(cacheDir))
	if err != nil {
		return nil, err
	}
	return &loader{engine: e, dir: cacheDir, programs: map[string]*program{}}, nil
}

// load gives the program of a runtime. With capture it makes the image where
// there is none; without, a missing image is an error.
func (l *loader) load(ctx context.Context, name string, capture bool) (*program, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.programs[name]; p != nil {
		return p, nil
	}
	p, err := l.compile(ctx, name)
	if err != nil {
		return nil, err
	}
	path := ImagePath(l.dir, p.guest)
	p.image, err = linear.Open(path)
	if err != nil && capture {
		if err = l.capture(p, path); err == nil {
			p.image, err = linear.Open(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the %s image: %w", name, err)
	}
	l.programs[name] = p
	return p, nil
}

// errCompiled is for a module that cannot be compiled, or whose compiled code
// in the cache is damaged: wazero does not say which.
var errCompiled = errors.New("compiling the guest")

func (l *loader) compile(ctx context.Context, name string) (*program, error) {
	p := &program{language: languageOf(name)}
	if p.language == nil {
		return nil, fmt.Errorf("there is no runtime called %q", name)
	}
	var err error
	if p.guest, err = guest.Open(name); err != nil {
		return nil, err
	}
	if p.code, err = l.engine.load(ctx, p.guest, p.language.imports()); err != nil {
		return nil, err
	}
	if p.guest.HasLibrary {
		p.library = wasi.NewArchive(p.guest.Library)
	}
	return p, nil
}

// capture starts the interpreter once, from the module's own initial memory,
// and keeps the memory as it is then: the same whenever and wherever that is
// done, because what is saved later are only the differences to it. So the
// world in which it starts stands still.
func (l *loader) capture(p *program, path string) error {
	initial, err := p.guest.Memory()
	if err != nil {
		return err
	}
	memory, err := p.code.reserve(nil, bootMemory)
	if err != nil {
		return err
	}
	size := (uint64(len(initial)) + 65535) / 65536 * 65536
	if memory.Reallocate(size) == nil {
		return errors.New("the initial memory is too large")
	}
	copy(memory.Bytes(), initial)
	in := &instance{program: p, log: os.Stderr}
	in.connect(nil)
	if err = in.openSystem(); err != nil {
		return err
	}
	defer in.system.Close()
	if in.vm, err = newVM(in, p.code, memory); err != nil {
		return err
	}
	defer in.vm.close()
	in.ends.Control.Begin(0)
	defer in.ends.Control.End()
	in.vm.setCounter(in.meter.portion())
	state, err := p.language.boot(in.vm)
	if err != nil {
		return fmt.Errorf("starting the interpreter: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return linear.Write(path, in.vm.bytes(), linear.Notes{
		StackPointer: in.vm.stackPointer(), State: state,
	})
}

// captureTime is what the clock shows while an image is captured: 2025-01-01,
// as when the guests are built.
var captureTime = time.Unix(1735689600, 0)

// still makes a world the same each time: no clock goes, and the random bytes
// are always these. So no interpreter may use what it drew at its capture: the
// request start seeds it again. What cannot be seeded again, Python's secret for
// hashing strings, is the same in every paddock; it keeps no one from anything
// but slowing down the own interpreter.
func still(config *wasi.Config) {
	config.Random = rand.NewChaCha8([32]byte{})
	config.Now = func() time.Time { return captureTime }
	config.CPU = func() time.Duration { return 0 }
}

// Prepared tells whether the cache holds the image of every guest in the
// binary, and its code where the engine compiles it.
func Prepared(cacheDir, engine string) (bool, error) {
	for _, name := range guest.Available() {
		g, err := guest.Open(name)
		if err != nil {
			return false, err
		}
		img, err := linear.Open(ImagePath(cacheDir, g))
		if err != nil {
			return false, nil // damaged or not there: it will be made
		}
		img.Close()
		if _, err := os.Stat(compiledPath(cacheDir, g)); err != nil && engine == wazeroName {
			return false, nil
		}
	}
	return true, nil
}

// Prepare compiles every guest in the binary and captures its image, so that
// no program has to wait for it. What is there and whole stays; compiled code
// that cannot be used is made again.
func Prepare(ctx context.Context, cacheDir string) error {
	err := prepare(ctx, cacheDir)
	if !errors.Is(err, errCompiled) || ctx.Err() != nil {
		return err
	}
	if e := os.RemoveAll(compiledDir(cacheDir)); e != nil {
		return errors.Join(err, e)
	}
	return prepare(ctx, cacheDir)
}

func prepare(ctx context.Context, cacheDir string) error {
	l, err := newLoader(ctx, cacheDir)
	if err != nil {
		return err
	}
	for _, name := range guest.Available() {
		p, err := l.load(ctx, name, true)
		if err == nil && EngineName == wazeroName {
			err = os.WriteFile(compiledPath(cacheDir, p.guest), nil, 0o644)
		}
		if err != nil {
			return fmt.Errorf("preparing %s: %w", name, err)
		}
	}
	return nil
}
