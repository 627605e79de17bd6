package wasi

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
)

const noSpaceLimit = 1 << 30

// guest plays the guest: it lays parameters into a memory and calls.
type guest struct {
	*System
	t      testing.TB
	memory []byte
	next   uint32 // where parameters go
}

// world is what most tests need: /workspace (and /app), /ro, /lib/python.
type world struct {
	*guest
	host string // the folder behind /workspace; its parent holds a secret
	dir  *Dir
}

const secret = "programs inside may not read this"

func newWorld(t testing.TB, limit int64) *world {
	t.Helper()
	w := &world{host: filepath.Join(t.TempDir(), "workspace")}
	must(t, os.Mkdir(w.host, 0o755))
	must(t, os.WriteFile(filepath.Join(w.host, "..", "secret"), []byte(secret), 0o644))
	w.dir = newDir(t, w.host, limit, false)
	w.guest = w.again(t)
	return w
}

// again makes one more System over the same folders.
func (w *world) again(t testing.TB) *guest {
	t.Helper()
	ro := t.TempDir()
	must(t, os.WriteFile(filepath.Join(ro, "fixed"), []byte("fixed"), 0o644))
	archive := archiveOf(fstest.MapFS{
		"os.py":           {Data: []byte("import sys\n")},
		"json/decoder.py": {Data: []byte("class JSONDecoder: pass\n")},
	})
	return newGuest(t, Config{
		Args: []string{"python", "-c"}, Env: []string{"HOME=/workspace", "A="},
		Mounts: []Mount{
			{Guest: "/lib/python", Archive: archive},
			{Guest: "/workspace", Aliases: []string{"/app"}, Dir: w.dir},
			{Guest: "/ro", Dir: newDir(t, ro, noSpaceLimit, true)},
		},
	})
}

func archiveOf(files fs.FS) *Archive { return NewArchive(func() (fs.FS, error) { return files, nil }) }

func newDir(t testing.TB, host string, limit int64, readOnly bool) *Dir {
	t.Helper()
	root, err := os.OpenRoot(host)
	must(t, err)
	d := NewDir(root, limit, readOnly)
	t.Cleanup(func() { d.Close() })
	return d
}

func newGuest(t testing.TB, config Config) *guest {
	t.Helper()
	s, err := New(config)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return &guest{System: s, t: t, memory: make([]byte, 256<<10), next: 1024}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var byFunctionName = func() map[string]Function {
	all := map[string]Function{}
	for _, f := range Functions() {
		all[f.Name] = f
	}
	return all
}()

// call calls a function with parameters that are integers, or strings, which
// become two: address and length.
func (g *guest) call(name string, params ...any) errno {
	g.t.Helper()
	var stack []uint64
	for _, p := range params {
		switch p := p.(type) {
		case string:
			stack = append(stack, uint64(g.put([]byte(p))), uint64(len(p)))
		case int:
			stack = append(stack, uint64(p))
		case uint32:
			stack = append(stack, uint64(p))
		case uint64:
			stack = append(stack, p)
		default:
			g.t.Fatalf("a parameter of type %T", p)
		}
	}
	f, ok := byFunctionName[name]
	if !ok {
		g.t.Fatalf("there is no function %s", name)
	}
	if len(stack) != len(f.Params) {
		g.t.Fatalf("%s takes %d parameters, not %d", name, len(f.Params), len(stack))
	}
	if len(stack) == 0 {
		stack = make([]uint64, 1)
	}
	f.Call(g.System, g.memory, stack)
	g.next = 1024
	return errno(stack[0])
}

// put lays b into memory until the next call.
func (g *guest) put(b []byte) uint32 {
	at := g.next
	copy(g.memory[at:], b)
	g.next += uint32(len(b)+7) &^ 7
	return at
}

// pieces lays a list of one piece of memory down: two parameters.
func (g *guest) pieces(at, length uint32) (uint32, int) {
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], at)
	binary.LittleEndian.PutUint32(b[4:], length)
	return g.put(b[:]), 1
}

