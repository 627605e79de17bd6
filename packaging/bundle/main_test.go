package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

// build packs tiny binaries with the script that make package uses, for a
// publisher of that name.
func build(t *testing.T, out, name string) error {
	t.Helper()
	args := []string{"../build.sh", out, "1.2.3"}
	for _, name := range []string{"linux", "darwin", "windows"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte("a binary for "+name), 0o700); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	cmd := exec.CommandContext(t.Context(), "bash", args...)
	cmd.Env = append(cmd.Environ(), "PADDOCK_REGISTRY_NAME="+name, "PADDOCK_RELEASE_URL=https://github.com/me/mcp/releases/download/v1.2.3/paddock.mcpb")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

func read(t *testing.T, name ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(name...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestABundleIsPacked has the official tool validate, pack and read a bundle,
// twice.
func TestABundleIsPacked(t *testing.T) {
	_, err := exec.LookPath("npm")
	sandboxtest.Require(t, "node", err == nil, "there is no npm on this machine")
	one, two := t.TempDir(), t.TempDir()
	for _, out := range []string{one, two} {
		if err := build(t, out, "io.github.me/paddock"); err != nil {
			t.Fatal(err)
		}
	}
	bundle := read(t, one, "paddock.mcpb")
	if !bytes.Equal(bundle, read(t, two, "paddock.mcpb")) {
		t.Error("the same binaries give two different bundles")
	}
	archive, err := zip.NewReader(bytes.NewReader(bundle), int64(len(bundle)))
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{
		"server/paddock-linux": 0o755, "server/paddock-darwin": 0o755, "server/paddock.exe": 0o755,
		"manifest.json": 0o644, "LICENSE": 0o644, "NOTICE": 0o644,
	} {
		f, err := archive.Open(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if info, err := f.Stat(); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has the mode %v, want %v", name, info.Mode().Perm(), mode)
		}
	}
	var server struct {
		Name, Version string
		Packages      []struct{ RegistryType, Identifier, FileSha256 string }
	}
	if err := json.Unmarshal(read(t, one, "server.json"), &server); err != nil {
		t.Fatal(err)
	}
	if p := server.Packages[0]; server.Name != "io.github.me/paddock" || server.Version != "1.2.3" || p.FileSha256 != fmt.Sprintf("%x", sha256.Sum256(bundle)) {
		t.Errorf("server.json says %+v", server)
	}
	if err := build(t, t.TempDir(), "paddock"); err == nil || !strings.Contains(err.Error(), "checking server.json") {
		t.Errorf("a name that the registry does not take gives %v", err)
	}
}

func TestAnArchiveIsTheSameWhateverItsOrderAndTimes(t *testing.T) {
	pack := func(at time.Time, names ...string) []byte {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for _, name := range names {
			h := &zip.FileHeader{Name: name, Modified: at}
			h.SetMode(0o700)
			f, err := w.CreateHeader(h)
			if err == nil {
				_, err = f.Write([]byte("what is in " + name))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		archive, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			t.Fatal(err)
		}
		var normal bytes.Buffer
		if err := normalize(&normal, archive); err != nil {
			t.Fatal(err)
		}
		return normal.Bytes()
	}
	if !bytes.Equal(pack(time.Unix(1e9, 0), "a", "b"), pack(time.Unix(2e9, 0), "b", "a")) {
		t.Error("order or times show in the archive")
	}
}

func TestADescriptionHasToFitItsSchema(t *testing.T) {
	schema := []byte(`{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/S",
		"definitions": {"S": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 5}}}}}`)
	for document, fits := range map[string]bool{`{"name": "short"}`: true, `{"name": "longer"}`: false, `{}`: false, `[`: false} {
		if err := validate(schema, []byte(document)); (err == nil) != fits {
			t.Errorf("%s: %v", document, err)
		}
	}
	template := string(read(t, "..", "server.json"))
	if got := string(describe([]byte(template), nil)); strings.Contains(got, "@SHA256@") || got == template {
		t.Errorf("the description is %s", got)
	}
}
