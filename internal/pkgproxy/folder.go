package pkgproxy

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"deps.dev/util/pypi"
	"deps.dev/util/semver"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// folder is an index that is a folder of this machine. Its files are looked at when
// they are asked for; whoever runs paddock may add some while it runs. What they are
// is remembered by their size and time.
type folder struct {
	p    *Packages
	root *os.Root

	mu    sync.Mutex
	known map[string]localFile
}

// localFile is what was found out about a file.
type localFile struct {
	size     int64
	modified time.Time
	sha256   digest
	sha512   digest
}

// maxLocal bounds how many files of a folder are looked at.
const maxLocal = 20_000

func (p *Packages) openFolder(dir string) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault.New(fault.Invalid, "a folder of packages that is configured cannot be opened").
			WithHint("check that it is there and can be read").WithCause(err)
	}
	return &folder{p: p, root: root, known: map[string]localFile{}}, nil
}

func (f *folder) close() { _ = f.root.Close() }

// names lists the plain files of the folder.
func (f *folder) names() ([]string, error) {
	list, err := fs.ReadDir(f.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("reading a folder of packages: %w", err)
	}
	var names []string
	for _, e := range list[:min(len(list), maxLocal)] {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// look finds out about a file.
func (f *folder) look(name string) (localFile, error) {
	file, err := f.root.Open(name)
	if err != nil {
		return localFile{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return localFile{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > f.p.config.FileBytes {
		return localFile{}, fault.New(fault.Exhausted, "a file in a folder of packages is too large, or is none")
	}
	f.mu.Lock()
	known, ok := f.known[name]
	f.mu.Unlock()
	if ok && known.size == info.Size() && known.modified.Equal(info.ModTime()) {
		return known, nil
	}
	found := localFile{size: info.Size(), modified: info.ModTime()}
	short, long := sha256.New(), sha512.New()
	if _, err := io.Copy(io.MultiWriter(short, long), file); err != nil {
		return localFile{}, err
	}
	found.sha256 = digest{"sha256", hex.EncodeToString(short.Sum(nil))}
	found.sha512 = digest{"sha512", hex.EncodeToString(long.Sum(nil))}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known[name] = found
	return found, nil
}

// manifest reads the package.json of one of npm's; nil: it has none.
func (f *folder) manifest(name string) ([]byte, error) {
	file, err := f.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := manifestOf(file)
	if err != nil {
		f.p.log.Warn("a file in a folder of packages is none of npm's", "file", name, "error", err)
		return nil, nil
	}
	return text, nil
}

// projects are the names of the Python packages that are here.
func (f *folder) projects() []string {
	names, _ := f.names()
	var out []string
	for _, name := range names {
		if guess := projectNameOf(name); guess != "" {
			out = append(out, guess)
		}
	}
	return out
}

// projectNameOf is whose file it is by its name; empty: it is not Python package's.
func projectNameOf(name string) string {
	if strings.HasSuffix(name, ".whl") {
		if w, err := parseWheelName(name); err == nil {
			return pypi.CanonPackageName(w.Name)
		}
		return ""
	}
	for _, ending := range sdistEndings {
		if base, ok := strings.CutSuffix(name, ending); ok {
			if at := strings.LastIndexByte(base, '-'); at > 0 {
				return pypi.CanonPackageName(base[:at])
			}
		}
	}
	return ""
}

// page gives what a folder has of a package: from the cache while its files are as they
// were, by their names, sizes and times.
func (f *folder) page(ctx context.Context, kind string, name string, system semver.System, files []string, write func(*pageWriter) error) (*page, error) {
	sum := sha256.New()
	for _, file := range files {
		info, err := f.root.Stat(file)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(sum, "%q %d %d\n", file, info.Size(), info.ModTime().UnixNano())
	}
	key, state := pageKey("folder of "+kind, f.root.Name()+" "+name), hex.EncodeToString(sum.Sum(nil))
	if p := f.p.store.openPage(key); p != nil && p.ETag == state {
		return p.found()
	} else if p != nil {
		p.close()
	}
	release, err := f.p.reserve(ctx, pageMemory)
	if err != nil {
		return nil, err
	}
	defer release()
	err = f.p.store.together(ctx, key+" "+state, func(context.Context) error {
		return f.p.store.keepPage(key, system, time.Now(), func(out *pageWriter) (pageHead, error) {
			err := write(out)
			return pageHead{ETag: state, Missing: len(out.rows) == 0, Tags: map[string]string{}}, err
		})
	})
	if err != nil {
		return nil, err
	}
	p := f.p.store.openPage(key)
	if p == nil {
		return nil, errAnotherPage
	}
	return p.found()
}

func (f *folder) project(ctx context.Context, name string) (*page, error) {
	names, err := f.names()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(file string) bool {
		_, ok := fileOf(file, name)
		return !ok || projectNameOf(file) != name
	})
	return f.page(ctx, kindPython, name, semver.PyPI, names, func(out *pageWriter) error {
		p := &project{name: name, out: out}
		for _, file := range names {
			at, err := f.look(file)
			if err != nil {
				return err
			}
			one := projectFile{name: file, digest: at.sha256, uploaded: at.modified.UTC(), size: at.size, local: true}
			one.version, _ = fileOf(file, name)
			if one.wheel() {
				if text, err := f.readMetadata(one); err == nil {
					sum := sha256.Sum256(text)
					one.described = digest{"sha256", hex.EncodeToString(sum[:])}
					one.requiresPython = requiresPython(text)
				}
			}
			if err := p.put(one); err != nil {
				return err
			}
		}
		return nil
	})
}

// requiresPython is the line of a wheel's metadata.
func requiresPython(metadata []byte) string {
	for line := range bytes.Lines(metadata) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break // the description follows
		}
		if value, ok := bytes.CutPrefix(line, []byte("Requires-Python:")); ok {
			if value = bytes.TrimSpace(value); len(value) <= maxRequires {
				return string(value)
			}
			return ""
		}
	}
	return ""
}

func (f *folder) open(ctx context.Context, file projectFile) (*stored, error) {
	return f.get(ctx, file.name, file.digest)
}

// get copies a file into the cache: it may be written to while it is given out.
func (f *folder) get(ctx context.Context, name string, d digest) (*stored, error) {
	return f.p.store.get(ctx, d, name, func(context.Context) (io.ReadCloser, error) { return f.root.Open(name) })
}

// metadata reads it from the wheel itself.
func (f *folder) metadata(_ context.Context, file projectFile) (io.ReadCloser, error) {
	text, err := f.readMetadata(file)
	return io.NopCloser(bytes.NewReader(text)), err
}

func (f *folder) readMetadata(file projectFile) ([]byte, error) {
	in, err := f.root.Open(file.name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return wheelMetadata(in, file.size)
}

// maxTable bounds a wheel's table of contents, in bytes.
const maxTable = 32 << 20

// wheelMetadata reads the METADATA of a wheel's one .dist-info folder.
func wheelMetadata(file io.ReaderAt, size int64) ([]byte, error) {
	table := &iolimit.ReaderAt{R: file, Left: maxTable, Over: fault.New(fault.Exhausted, "a wheel's table of contents is too large")}
	in, err := zip.NewReader(table, size)
	if err != nil {
		return nil, err
	}
	table.Left = maxMetadata * 2
	for _, f := range in.File {
		if dir, name := path.Split(f.Name); name == "METADATA" && strings.HasSuffix(dir, ".dist-info/") && strings.Count(dir, "/") == 1 {
			content, err := f.Open()
			if err != nil {
				return nil, err
			}
			defer content.Close()
			return readBounded(content, maxMetadata)
		}
	}
	return nil, errors.New("pkgproxy: a wheel without metadata")
}