const (
	out    = 64        // where results go
	buffer = 128 << 10 // and contents
)

func (g *guest) u32at(at int) int { return int(binary.LittleEndian.Uint32(g.memory[at:])) }

func (g *guest) u64at(at int) uint64 { return binary.LittleEndian.Uint64(g.memory[at:]) }

const (
	reading = rightRead
	writing = rightWrite
	both    = rightRead | rightWrite
)

// open opens a path, following links.
func (g *guest) open(path string, oflags int, rights int, flags int) (int, errno) {
	g.t.Helper()
	e := g.call("path_open", rootFD, follow, path, oflags, rights, rights, flags, out)
	return g.u32at(out), e
}

func (g *guest) mustOpen(path string, oflags int, rights int) int {
	g.t.Helper()
	fd, e := g.open(path, oflags, rights, 0)
	g.ok(e)
	return fd
}

func (g *guest) ok(e errno) {
	g.t.Helper()
	if e != success {
		g.t.Fatalf("errno %d", e)
	}
}

func (g *guest) want(e, want errno) {
	g.t.Helper()
	if e != want {
		g.t.Errorf("errno %d, not %d", e, want)
	}
}

func (g *guest) write(fd int, s string) (int, errno) {
	g.t.Helper()
	copy(g.memory[buffer:], s)
	list, n := g.pieces(buffer, uint32(len(s)))
	e := g.call("fd_write", fd, list, n, out)
	return g.u32at(out), e
}

func (g *guest) read(fd int, length int) (string, errno) {
	g.t.Helper()
	list, n := g.pieces(buffer, uint32(length))
	e := g.call("fd_read", fd, list, n, out)
	if e != success {
		return "", e
	}
	return string(g.memory[buffer : buffer+g.u32at(out)]), e
}

func (g *guest) close(fd int) { g.t.Helper(); g.ok(g.call("fd_close", fd)) }

// put a file there, and get one.
func (g *guest) create(path, content string) {
	g.t.Helper()
	fd := g.mustOpen(path, openCreate|openTruncate, writing)
	_, e := g.write(fd, content)
	g.ok(e)
	g.close(fd)
}

func (g *guest) content(path string) string {
	g.t.Helper()
	fd := g.mustOpen(path, 0, reading)
	s, e := g.read(fd, 64<<10)
	g.ok(e)
	g.close(fd)
	return s
}

type seen struct {
	device, inode, links, size uint64
	kind                       uint8
	accessed, modified         uint64
}

func (g *guest) seen() seen {
	return seen{
		device: g.u64at(out), inode: g.u64at(out + 8), kind: g.memory[out+16], links: g.u64at(out + 24), size: g.u64at(out + 32),
		accessed: g.u64at(out + 40), modified: g.u64at(out + 48),
	}
}

func (g *guest) stat(path string) (seen, errno) {
	g.t.Helper()
	e := g.call("path_filestat_get", rootFD, follow, path, out)
	return g.seen(), e
}

// names lists a folder through buffers of the given size.
func (g *guest) names(path string, room int) []string {
	g.t.Helper()
	fd := g.mustOpen(path, openFolder, both)
	defer g.close(fd)
	var names []string
	for cookie := uint64(0); ; {
		g.ok(g.call("fd_readdir", fd, buffer, room, cookie, out))
		used := g.u32at(out)
		for at := buffer; at+24 <= buffer+used; {
			length := g.u32at(at + 16)
			if at+24+length > buffer+used {
				break
			}
			names = append(names, string(g.memory[at+24:at+24+length]))
			cookie = g.u64at(at)
			at += 24 + length
		}
		if used < room {
			slices.Sort(names)
			return names
		}
	}
}

// hostFiles is what lies in a folder of the host: to see that nothing else was
// touched.
func hostFiles(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		found[rel] = d.Type().String()
		if d.Type().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			found[rel] += string(b)
		}
		return nil
	}))
	return found
}
