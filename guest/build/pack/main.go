// Pack turns the freshly built guests into the archives that the binary
// embeds.
//
//	pack -python DIR -javascript DIR -drivers DIR -out DIR
//	pack -worker FILE -out DIR                              the native worker's program
//
// Its output depends on its input alone: two runs give the same bytes.
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"paddock/guest"
	"paddock/guest/build/instrument"
)

// versions of the interpreters, as the build scripts pin them.
const (
	pythonVersion     = "3.13.5"
	javascriptVersion = "QuickJS-NG (quickjs-wasi 3.6.2)"
)

func main() {
	python := flag.String("python", "", "folder with python.wasm, lib and licenses")
	pip := flag.String("pip", "", "folder with the library's and the licenses' part of pip")
	javascript := flag.String("javascript", "", "folder with quickjs.wasm, driver.js and licenses")
	drivers := flag.String("drivers", "guest/python", "folder with the Python driver's modules")
	worker := flag.String("worker", "", "the native worker's program")
	out := flag.String("out", "guest/dist", "where the packed guests go")
	flag.Parse()
	err := error(nil)
	if *worker != "" {
		err = packWorker(*worker, *out)
	} else {
		err = packAll(*python, *pip, *javascript, *drivers, *out)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "paddock: error: packing the guests: %v\n", err)
		os.Exit(1)
	}
}

// packWorker leaves worker.zst and its content's digest, worker.sha256. The
// digest is written last: without it nothing is there.
func packWorker(path, out string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	packed, sum := filepath.Join(out, "worker.zst"), filepath.Join(out, "worker.sha256")
	if err := os.RemoveAll(sum); err != nil {
		return err
	}
	if err := os.WriteFile(packed, z.EncodeAll(program, nil), 0o644); err != nil {
		return err
	}
	digest := sha256.Sum256(program)
	return os.WriteFile(sum, []byte(hex.EncodeToString(digest[:])+"\n"), 0o644)
}

func packAll(python, pip, javascript, drivers, out string) error {
	if python != "" {
		p := pack{name: "python", version: pythonVersion, files: map[string][]byte{}}
		if err := p.module(filepath.Join(python, "python.wasm"), instrument.Tick{Module: "paddock", Name: "tick"}); err != nil {
			return err
		}
		if err := p.tree(drivers, "lib/", ".py"); err != nil {
			return err
		}
		for _, part := range []string{"lib", "licenses"} {
			for _, dir := range []string{python, pip} {
				if dir == "" {
					continue
				}
				if err := p.tree(filepath.Join(dir, part), part+"/", ""); err != nil {
					return err
				}
			}
		}
		if err := p.write(out); err != nil {
			return err
		}
	}
	if javascript != "" {
		p := pack{name: "javascript", version: javascriptVersion, files: map[string][]byte{}}
		// QuickJS asks env.host_interrupt whether to stop; the instrumented
		// code uses the same door, and the host tells the two apart by the
		// counter, which is below zero only in a tick.
		if err := p.module(filepath.Join(javascript, "quickjs.wasm"), instrument.Tick{Module: "env", Name: "host_interrupt", HasResult: true}); err != nil {
			return err
		}
		driver, err := os.ReadFile(filepath.Join(javascript, "driver.js"))
		if err != nil {
			return err
		}
		p.files["driver.js"] = driver
		if err := p.tree(filepath.Join(javascript, "licenses"), "licenses/", ""); err != nil {
			return err
		}
		return p.write(out)
	}
	return nil
}

// pack is one guest's archive while it is filled.
type pack struct {
	name, version string
	files         map[string][]byte
}

func (p *pack) module(path string, tick instrument.Tick) error {
	wasm, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r, err := instrument.Prepare(wasm, tick)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	p.files["module.wasm"], p.files["memory.bin"] = r.Module, r.Memory
	fmt.Fprintf(os.Stderr, "paddock: guest: %s counts at %d places\n", p.name, r.Sites)
	return nil
}

// tree adds the files below dir whose names end in suffix.
func (p *pack) tree(dir, prefix, suffix string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) || strings.HasPrefix(d.Name(), "test_") && suffix != "" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := prefix + filepath.ToSlash(rel)
		if p.files[name] != nil {
			return fmt.Errorf("two files are called %s", name)
		}
		p.files[name] = body
		return nil
	})
}

func (p *pack) write(out string) error {
	names := make([]string, 0, len(p.files))
	for name := range p.files {
		names = append(names, name)
	}
	sort.Strings(names)
	sum := sha256.New()
	for _, name := range names {
		fmt.Fprintf(sum, "%s\x00%d\x00", name, len(p.files[name]))
		sum.Write(p.files[name])
	}
	manifest, err := json.Marshal(guest.Manifest{
		Name: p.name, Version: p.version, Digest: hex.EncodeToString(sum.Sum(nil)),
		HasLibrary: slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "lib/") }),
	})
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	z.RegisterCompressor(zstd.ZipMethodWinZip, zstd.ZipCompressor(zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1)))
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for _, name := range names {
		method := zip.Deflate
		if !strings.Contains(name, "/") { // the module, its memory, the driver: read whole, at every start
			method = zstd.ZipMethodWinZip
		}
		if err := add(z, name, p.files[name], method); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := write(filepath.Join(out, p.name+".zip"), archive.Bytes()); err != nil {
		return err
	}
	return write(filepath.Join(out, p.name+".json"), manifest)
}

// write puts a file in its place, whole or not at all.
func write(path string, body []byte) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(temp, body, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func add(z *zip.Writer, name string, body []byte, method uint16) error {
	w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method, Modified: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}
