package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/checkpoint"
	"paddock/internal/history"
)

// elsewhere keeps checkpoints in memory, as a cluster does outside of this machine.
type elsewhere struct {
	manifests map[int64][]byte
	contents  map[blob.Digest][]byte
	refuse    error
}

func (e *elsewhere) commit(_ context.Context, c checkpoint.Committing) error {
	if e.refuse != nil {
		return e.refuse
	}
	for _, content := range c.Contents {
		r, err := content.Open()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		e.contents[content.Digest] = data
	}
	e.manifests[c.Number] = c.Manifest
	for _, n := range c.Dropped {
		delete(e.manifests, n)
	}
	return c.Local()
}

// TestACommitHasAllThatACheckpointAdds takes what commits are given to another folder, and
// opens the session there.
func TestACommitHasAllThatACheckpointAdds(t *testing.T) {
	b := newBench(t)
	far := &elsewhere{manifests: map[int64][]byte{}, contents: map[blob.Digest][]byte{}}
	b.Repo = b.open(func(c *checkpoint.Config) { c.Commit = far.commit })
	large := make([]byte, 300<<10) // it waits in a file
	rand.NewChaCha8([32]byte{1}).Read(large)
	b.write("large", string(large))
	b.step("one", "")
	b.write("again", string(large)) // the store has it already
	b.step("two", "labelled")

	far.refuse = errors.New("it is not known")
	b.write("f", "three")
	b.write("other", string(large[1:]))
	if _, err := b.Commit(t.Context(), checkpoint.Note{Cause: history.CauseExecute}, nil); !errors.Is(err, far.refuse) {
		t.Fatalf("a commit that is refused: got %v", err)
	}
	if got := b.Head().Number; got != 2 || len(b.numbers()) != 2 {
		t.Errorf("after it the session is at %d of %v", got, b.numbers())
	}
	far.refuse = nil
	b.keep(checkpoint.Note{Cause: history.CauseExecute}, nil)

	for n, data := range far.manifests {
		path := filepath.Join(b.dir, "checkpoints", strconv.FormatInt(n, 10))
		if n == 2 {
			path += ".kept"
		}
		if local, err := os.ReadFile(path); err != nil || !bytes.Equal(local, data) {
			t.Errorf("the manifest %d is not what the disk has (%v)", n, err)
		}
	}
	if len(far.manifests) != 3 {
		t.Errorf("%d manifests were committed, want 3", len(far.manifests))
	}
	for d, data := range far.contents {
		local, err := os.ReadFile(filepath.Join(b.dir, "blobs", d.String()[:2], d.String()[2:]))
		if err != nil || !bytes.Equal(local, data) {
			t.Errorf("the content %s is not what the disk has (%v)", d, err)
		}
	}

	// Another machine has nothing but what was committed.
	if err := os.RemoveAll(filepath.Join(b.dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	store, err := blob.Open(filepath.Join(b.dir, "blobs"), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for d, data := range far.contents {
		name := filepath.Join(b.dir, "blobs", d.String()[:2], d.String()[2:])
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"f", "large", "again", "other"} {
		if err := os.Remove(filepath.Join(b.dir, "files", name)); err != nil {
			t.Fatal(err)
		}
	}
	next := b.open(func(c *checkpoint.Config) { c.Store = store })
	if skipped, unlisted, err := next.OpenHead(3); skipped != nil || unlisted || err != nil {
		t.Fatalf("opened there: %v, %t, %v", skipped, unlisted, err)
	}
	if err := next.RestoreFiles(); err != nil {
		t.Fatal(err)
	}
	b.wantFile("f", "three")
	b.wantFile("large", string(large))
	b.wantFile("again", string(large))
	b.wantFile("other", string(large[1:]))
}
