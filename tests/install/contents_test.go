package install

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Programs for other systems do not run here; each archive has to have the right one, and
// the list of what is in it.
func TestEachArchiveHasTheBinaryForItsPlatformAndItsList(t *testing.T) {
	dir := release(t)
	archives, err := filepath.Glob(filepath.Join(dir, "paddock-*.cdx.json"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("the lists are %q (%v)", archives, err)
	}
	for _, list := range archives {
		name := strings.TrimSuffix(filepath.Base(list), ".cdx.json")
		t.Run(name, func(t *testing.T) { wantContents(t, filepath.Join(dir, name), list) })
	}
}

// wantContents looks at an archive, named without its ending, and at the list beside it.
func wantContents(t *testing.T, archive, list string) {
	t.Helper()
	beside, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	inside := read(t, archive)
	if !bytes.Equal(inside["sbom.cdx.json"], beside) {
		t.Error("the list in the archive differs from the one beside it")
	}
	program := slices.Concat(inside["paddock"], inside["paddock.exe"]) // it has one of them
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if platform := settings["GOOS"] + "-" + settings["GOARCH"]; !strings.HasSuffix(archive, "-"+platform) {
		t.Errorf("it has a binary for %s", platform)
	}
	var bom struct {
		Metadata struct {
			Component struct {
				Hashes []struct{ Alg, Content string }
			}
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(beside, &bom); err != nil {
		t.Fatal(err)
	}
	sums := bom.Metadata.Component.Hashes
	if want := fmt.Sprintf("%x", sha256.Sum256(program)); len(sums) != 1 || sums[0].Alg != "SHA-256" || sums[0].Content != want {
		t.Errorf("the list is of a binary with the digests %+v, want %s", sums, want)
	}
	listed := map[string]string{}
	for _, c := range bom.Components {
		listed[c.Name] = c.Version
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if listed[m.Path] != m.Version {
			t.Errorf("the list has version %q of %s, and the binary %s", listed[m.Path], m.Path, m.Version)
		}
	}
	if len(info.Deps) == 0 {
		t.Error("the binary names none of its modules")
	}
}

// read gives the files of an archive's folder by their names: a tarball or a zip.
func read(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	add := func(name string, r io.Reader) {
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ = strings.Cut(name, "/")
		all[name] = content
	}
	if packed, err := zip.OpenReader(archive + ".zip"); err == nil {
		defer packed.Close()
		for _, f := range packed.File {
			content, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, content)
			content.Close()
		}
		return all
	}
	f, err := os.Open(archive + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for packed := tar.NewReader(plain); ; {
		h, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		add(h.Name, packed)
	}
}

// A person checks a release with sha256sum, which finds each file in the list.
func TestTheChecksumsFit(t *testing.T) {
	dir := release(t)
	cmd := exec.CommandContext(t.Context(), where(t, "sha256sum", "sha256sum"), "--check", "--strict", "SHA256SUMS")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("sha256sum: %v\n%s", err, out)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != "SHA256SUMS" && !strings.Contains(string(out), f.Name()+": OK\n") {
			t.Errorf("%s has no digest", f.Name())
		}
	}
}
