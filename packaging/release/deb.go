package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
)

// What the package does after it was unpacked and before and after it is removed.
var (
	//go:embed debian/postinst
	postinst []byte
	//go:embed debian/prerm
	prerm []byte
	//go:embed debian/postrm
	postrm []byte
)

// packDeb writes the Debian package: the binary, the service, which nothing starts until the
// administrator enables it, the completions and the manual pages. dpkg-deb packs it.
func (r *release) packDeb(ctx context.Context, b binary) error {
	if b.deb == "" {
		return nil
	}
	files, err := r.debFiles(b)
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "paddock-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := r.unpack(root, files); err != nil {
		return err
	}
	name := fmt.Sprintf("paddock_%s_%s.deb", r.version.debian, b.deb)
	to := filepath.Join(root, name)
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "-Zgzip", "--build", filepath.Join(root, "tree"), to)
	cmd.Env = append(cmd.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w\n%s", err, out)
	}
	content, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	return r.write(name, content)
}

func (r *release) debFiles(b binary) ([]file, error) {
	read, err := r.texts("LICENSE", "NOTICE", "packaging/paddock.service", "packaging/paddock.sysusers")
	if err != nil {
		return nil, err
	}
	legal, service, user := read[:2], read[2], read[3]
	files := append(below("usr/share/doc/paddock", legal[:1]),
		b.program("usr/bin/paddock"),
		file{"usr/lib/systemd/system/paddock.service", 0o644, bytes.ReplaceAll(service.content, []byte("/usr/local/bin/"), []byte("/usr/bin/"))},
		file{"usr/lib/sysusers.d/paddock.conf", 0o644, user.content},
		file{"usr/share/doc/paddock/copyright", 0o644, legal[1].content},
		file{"usr/share/doc/paddock/sbom.cdx.json", 0o644, r.boms[b.String()]},
		file{"DEBIAN/postinst", 0o755, postinst}, file{"DEBIAN/prerm", 0o755, prerm}, file{"DEBIAN/postrm", 0o755, postrm},
	)
	places := map[string]string{
		"paddock.bash": "usr/share/bash-completion/completions/paddock", "_paddock": "usr/share/zsh/vendor-completions/_paddock",
		"paddock.fish": "usr/share/fish/vendor_completions.d/paddock.fish",
	}
	for _, f := range r.completions {
		if to := places[f.name]; to != "" {
			files = append(files, file{to, f.mode, f.content})
		}
	}
	for _, f := range r.pages {
		packed, err := zipped(f.content)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"usr/share/man/man1/" + f.name + ".gz", f.mode, packed})
	}
	size := 0
	for _, f := range files {
		size += len(f.content)
	}
	control := fmt.Sprintf(`Package: paddock
Version: %s
Architecture: %s
Maintainer: the paddock authors <paddock@localhost>
Installed-Size: %d
Section: devel
Priority: optional
Suggests: systemd
Description: safe place to run code, for any MCP client
 paddock runs Python, JavaScript and TypeScript that a model writes, isolated and
 with state that lasts, and whatever an image has in Linux machines of their own.
 The service (paddock serve) runs once it is enabled: systemctl enable --now paddock
`, r.version.debian, b.deb, size>>10)
	return append(files, file{"DEBIAN/control", 0o644, []byte(control)}), nil
}

// unpack writes files below root/tree, with the release's time, which dpkg-deb takes over.
func (r *release) unpack(root string, files []file) error {
	tree := filepath.Join(root, "tree")
	for _, f := range files {
		to := filepath.Join(tree, filepath.FromSlash(path.Clean(f.name)))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, f.content, f.mode); err != nil {
			return err
		}
	}
	return filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() || info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			return err
		}
		return os.Chtimes(path, r.time, r.time)
	})
}
