package session

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

// FuzzArchive gives the reader any tar. What it takes is all there, and what it
// refuses leaves nothing.
func FuzzArchive(f *testing.F) {
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	m, err := New(Config{Dir: f.TempDir(), DiskBytes: 1 << 18, OwnerDiskBytes: 1 << 20, Backends: []sandbox.Backend{backend}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := m.Close(); err != nil {
			f.Error(err)
		}
		backend.Close()
	})
	i, err := m.Create(f.Context(), "alice", "", Settings{Name: "work"})
	if err == nil {
		_, err = m.Execute(f.Context(), "alice", i.ID, Request{Code: "x = 1\nwrite('f', 'text')\nwrite('d', 'more')", Language: "python"})
	}
	var archive bytes.Buffer
	if err == nil {
		err = m.Export(f.Context(), "alice", i.ID, &archive)
	}
	if err != nil {
		f.Fatal(err)
	}
	z, err := zstd.NewReader(&archive, zstd.WithDecoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	whole, err := io.ReadAll(z)
	if err != nil {
		f.Fatal(err)
	}
	store, err := m.blobs("bob")
	if err != nil {
		f.Fatal(err)
	}
	pack, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		f.Fatal(err)
	}
	for n := len(whole); n > 0; n -= 3 * 512 {
		f.Add(whole[:n])
	}
	f.Add(append(bytes.Clone(whole), make([]byte, archiveSlack)...))
	f.Fuzz(func(t *testing.T, data []byte) { unpacked(t, m, store, pack.EncodeAll(data, nil)) })
}

// unpacked reads an archive, and sees to what is in the store then.
func unpacked(t *testing.T, m *Manager, store *blob.Store, archive []byte) {
	batch, err := store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	a, err := m.readArchive(t.Context(), "bob", batch, bytes.NewReader(archive))
	if k := fault.KindOf(err); err != nil && k != fault.Invalid && k != fault.Unsupported && k != fault.Exhausted {
		t.Errorf("it is %v: %v", k, err)
	}
	if err == nil {
		if err := batch.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		refs := slices.Collect(a.Checkpoint.Refs())
		for _, ref := range a.Checkpoint.Trees {
			list, err := readListing(store, ref)
			if err != nil {
				t.Fatal(err)
			}
			refs = slices.AppendSeq(refs, list.Refs())
		}
		for _, ref := range refs {
			if _, err := store.Load(ref, m.config.OwnerDiskBytes); err != nil {
				t.Error(err)
			}
		}
	}
	if err := batch.Close(); err != nil {
		t.Error(err)
	}
	n, _, collectErr := store.Collect(t.Context(), func(func(blob.Digest)) error { return nil })
	if collectErr != nil || err != nil && n != 0 {
		t.Errorf("%d contents were left, %v", n, collectErr)
	}
}
