package sessionfile_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sessionfile"
	"paddock/internal/sessionfile/sessionfiletest"
	"paddock/internal/workspace"
)

const (
	mib   = 1 << 20
	state = "what the interpreter held"
)

// fixture is a store, and a folder for what is on its way.
type fixture struct {
	store   *blob.Store
	scratch sessionfile.Scratch
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	store, err := blob.Open(filepath.Join(t.TempDir(), "blobs"), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return fixture{store, sessionfile.Scratch{Files: blob.OS, Dir: filepath.Join(t.TempDir(), "scratch")}}
}

func (f fixture) listing(ref blob.Ref) (*workspace.Listing, error) {
	data, err := f.store.Load(ref, mib)
	if err != nil {
		return nil, err
	}
	list := new(workspace.Listing)
	return list, list.UnmarshalBinary(data)
}

// keep puts a folder of files into the store, and gives its list.
func (f fixture) keep(t testing.TB, files map[string]string) (ref blob.Ref) {
	t.Helper()
	tree, err := workspace.Open(t.TempDir(), workspace.Options{DiskBytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for name, data := range files {
		if _, err := tree.Write(name, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := f.store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	list, _, err := tree.Capture(nil, func(_ string, r io.Reader) (blob.Ref, error) { return batch.Put(r) })
	var data []byte
	if err == nil {
		data, err = list.MarshalBinary()
	}
	if err == nil {
		ref, err = batch.Put(bytes.NewReader(data))
	}
	if err == nil {
		err = batch.Sync(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// archive gives a session's.
func (f fixture) archive(t testing.TB) []byte {
	t.Helper()
	layer, err := f.scratch.Layer()
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	if _, err := io.WriteString(layer, state); err != nil {
		t.Fatal(err)
	}
	head := sessionfile.Head{
		ExportedAt: time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC), Isolation: "wasm", Settings: sessionfile.Settings{Name: "work", TTL: time.Hour},
		Checkpoint: history.Manifest{
			Owner: "alice", Session: "s", Number: 7, Of: 7, Record: json.RawMessage(`{"secret":1}`),
			Trees: map[string]blob.Ref{"workspace": f.keep(t, map[string]string{"f": "text", "d/g": "more"}), "tmp": f.keep(t, map[string]string{"f": "text"})},
			Interpreters: map[string]history.Interpreter{"python": {State: []byte("{}"), Layers: []blob.Ref{layer.Ref()}, Mark: "m", Memory: 1 << 40,
				Variables: []history.Variable{{Name: "x", Type: "int", Preview: "1"}}}},
			Files: []history.Change{{Name: "f", Change: "added"}},
		},
	}
	var out bytes.Buffer
	if err := sessionfile.Write(t.Context(), &out, head, sessionfile.Contents{Store: f.store, Listing: f.listing, Layers: []*sessionfile.Layer{layer}}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// limits let so many bytes in.
func limits(bytes int64) sessionfile.Limits {
	return sessionfile.Limits{
		Bytes: bytes, Trees: map[string]int64{"workspace": 256 << 10, "tmp": 64 << 10}, Listing: mib, Layers: 4, Memory: 64 * mib,
		Room: func(more int64) error {
			if more > bytes {
				return fault.New(fault.Exhausted, "there is no room")
			}
			return nil
		},
	}
}

// read reads an archive into the store, and makes what it brings durable.
func (f fixture) read(ctx context.Context, data []byte, l sessionfile.Limits) (sessionfile.Head, error) {
	batch, err := f.store.Begin(ctx)
	if err != nil {
		return sessionfile.Head{}, err
	}
	defer batch.Close()
	head, err := sessionfile.Read(ctx, bytes.NewReader(data), batch, l)
	if err == nil {
		err = batch.Sync(ctx)
	}
	return head, err
}

// files are the names and contents in a tree of an archive.
func (f fixture) files(t *testing.T, ref blob.Ref) map[string]string {
	t.Helper()
	list, err := f.listing(ref)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tree, err := workspace.Open(dir, workspace.Options{DiskBytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, _, err := tree.Apply(list, nil, f.store.Open); err != nil {
		t.Fatal(err)
	}
	all, _, err := tree.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, one := range all {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(one.Path)))
		if err != nil {
			t.Fatal(err)
		}
		found[one.Path] = string(data)
	}
	return found
}

func TestWhatIsReadIsWhatWasWritten(t *testing.T) {
	data := newFixture(t).archive(t)
	f := newFixture(t)
	head, err := f.read(t.Context(), data, limits(mib))
	if err != nil {
		t.Fatal(err)
	}
	if want := (sessionfile.Settings{Name: "work", TTL: time.Hour}); head.Settings != want || head.Isolation != "wasm" {
		t.Errorf("it says %+v", head)
	}
	c := head.Checkpoint
	if got, want := f.files(t, c.Trees["workspace"]), map[string]string{"f": "text", "d/g": "more"}; !maps.Equal(got, want) {
		t.Errorf("the workspace has %v", got)
	}
	if got, want := f.files(t, c.Trees["tmp"]), map[string]string{"f": "text"}; !maps.Equal(got, want) {
		t.Errorf("the folder tmp has %v", got)
	}
	in := c.Interpreters["python"]
	layer, err := f.store.Load(in.Layers[0], mib)
	if err != nil || string(layer) != state || len(in.Layers) != 1 || string(in.State) != "{}" || in.Variables[0].Name != "x" {
		t.Errorf("the interpreter is %+v, and its layer %q, %v", in, layer, err)
	}
	if c.Owner != "" || c.Record != nil || c.Files != nil {
		t.Errorf("it says whose it was, or how it came to this: %+v", c)
	}
	if in.Mark != "" || !in.Anew || in.Memory != 0 {
		t.Errorf("what is not so here is believed: %+v", in)
	}
}

func TestWhatIsReadTakesNoMoreThanItMay(t *testing.T) {
	data := newFixture(t).archive(t)
	for name, c := range map[string]struct {
		change func(*sessionfile.Limits)
		want   fault.Kind
	}{
		"all of them":           {func(*sessionfile.Limits) {}, ""},
		"no limits given":       {func(l *sessionfile.Limits) { *l = sessionfile.Limits{} }, fault.Invalid},
		"a small disk":          {func(l *sessionfile.Limits) { l.Bytes = 8 << 10 }, fault.Exhausted},
		"no room":               {func(l *sessionfile.Limits) { l.Room = func(int64) error { return fault.New(fault.Exhausted, "full") } }, fault.Exhausted},
		"nobody to ask for it":  {func(l *sessionfile.Limits) { l.Room = nil }, fault.Exhausted},
		"a small workspace":     {func(l *sessionfile.Limits) { l.Trees["workspace"] = 4 << 10 }, fault.Exhausted},
		"a folder that is none": {func(l *sessionfile.Limits) { delete(l.Trees, "tmp") }, fault.Invalid},
		"short lists":           {func(l *sessionfile.Limits) { l.Listing = 10 }, fault.Invalid},
		"no layers":             {func(l *sessionfile.Limits) { l.Layers = 0 }, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			f, l := newFixture(t), limits(mib)
			c.change(&l)
			_, err := f.read(t.Context(), data, l)
			if fault.KindOf(err) != c.want {
				t.Errorf("it is %v, want %q", err, c.want)
			}
			f.wantStored(t, err == nil)
		})
	}
}

// wantStored checks whether the store has anything.
func (f fixture) wantStored(t *testing.T, want bool) {
	t.Helper()
	n, _, err := f.store.Collect(t.Context(), func(func(blob.Digest)) error { return nil })
	if err != nil || (n > 0) != want {
		t.Errorf("the store had %d contents, %v", n, err)
	}
}

func TestAnArchiveThatIsCutAnywhereIsRefusedAndLeavesNothing(t *testing.T) {
	data := newFixture(t).archive(t)
	f := newFixture(t)
	for n := range data {
		_, err := f.read(t.Context(), data[:n], limits(mib))
		if fault.KindOf(err) != fault.Invalid {
			t.Fatalf("with %d of %d bytes it is %v", n, len(data), err)
		}
	}
	f.wantStored(t, false)
}

func TestAForgedArchiveIsRefusedAndLeavesNothing(t *testing.T) {
	whole := sessionfiletest.Entries(t, newFixture(t).archive(t))
	last := len(whole) - 1
	changed := func(k int, data string) []sessionfiletest.Entry {
		all := slices.Clone(whole)
		all[k].Data = []byte(data)
		return all
	}
	swapped := slices.Clone(whole)
	swapped[1].Data, swapped[2].Data = swapped[2].Data, swapped[1].Data
	longer := bytes.Clone(whole[last-1].Data)
	longer[0]++
	for name, c := range map[string]struct {
		all   []sessionfiletest.Entry
		after []byte
	}{
		"a list that is another":      {all: swapped},
		"a content that is another":   {all: changed(last-1, string(longer))},
		"a content that is longer":    {all: changed(last-1, string(longer)+"!")},
		"an end that counts wrong":    {all: changed(last, `{"blobs": 1}`)},
		"an end that is nothing":      {all: changed(last, "no")},
		"a head that is nothing":      {all: changed(0, "no")},
		"no end":                      {all: whole[:last]},
		"no head":                     {all: whole[1:]},
		"a content twice":             {all: slices.Insert(slices.Clone(whole), last, whole[last-1])},
		"a content that has no place": {all: slices.Insert(slices.Clone(whole), last, sessionfiletest.Entry{Name: "blobs/../../x"})},
		"a folder's name":             {all: slices.Insert(slices.Clone(whole), 1, sessionfiletest.Entry{Name: "other"})},
		"an entry after the end":      {all: append(slices.Clone(whole), whole[last])},
		"much after the end":          {all: whole, after: make([]byte, mib)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			_, err := f.read(t.Context(), sessionfiletest.Archive(t, c.all, bytes.NewReader(c.after)), limits(mib))
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("it is %v", err)
			}
			f.wantStored(t, false)
		})
	}
	f := newFixture(t)
	if _, err := f.read(t.Context(), sessionfiletest.Archive(t, whole, nil), limits(mib)); err != nil {
		t.Errorf("what is not forged is refused: %v", err)
	}
}

func TestALaterFormatIsUnsupported(t *testing.T) {
	whole := sessionfiletest.Entries(t, newFixture(t).archive(t))
	whole[0].Data = bytes.Replace(whole[0].Data, []byte(`"format":1`), []byte(`"format":2`), 1)
	_, err := newFixture(t).read(t.Context(), sessionfiletest.Archive(t, whole, nil), limits(mib))
	if fault.KindOf(err) != fault.Unsupported {
		t.Errorf("it is %v", err)
	}
}

func TestACancelledReadSaysWhy(t *testing.T) {
	data := newFixture(t).archive(t)
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody wants it any more")
	cancel(why)
	batch, err := f.store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	if _, err := sessionfile.Read(ctx, bytes.NewReader(data), batch, limits(mib)); !errors.Is(err, why) {
		t.Errorf("it says %v", err)
	}
}

func TestAFileOfAScratchFolderIsGoneWithIt(t *testing.T) {
	s := newFixture(t).scratch
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(s.Dir, "LEFT")
	if err := os.WriteFile(left, []byte("half an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead process left is there: %v", err)
	}
	if err := f.Spool(t.Context(), bytes.NewReader(make([]byte, 3*mib)), limits(4*mib)); err != nil || f.Size() != 3*mib {
		t.Errorf("%d bytes were taken, %v", f.Size(), err)
	}
	if n, err := os.ReadDir(s.Dir); runtime.GOOS != "windows" && (err != nil || len(n) != 0) {
		t.Errorf("who dies now leaves %v, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	_ = f.Close()
	if n, err := os.ReadDir(s.Dir); err != nil || len(n) != 0 {
		t.Errorf("it is still there: %v, %v", n, err)
	}
}

func TestASpoolEndsWhereTheLimitsDo(t *testing.T) {
	f, err := newFixture(t).scratch.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.Spool(t.Context(), endless{}, limits(2*mib))
	if fault.KindOf(err) != fault.Exhausted || f.Size() > 4*mib {
		t.Errorf("%d bytes were taken, %v", f.Size(), err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// FuzzRead gives the reader any tar. What it takes is all there, and what it
// refuses leaves nothing.
func FuzzRead(f *testing.F) {
	z, err := zstd.NewReader(bytes.NewReader(newFixture(f).archive(f)), zstd.WithDecoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	whole, err := io.ReadAll(z)
	if err != nil {
		f.Fatal(err)
	}
	if h, err := tar.NewReader(bytes.NewReader(whole)).Next(); err != nil || h.Name != "paddock-session.json" {
		f.Fatalf("it begins with %+v, %v", h, err)
	}
	pack, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		f.Fatal(err)
	}
	for n := len(whole); n > 0; n -= 3 * 512 {
		f.Add(whole[:n])
	}
	f.Add(append(bytes.Clone(whole), make([]byte, 64<<10)...))
	into := newFixture(f)
	f.Fuzz(func(t *testing.T, data []byte) { into.fuzz(t, pack.EncodeAll(data, nil)) })
}

// fuzz reads an archive, and sees to what is in the store then.
func (f fixture) fuzz(t *testing.T, data []byte) {
	head, err := f.read(t.Context(), data, limits(mib))
	if k := fault.KindOf(err); err != nil && k != fault.Invalid && k != fault.Unsupported && k != fault.Exhausted {
		t.Errorf("it is %v: %v", k, err)
	}
	if err == nil {
		refs := slices.Collect(head.Checkpoint.Refs())
		for _, ref := range head.Checkpoint.Trees {
			list, err := f.listing(ref)
			if err != nil {
				t.Fatal(err)
			}
			refs = slices.AppendSeq(refs, list.Refs())
		}
		for _, ref := range refs {
			if _, err := f.store.Load(ref, mib); err != nil {
				t.Error(err)
			}
		}
	}
	n, _, collectErr := f.store.Collect(t.Context(), func(func(blob.Digest)) error { return nil })
	if collectErr != nil || err != nil && n != 0 {
		t.Errorf("%d contents were left, %v", n, collectErr)
	}
}
