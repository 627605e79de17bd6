package pkgproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"paddock/internal/archive"
	"paddock/internal/fault"
)

// Bounds of what is unpacked for one installation.
const (
	maxUnpacked = 512 << 20
	maxEntries  = 100_000
)

// unpackLimits are those of one tarball.
var unpackLimits = archive.Limits{Entries: 50_000, Ratio: 100, Free: 64 << 20}

// unpacking writes tarballs into a folder.
type unpacking struct {
	root    *os.Root
	bytes   int64
	entries int
}

// unpack lays a package out in a folder, as npm does, but for whatever would be run. It
// gives how many bytes it has.
func (u *unpacking) unpack(ctx context.Context, n *node, folder string) (size int64, err error) {
	before := u.bytes
	file, err := n.registry.tarball(ctx, n.release.Name, n.release)
	if err != nil {
		return 0, blame(n, err)
	}
	err = u.take(n, folder, file)
	// What follows the archive counts as well: only at its end is a file known to be
	// what its index says.
	if _, rest := io.Copy(io.Discard, file); rest != nil {
		err = rest
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, blame(n, err)
	}
	return u.bytes - before, nil
}

// take unpacks one package into a folder.
func (u *unpacking) take(n *node, folder string, file io.Reader) error {
	if err := u.root.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	err := archive.Read(file, unpackLimits, archive.Receiver{Entry: func(name string, mode fs.FileMode, content io.Reader) error {
		return u.entry(n, folder, name, mode, content)
	}})
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return fault.New(fault.Denied, "the file of the npm package %s cannot be unpacked", n.label()).
		WithHint("it is damaged; tell who runs the registry").WithCause(fmt.Errorf("unpacking %s: %w", n.label(), err))
}

func (u *unpacking) entry(n *node, folder, name string, mode fs.FileMode, content io.Reader) error {
	inner, err := innerName(n, name, mode)
	if err != nil || inner == "" || mode.IsDir() {
		return err
	}
	if u.entries++; u.entries > maxEntries {
		return fault.New(fault.Exhausted, "the packages hold more than %d files", maxEntries).WithHint("install fewer at once")
	}
	target := folder + "/" + inner
	if err := u.root.MkdirAll(path.Dir(target), 0o700); err != nil {
		return errClash(n, err)
	}
	f, err := u.root.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errClash(n, err)
	}
	size, err := io.Copy(f, io.LimitReader(content, maxUnpacked-u.bytes+1))
	u.bytes += size
	if err = errors.Join(err, f.Close()); err == nil && u.bytes > maxUnpacked {
		err = fault.New(fault.Exhausted, "the packages hold more than %d bytes", int64(maxUnpacked)).WithHint("install fewer at once")
	}
	return err
}

// errClash is for an entry that lies where another one does.
func errClash(n *node, err error) error {
	return fault.New(fault.Denied, "the file of the npm package %s holds names that clash", n.label()).WithHint("tell who runs the registry").WithCause(err)
}

// innerName is an entry's name below the package's folder; empty: it is left out. As
// npm does it, the first part of the name is taken off, whatever it is.
func innerName(n *node, name string, mode fs.FileMode) (string, error) {
	bad := fault.New(fault.Denied, "the file of the npm package %s holds %.100q, which no package may", n.label(), name).
		WithHint("it may be an attack; tell who runs the registry")
	if mode.Type() != 0 && !mode.IsDir() || strings.ContainsAny(name, "\\\x00:") || strings.HasPrefix(name, "/") || slices.Contains(strings.Split(name, "/"), "..") {
		return "", bad
	}
	_, inner, _ := strings.Cut(path.Clean(name), "/")
	if len(inner) > 1000 {
		return "", bad
	}
	if bundled, ok := strings.CutPrefix(inner, "node_modules/"); ok {
		parts := strings.SplitN(bundled, "/", 3)
		if whose := parts[0]; !n.release.bundles(whose) && (len(parts) < 2 || !n.release.bundles(whose+"/"+parts[1])) {
			return "", nil
		}
	}
	return inner, nil
}
