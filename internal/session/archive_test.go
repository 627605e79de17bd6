package session_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/sessionfile/sessionfiletest"
)

// exported makes a session with code and gives its archive.
func exported(t testing.TB, m *session.Manager, code string, set session.Settings) []byte {
	t.Helper()
	i, err := m.Create(t.Context(), alice, "", set)
	if err == nil {
		var r session.Result
		r, err = m.Execute(t.Context(), alice, i.ID, session.Request{Code: code, Language: "python"})
		if err == nil && r.Stderr != "" {
			t.Fatal(r.Stderr)
		}
	}
	var archive bytes.Buffer
	if err == nil {
		err = m.Export(t.Context(), alice, i.ID, &archive)
	}
	if err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// zeros are that never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// content is an entry that is what its name says.
func content(data string) sessionfiletest.Entry {
	sum := sha256.Sum256([]byte(data))
	return sessionfiletest.Entry{Name: "blobs/" + hex.EncodeToString(sum[:]), Data: []byte(data)}
}

// edited changes what an archive says of itself.
func edited(t testing.TB, all []sessionfiletest.Entry, change func(head map[string]any)) []sessionfiletest.Entry {
	t.Helper()
	var head map[string]any
	err := json.Unmarshal(all[0].Data, &head)
	if err == nil {
		change(head)
		all = slices.Clone(all)
		all[0].Data, err = json.Marshal(head)
		all[0].Data = bytes.ReplaceAll(all[0].Data, []byte(`\u003c`), []byte("<")) // as others write it
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// counted says in the end how many contents there are.
func counted(all []sessionfiletest.Entry) []sessionfiletest.Entry {
	all = slices.Clone(all)
	n := 0
	for _, p := range all {
		if strings.HasPrefix(p.Name, "blobs/") {
			n++
		}
	}
	all[len(all)-1].Data = fmt.Appendf(nil, `{"blobs": %d}`, n)
	return all
}

// within puts pieces before the end.
func within(all []sessionfiletest.Entry, more ...sessionfiletest.Entry) []sessionfiletest.Entry {
	return counted(slices.Concat(all[:len(all)-1], more, all[len(all)-1:]))
}

// contents are the files of a state folder that hold contents, or may have.
func contents(t testing.TB, dir string) (n int) {
	t.Helper()
	for _, pattern := range []string{"blobs/*/??/*", "blobs/*/new/*", "scratch/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		n += len(found)
	}
	return n
}

// interpreter is what a head says of the Python interpreter.
func interpreter(head map[string]any) map[string]any {
	return head["checkpoint"].(map[string]any)["interpreters"].(map[string]any)["python"].(map[string]any)
}

func TestNoArchiveTakesMoreThanItMay(t *testing.T) {
	source := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	whole := sessionfiletest.Entries(t, exported(t, source, "x = 1\nwrite('f', 'text')\nwrite('g', 'more')", session.Settings{}))
	bomb := func(code string) []sessionfiletest.Entry {
		return sessionfiletest.Entries(t, exported(t, source, code, session.Settings{}))
	}
	many := func(n int, write string) string {
		var code strings.Builder
		for k := range n {
			fmt.Fprintf(&code, write+"\n", k)
		}
		return code.String()
	}
	padding := bytes.Repeat([]byte(" "), 128<<20)
	kinds := map[string]struct {
		all  []sessionfiletest.Entry
		tail int64
		want fault.Kind
	}{
		"a large end":            {all: slices.Concat(whole[:len(whole)-1], []sessionfiletest.Entry{{Name: whole[len(whole)-1].Name, Data: padding}}), want: fault.Invalid},
		"a large head":           {all: slices.Concat([]sessionfiletest.Entry{{Name: whole[0].Name, Data: padding}}, whole[1:]), want: fault.Invalid},
		"zeros without end":      {all: whole, tail: 512 << 20, want: fault.Invalid},
		"something after it":     {all: append(slices.Clone(whole), content("more")), want: fault.Invalid},
		"a content unasked for":  {all: within(whole, content("unasked for")), want: fault.Invalid},
		"a content twice":        {all: within(whole, whole[1]), want: fault.Invalid},
		"a large content":        {all: within(whole, content(string(padding))), want: fault.Invalid},
		"many empty files":       {all: bomb(many(70, "write('f%d', '')")), want: fault.Exhausted},
		"many links":             {all: bomb(many(70, "symlink('nowhere', 'l%d')") + "write('f', '')"), want: fault.Exhausted},
		"many files in /tmp":     {all: bomb(many(20, "write('/tmp/f%d', '')")), want: fault.Exhausted},
		"a file of many zeros":   {all: bomb("write('f', '" + strings.Repeat("0", mib/2) + "')"), want: fault.Exhausted},
		"one content many times": {all: bomb(many(40, "write('f%d', '"+strings.Repeat("0", 8000)+"')")), want: fault.Exhausted},
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(name, func(t *testing.T) {
			dir, k := t.TempDir(), kinds[name]
			archive := sessionfiletest.Archive(t, k.all, io.LimitReader(zeros{}, k.tail))
			m := manager(t, session.Config{Dir: dir, DiskBytes: mib / 4, OwnerDiskBytes: 64 * mib}, sandboxtest.FakeConfig{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := m.Import(t.Context(), alice, "", bytes.NewReader(archive))
			runtime.ReadMemStats(&after)
			wantKind(t, err, k.want)
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
				t.Errorf("it took %d MiB of memory", took)
			}
			if n := contents(t, dir); n != 0 {
				t.Errorf("%d files are left", n)
			}
			if all, err := m.List(alice); err != nil {
				t.Error(err)
			} else if len(all) != 0 {
				t.Errorf("m.List(alice): got %v, want none", all)
			}
		})
	}
}

func TestWhatAnArchiveSaysOfItselfIsNotBelieved(t *testing.T) {
	source := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	whole := sessionfiletest.Entries(t, exported(t, source, "x = 1\nwrite('f', 'text')", session.Settings{}))
	trees := func(head map[string]any) map[string]any {
		return head["checkpoint"].(map[string]any)["trees"].(map[string]any)
	}
	kinds := map[string]struct {
		change func(head map[string]any)
		want   fault.Kind
	}{
		"another folder":     {func(h map[string]any) { trees(h)["../x"] = trees(h)["tmp"] }, fault.Invalid},
		"a list's size":      {func(h map[string]any) { trees(h)["workspace"].(map[string]any)["size"] = 1 }, fault.Invalid},
		"a list's huge size": {func(h map[string]any) { trees(h)["workspace"].(map[string]any)["size"] = 1 << 40 }, fault.Invalid},
		"a negative size":    {func(h map[string]any) { trees(h)["workspace"].(map[string]any)["size"] = -1 }, fault.Invalid},
		"no list at all":     {func(h map[string]any) { delete(trees(h), "workspace") }, fault.Invalid},
		"a file as a list":   {func(h map[string]any) { trees(h)["tmp"] = interpreter(h)["layers"].([]any)[0] }, fault.Invalid},
		"a huge state":       {func(h map[string]any) { interpreter(h)["state"] = make([]byte, 1<<20) }, fault.Invalid},
		"no state":           {func(h map[string]any) { interpreter(h)["state"] = nil }, fault.Unsupported},
		"many layers": {func(h map[string]any) {
			interpreter(h)["layers"] = slices.Repeat(interpreter(h)["layers"].([]any), 1000)
		}, fault.Invalid},
		"many interpreters": {func(h map[string]any) {
			for k := range 100 {
				h["checkpoint"].(map[string]any)["interpreters"].(map[string]any)[fmt.Sprint(k)] = map[string]any{}
			}
		}, fault.Invalid},
		"an unknown interpreter": {func(h map[string]any) {
			h["checkpoint"].(map[string]any)["interpreters"].(map[string]any)["perl"] = interpreter(h)
		}, fault.Unsupported},
		"what grows when it is written": {func(h map[string]any) { interpreter(h)["imports"] = []string{strings.Repeat("<", 1<<20)} }, fault.Invalid},
		"a later format":                {func(h map[string]any) { h["format"] = 2 }, fault.Unsupported},
		"another isolation":             {func(h map[string]any) { h["isolation"] = "other" }, fault.Unsupported},
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
			_, _, err := m.Import(t.Context(), alice, "", bytes.NewReader(sessionfiletest.Archive(t, edited(t, whole, kinds[name].change), nil)))
			wantKind(t, err, kinds[name].want)
			if n := contents(t, dir); n != 0 {
				t.Errorf("%d files are left", n)
			}
		})
	}
}

// A saved machine is read by the system that runs it, and a run that waits brings limits of
// its own: neither comes with an archive, whatever that says.
func TestNoArchiveBringsAMachineOrARunThatWaits(t *testing.T) {
	source := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	whole := sessionfiletest.Entries(t, exported(t, source, "x = 1", session.Settings{}))
	forged := edited(t, whole, func(head map[string]any) {
		layer := interpreter(head)["layers"].([]any)[0]
		c := head["checkpoint"].(map[string]any)
		c["machine"] = map[string]any{"state": []byte("x"), "content": layer, "interpreters": map[string]any{}}
		c["waiting"] = map[string]any{"execution": "x-forged", "runtime": "python", "language": "python", "content": layer, "reasons": []string{"nothing"}}
	})
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	i, _, err := m.Import(t.Context(), alice, "", bytes.NewReader(sessionfiletest.Archive(t, forged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	prints(t, m, i.ID, "print(x)", "1")
	if d, err := m.Details(t.Context(), alice, i.ID); err != nil {
		t.Error(err)
	} else if d.Waiting != nil {
		t.Errorf("d.Waiting: got %+v, want nil", d.Waiting)
	}
	_, err = m.Execute(t.Context(), alice, i.ID, session.Request{Continue: "x-forged"})
	wantKind(t, err, fault.NotFound)
}

func TestOfSettingsAnImportTakesOverWhatMayBeHere(t *testing.T) {
	source := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	whole := sessionfiletest.Entries(t, exported(t, source, "x = 1", session.Settings{Name: "work", Language: "python", MemoryBytes: 64 * mib, TTL: time.Hour}))
	m := manager(t, session.Config{MemoryBytes: 32 * mib, IdleTTL: 30 * time.Minute}, sandboxtest.FakeConfig{})
	kinds := map[string]struct {
		change func(set map[string]any)
		want   session.Settings
		notice []string
	}{
		"lower limits here": {func(map[string]any) {}, session.Settings{Name: "work", Language: "python"}, []string{"64", "32", "30m", "1h"}},
		"what may be": {func(set map[string]any) { set["memory_bytes"], set["ttl"] = 16*mib, time.Minute },
			session.Settings{Name: "work", Language: "python", MemoryBytes: 16 * mib, TTL: time.Minute}, nil},
		"one that never ends": {func(set map[string]any) {
			set["passing"] = true
			delete(set, "memory_bytes")
			set["ttl"] = int64(1<<63 - 1)
		},
			session.Settings{Name: "work", Language: "python"}, []string{"30m"}},
		"negative ones": {func(set map[string]any) { set["memory_bytes"], set["ttl"] = -1, -1 },
			session.Settings{Name: "work", Language: "python"}, []string{"32", "30m"}},
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			forged := edited(t, whole, func(head map[string]any) {
				k.change(head["settings"].(map[string]any))
				interpreter(head)["mark"], interpreter(head)["memory"] = "mark", -5
			})
			i, notice, err := m.Import(t.Context(), alice, "", bytes.NewReader(sessionfiletest.Archive(t, forged, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if i.Settings.Isolation = ""; i.Settings != k.want {
				t.Errorf("it has %+v, want %+v", i.Settings, k.want)
			}
			if (notice == "") != (k.notice == nil) {
				t.Errorf("it says %q", notice)
			}
			for _, part := range k.notice {
				if !strings.Contains(notice, part) {
					t.Errorf("it says %q, and nothing of %s", notice, part)
				}
			}
			if err := m.Sleep(alice, i.ID); err != nil {
				t.Errorf("it does not sleep: %v", err)
			}
			prints(t, m, i.ID, "print(x)", "1")
		})
	}
}

// slowly is a stranger who takes or gives a little at a time, and sees to it
// meanwhile that others are not held up.
type slowly struct {
	t      *testing.T
	others func()
	data   *bytes.Buffer
	times  int
}

func (s *slowly) Write(p []byte) (int, error) {
	s.look()
	return s.data.Write(p)
}

func (s *slowly) Read(p []byte) (int, error) {
	s.look()
	return s.data.Read(p[:min(len(p), 1+s.data.Len()/2)])
}

func (s *slowly) look() {
	if s.times++; s.times < 3 {
		s.others()
	}
}

func TestNobodyWaitsForWhoReadsOrWritesAnArchive(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'text')")
	runs := 0
	s := &slowly{t: t, data: new(bytes.Buffer), others: func() {
		runs++
		execute(t, m, id, fmt.Sprintf("write('f', '%d')", runs))
		if _, err := m.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		if err := m.Sleep(alice, id); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "scratch")); runtime.GOOS != "windows" && (err != nil || len(left) != 0) {
			t.Errorf("somebody who dies now leaves %v, %v", left, err)
		}
	}}
	if err := m.Export(t.Context(), alice, id, s); err != nil {
		t.Fatal(err)
	}
	if err := m.Destroy(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	id = create(t, m, alice, "")
	written := s.times
	s.times = 0
	i, _, err := m.Import(t.Context(), alice, "", s)
	if err != nil {
		t.Fatal(err)
	}
	if written == 0 {
		t.Fatal("written: got 0, want more")
	}
	if s.times < 3 {
		t.Fatalf("s.times: got %v, want at least 3", s.times)
	}
	prints(t, m, i.ID, "print(x, read('f'))", "1 text")
	if left, err := os.ReadDir(filepath.Join(dir, "scratch")); err != nil {
		t.Error(err)
	} else if len(left) != 0 {
		t.Errorf(`os.ReadDir(filepath.Join(dir, "scratch")): got %v, want none`, left)
	}
}

func TestAnExportLeavesNothingInTheStore(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'text')")
	execute(t, m, id, "x = 2")
	before := contents(t, dir)
	if err := m.Export(t.Context(), alice, id, io.Discard); err != nil {
		t.Fatal(err)
	}
	if after := contents(t, dir); after != before {
		t.Errorf("there were %d files, and are %d", before, after)
	}
}

func TestWhatADeadProcessLeftOfAnArchiveIsRemoved(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})
	archive := exported(t, m, "x = 1", session.Settings{})
	left := filepath.Join(dir, "scratch", "LEFT")
	if err := os.WriteFile(left, []byte("half an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Import(t.Context(), alice, "", bytes.NewReader(archive)); err != nil {
		t.Fatal(err)
	}
	if n, err := os.ReadDir(filepath.Dir(left)); err != nil {
		t.Error(err)
	} else if len(n) != 0 {
		t.Errorf("os.ReadDir(filepath.Dir(left)): got %v, want none", n)
	}
}

func TestAnArchiveNeedsRoomForContentsAndFiles(t *testing.T) {
	var code strings.Builder
	for k := range 20 {
		fmt.Fprintf(&code, "write('f%d', '%d')\n", k, k)
	}
	source := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	archive := exported(t, source, code.String(), session.Settings{})
	for room, want := range map[int64]fault.Kind{120 << 10: fault.Exhausted, 300 << 10: ""} {
		dir := t.TempDir()
		m := manager(t, session.Config{Dir: dir, DiskBytes: mib, OwnerDiskBytes: room}, sandboxtest.FakeConfig{})
		_, _, err := m.Import(t.Context(), alice, "", bytes.NewReader(archive))
		if fault.KindOf(err) != want {
			t.Errorf("with %d bytes: %v", room, err)
		}
		if n := contents(t, dir); want != "" && n != 0 {
			t.Errorf("%d files are left", n)
		}
	}
}

func TestAnArchiveThatDoesNotEndIsReadAsFarAsTheDiskGoes(t *testing.T) {
	dir := t.TempDir()
	m := manager(t, session.Config{Dir: dir, DiskBytes: mib, OwnerDiskBytes: 4 * mib}, sandboxtest.FakeConfig{})
	read := 0
	_, _, err := m.Import(t.Context(), alice, "", endless(func(n int) { read += n }))
	wantKind(t, err, fault.Exhausted)
	if read > 6*mib {
		t.Errorf("%d bytes were read", read)
	}
	if n := contents(t, dir); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

type endless func(int)

func (e endless) Read(p []byte) (int, error) {
	e(len(p))
	return len(p), nil
}
