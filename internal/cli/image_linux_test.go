package cli

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"testing"

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
	if err := json.Unmarshal([]byte(out.stdout), &img); err != nil || out.code != 0 {
		t.Fatal(out, err)
	}
	return img.ID
}

func TestPruneKeepsWhatSleepingSessionsHaveByItsID(t *testing.T) {
	command(t, newFake, "image", "ls") // its folders are those of the test
	asleep, lost, named := importTar(t, "tools", "1"), importTar(t, "tools", "2"), importTar(t, "tools", "3")
	fake := sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "linux"})
	m, err := session.New(session.Config{Dir: os.Getenv("PADDOCK_STATE_DIR"), Backends: backends{fake}})
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
	if err := json.Unmarshal([]byte(out.stdout), &removed); err != nil || len(removed.Images) != 1 || removed.Images[0] != lost {
		t.Errorf("of %s, %s and %s it removed %v: %v %s", asleep, lost, named, removed.Images, err, out.stderr)
	}
}
