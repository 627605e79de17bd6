package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"paddock/internal/app"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// importTar imports a root file system with one file, and gives the image's id.
func importTar(t *testing.T, called, content string) (id string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("root.tar", b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var img struct{ ID string }
	out := again(t, "image", "import", "root.tar", "--name", called, "--json")
	if err := json.Unmarshal([]byte(out.stdout), &img); err != nil {
		t.Fatal(err)
	} else if out.code != 0 {
		t.Fatalf("out.code: got %v, want 0: %s", out.code, out.stderr)
	}
	return img.ID
}

// savedIn is a backend whose machines were saved in an image.
type savedIn struct {
	*sandboxtest.FakeKeeper
	image string
}

func (b *savedIn) SaveMachine(ctx context.Context, owner, box string, most int64, w io.Writer, still func() error) (sandbox.SavedMachine, error) {
	saved, err := b.FakeKeeper.SaveMachine(ctx, owner, box, most, w, still)
	saved.State = []byte(`{"image": "` + b.image + `"}`)
	return saved, err
}

func TestPruneKeepsWhatSavedMachinesGoOnIn(t *testing.T) {
	command(t, newFake, "image", "ls") // its folders are those of the test
	saved, lost := importTar(t, "tools", "1"), importTar(t, "tools", "2")
	importTar(t, "tools", "3")
	fake := &savedIn{sandboxtest.NewFakeKeeper(sandboxtest.FakeConfig{Name: "linux"}), saved}
	m, err := session.New(session.Config{Dir: os.Getenv("PADDOCK_STATE_DIR"), Backends: app.Backends{fake}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := m.Create(t.Context(), "token:1", "", session.Settings{Machine: &session.Machine{Image: "tools"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Execute(t.Context(), "token:1", made.ID, session.Request{Code: "x = 1"}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Close(), fake.Close()); err != nil {
		t.Fatal(err)
	}
	var removed struct{ Images []string }
	out := again(t, "image", "prune", "--json")
	if err := json.Unmarshal([]byte(out.stdout), &removed); err != nil {
		t.Errorf("got error %v, want none: %s", err, out.stderr)
	} else if len(removed.Images) != 1 {
		t.Errorf("len(removed.Images): got %d, want 1: %v", len(removed.Images), removed.Images)
	} else if removed.Images[0] != lost {
		t.Errorf("removed.Images[0]: got %v, want %v", removed.Images[0], lost)
	}
}

func TestPruneKeepsWhatSleepingSessionsHaveByItsID(t *testing.T) {
	command(t, newFake, "image", "ls") // its folders are those of the test
	asleep, lost := importTar(t, "tools", "1"), importTar(t, "tools", "2")
	importTar(t, "tools", "3") // it has the name
	fake := sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "linux"})
	m, err := session.New(session.Config{Dir: os.Getenv("PADDOCK_STATE_DIR"), Backends: app.Backends{fake}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create(t.Context(), "token:1", "", session.Settings{Machine: &session.Machine{Image: asleep}}); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fake.Close(); err != nil {
		t.Fatal(err)
	}
	var removed struct{ Images []string }
	out := again(t, "image", "prune", "--json")
	if err := json.Unmarshal([]byte(out.stdout), &removed); err != nil {
		t.Errorf("got error %v, want none: %s", err, out.stderr)
	} else if len(removed.Images) != 1 {
		t.Errorf("len(removed.Images): got %d, want 1: %v", len(removed.Images), removed.Images)
	} else if removed.Images[0] != lost {
		t.Errorf("removed.Images[0]: got %v, want %v", removed.Images[0], lost)
	}
}
