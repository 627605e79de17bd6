package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// called is the name of the packages; that of the program is shorter.
const (
	called      = "paddock-sandbox"
	description = "A safe place to run code, for any MCP client: Python, JavaScript and TypeScript, isolated, with memory"
	license     = "Apache-2.0"
)

// release is what is packed. It is for one goroutine.
type release struct {
	source, out string
	version     version
	time        time.Time
	binaries    []binary
	name        string // in the MCP registry; empty: it is not published there
	url, image  string // where the files and the image will be; empty: nowhere

	completions, pages []file            // of shells; for man
	boms               map[string][]byte // by platform
	files              []string          // what was written
}

// pack writes everything.
func (r *release) pack(ctx context.Context) error {
	var err error
	if r.completions, r.pages, err = r.helpFiles(ctx); err != nil {
		return err
	}
	r.boms = map[string][]byte{}
	for _, b := range r.binaries {
		if r.boms[b.String()], err = r.bom(b); err != nil {
			return fmt.Errorf("listing what is in paddock for %s: %w", b, err)
		}
		if err := r.packBinary(ctx, b); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"the npm package", r.packNPM}, {"the image", r.packImage}, {"the registry's entry", r.describe}, {"the checksums", r.sum},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("packing %s: %w", step.what, err)
		}
	}
	return nil
}

// packBinary writes what there is for one platform alone.
func (r *release) packBinary(ctx context.Context, b binary) error {
	if err := r.write(fmt.Sprintf("paddock-%s-%s.cdx.json", r.version.semver, b), r.boms[b.String()]); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(binary) error
	}{
		{"the archive", r.packArchive},
		{"the npm package", r.packNPMBinary},
		{"the wheel", r.packWheel},
		{"the bundle", r.packBundle},
		{"the Debian package", func(b binary) error { return r.packDeb(ctx, b) }},
	} {
		if err := step.do(b); err != nil {
			return fmt.Errorf("packing %s for %s: %w", step.what, b, err)
		}
	}
	return nil
}

// packArchive writes the tarball, or for Windows the zip.
func (r *release) packArchive(b binary) error {
	legal, err := r.texts("LICENSE", "NOTICE", "README.md", "CHANGELOG.md")
	if err != nil {
		return err
	}
	files := append(legal, b.program("paddock"), file{"sbom.cdx.json", 0o644, r.boms[b.String()]})
	files = append(files, below("completions", r.completions)...)
	if b.goos != "windows" {
		files = append(files, below("man/man1", r.pages)...)
	}
	if b.goos == "linux" {
		service, err := r.texts("packaging/paddock.service", "packaging/paddock.sysusers")
		if err != nil {
			return err
		}
		files = append(files, below("systemd", service)...)
	}
	name := fmt.Sprintf("paddock-%s-%s", r.version.semver, b)
	pack, suffix := packTar, ".tar.gz"
	if b.goos == "windows" {
		pack, suffix = packZip, ".zip"
	}
	content, err := pack(below(name, files), r.time)
	if err != nil {
		return err
	}
	return r.write(name+suffix, content)
}

// texts reads files of the source; in the archive they have no folder.
func (r *release) texts(names ...string) (all []file, err error) {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(r.source, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		all = append(all, file{filepath.Base(name), 0o644, content})
	}
	return all, nil
}

// shells are those that paddock completes words for, and the name of each one's script.
var shells = map[string]string{"bash": "paddock.bash", "zsh": "_paddock", "fish": "paddock.fish", "powershell": "paddock.ps1"}

// helpFiles has the binary that runs here write its completions and its manual pages, which
// are the same for all platforms. A release without a binary for this machine has none.
func (r *release) helpFiles(ctx context.Context) (completions, pages []file, err error) {
	b, ok := r.here()
	if !ok {
		return nil, nil, nil
	}
	path, err := filepath.Abs(b.path)
	if err != nil {
		return nil, nil, err
	}
	for shell, name := range shells {
		script, err := exec.CommandContext(ctx, path, "completion", shell).Output()
		if err != nil {
			return nil, nil, fmt.Errorf("making the completions of %s: %w", shell, err)
		}
		completions = append(completions, file{name, 0o644, script})
	}
	pages, err = manualPages(ctx, path)
	return sorted(completions), pages, err
}

// manualPages are those that the program at path writes.
func manualPages(ctx context.Context, path string) (pages []file, err error) {
	dir, err := os.MkdirTemp("", "paddock-man-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if out, err := exec.CommandContext(ctx, path, "man", "--dir", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("making the manual pages: %w\n%s", err, out)
	}
	entries, err := os.ReadDir(dir) // in the order of names
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		pages = append(pages, file{e.Name(), 0o644, text})
	}
	return pages, nil
}

// sum writes the digests of all files, as sha256sum -c reads them.
func (r *release) sum() error {
	var lines strings.Builder
	for _, name := range slices.Sorted(slices.Values(r.files)) {
		content, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), name)
	}
	return r.write("SHA256SUMS", []byte(lines.String()))
}
