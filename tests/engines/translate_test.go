package engines

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

const (
	repository = "../.."
	runtimeDir = repository + "/internal/sandbox/wasm/native"
	compilers  = 2 // at once
)

// translation is what turns modules into a program: the tools that translate
// the guests, with the guests' flags.
type translation struct {
	tools    string   // the folder of wasm2c and its header
	flags    []string // of the compiler
	identity string   // of the tools
	cache    string
}

// wasm is one module under a name that C can have.
type wasm struct {
	name string
	code []byte
}

func newTranslation(t *testing.T) *translation {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", "tools.sh").Output()
	sandboxtest.Require(t, "native", err == nil, "the tools that translate guests are not here (make engines)")
	lines := strings.Split(string(out), "\n")
	if len(lines) < 3 {
		t.Fatalf("tools.sh says %q", out)
	}
	return &translation{lines[0], strings.Fields(lines[1]), lines[2], sandboxtest.BuildCache(t)}
}

// with gives the same translation with more flags.
func (tr translation) with(flags ...string) *translation {
	tr.flags = append(tr.flags[:len(tr.flags):len(tr.flags)], flags...)
	return &tr
}

// program is what modules became.
type program struct {
	path    string
	refused map[string]string // modules that wasm2c does not take: what it says
}

// build translates modules and links them with the guests' runtime and the
// harness. What it gives is kept in the cache, by the digest of all that went
// into it.
func (tr *translation) build(t *testing.T, modules []wasm) *program {
	t.Helper()
	dir := filepath.Join(tr.cache, "engines-"+tr.key(t, modules))
	if _, err := os.Stat(dir); err != nil {
		work, err := os.MkdirTemp(tr.cache, "engines.tmp-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(work)
		if err := tr.buildIn(t.Context(), work, modules); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(work, "done"), dir); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	p := &program{path: filepath.Join(dir, "run")}
	text, err := os.ReadFile(filepath.Join(dir, "refused.json"))
	if err == nil {
		err = json.Unmarshal(text, &p.refused)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (tr *translation) key(t *testing.T, modules []wasm) string {
	t.Helper()
	h := sha256.New()
	fmt.Fprintln(h, tr.identity, tr.flags)
	var inputs []string
	for _, pattern := range []string{repository + "/guest/build/native/*.go", runtimeDir + "/guest.[ch]", "testdata/harness.c", "translate_test.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no %s", pattern)
		}
		inputs = append(inputs, found...)
	}
	for _, path := range inputs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(path), len(text), text)
	}
	for _, m := range modules {
		fmt.Fprintf(h, "%s %d\n%s", m.name, len(m.code), m.code)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// buildIn leaves dir/done.
func (tr *translation) buildIn(ctx context.Context, dir string, modules []wasm) error {
	refused, err := tr.toC(ctx, dir, modules)
	if err != nil {
		return err
	}
	sources, err := filepath.Glob(dir + "/c/*.c")
	if err != nil {
		return err
	}
	sources = append(sources, runtimeDir+"/guest.c", "testdata/harness.c")
	objects := make([]string, len(sources))
	err = each(len(sources), func(i int) error {
		objects[i] = filepath.Join(dir, "c", filepath.Base(sources[i])+".o")
		args := append(tr.flags[:len(tr.flags):len(tr.flags)], "-I", dir+"/c", "-I", runtimeDir, "-I", tr.tools+"/include", "-c", sources[i], "-o", objects[i])
		if err := execute(ctx, "clang-19", args...); err != nil {
			return err
		}
		// What the functions of one module share is nobody else's.
		return execute(ctx, "objcopy", "--localize-hidden", objects[i])
	})
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir+"/done", 0o755); err != nil {
		return err
	}
	if err := execute(ctx, "clang-19", append(objects, "-pthread", "-lm", "-Wl,--strip-all", "-o", dir+"/done/run")...); err != nil {
		return err
	}
	text, err := json.Marshal(refused)
	if err != nil {
		return err
	}
	return os.WriteFile(dir+"/done/refused.json", text, 0o644)
}

// toC leaves the modules that wasm2c takes in dir/c, as guest/build/native
// divides them.
func (tr *translation) toC(ctx context.Context, dir string, modules []wasm) (refused map[string]string, err error) {
	refused = map[string]string{}
	var mu sync.Mutex // guards refused
	err = each(len(modules), func(i int) error {
		base := filepath.Join(dir, modules[i].name)
		if err := os.WriteFile(base+".wasm", modules[i].code, 0o644); err != nil {
			return err
		}
		if err := execute(ctx, tr.tools+"/bin/wasm2c", "-n", modules[i].name, base+".wasm", "-o", base+".c"); err != nil {
			mu.Lock()
			defer mu.Unlock()
			refused[modules[i].name] = err.Error()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	args := []string{"-any", "-out", dir + "/c"}
	for _, m := range modules {
		if _, no := refused[m.name]; !no {
			args = append(args, filepath.Join(dir, m.name+".c"))
		}
	}
	if err := execute(ctx, "go", "build", "-o", dir+"/native", "paddock/guest/build/native"); err != nil {
		return nil, err
	}
	return refused, execute(ctx, dir+"/native", args...)
}

// each calls f for each number below n, some at a time, and joins the errors.
func each(n int, f func(int) error) error {
	errs := make([]error, n)
	work := make(chan int)
	var wg sync.WaitGroup
	for range compilers {
		wg.Go(func() {
			for i := range work {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

func execute(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%.2000s", filepath.Base(name), err, said.String())
	}
	return nil
}
