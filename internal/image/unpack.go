package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

const (
	// maxPath, maxName and maxDepth bound an entry's path: what Linux takes, and
	// for the depth what no image needs.
	maxPath  = 4095
	maxName  = 255
	maxDepth = 128
	// maxNoted bounds, in bytes, the paths that are kept in memory while a layer is
	// unpacked: those of folders and whiteouts. It is a million of usual ones.
	maxNoted = 64 << 20
	// blockBytes is what any file or folder counts at least, as on the disk.
	blockBytes = 4 << 10
)

// whiteout begins the name of a file that says that another one, of a layer
// below, is gone; opaque is the one that says so of all that its folder had.
// Names that begin with reserved are of AUFS and mean nothing.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	reserved = ".wh..wh."
)

// contents is what of a layer does not show in its tree.
type contents struct {
	Bytes   int64    `json:"bytes"`
	Entries int64    `json:"entries"`
	Gone    []string `json:"gone,omitempty"`   // paths that layers below lose
	Opaque  []string `json:"opaque,omitempty"` // folders that lose all that layers below have there
	LeftOut LeftOut  `json:"left_out"`
}

// unpacker writes the entries of a tar into a folder. All paths go through
// os.Root, each folder is opened before something is made in it, and no file is
// ever opened for writing that was there before. Nobody else may write there.
type unpacker struct {
	root   *os.Root
	owners bool // files get the owners that the tar says: we are root
	room   *share
	out    contents

	at     *os.Root // the folder that was entered last; nil: none
	in     string   // its path
	times  map[string]time.Time
	noted  int
	buffer []byte
}

// unpack reads a tar to its end mark. After an error what was written is of no
// use. What is wrong with the tar is a fault.Invalid, and too much of it a
// fault.Exhausted.
func unpack(ctx context.Context, dir string, in io.Reader, room *share) (contents, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return contents{}, blob.Explain(err, "unpacking an image")
	}
	defer root.Close()
	u := &unpacker{root: root, owners: os.Geteuid() == 0, room: room, times: map[string]time.Time{}, buffer: make([]byte, 128<<10)}
	defer u.leave()
	for r := tar.NewReader(in); ; {
		if ctx.Err() != nil {
			return u.out, context.Cause(ctx)
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return u.out, u.finish()
		}
		if err == nil {
			err = u.entry(h, r)
		}
		if err != nil {
			return u.out, explainEntry(h, err)
		}
	}
}

// explainEntry says of which entry an error is.
func explainEntry(h *tar.Header, err error) error {
	var f *fault.Error
	switch {
	case errors.As(err, &f), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, errBroken), errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, tar.ErrInsecurePath):
		return errImage("a layer cannot be read to its end").WithCause(err)
	case h != nil && misshapen(err):
		return errImage("it cannot hold %.200q there", h.Name).WithCause(err)
	}
	return blob.Explain(err, "unpacking an image")
}

// errImage is a fault of an image that is not as it has to be.
func errImage(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "the image is refused: "+format, args...).WithHint("nothing of it was kept; its author can say why")
}

// misshapen tells that what is on the way to an entry is not what it should be.
// Two errors of os.Root have no type of their own.
func misshapen(err error) bool {
	for _, e := range []error{syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EMLINK, syscall.EINVAL, syscall.EILSEQ, syscall.EISDIR, fs.ErrExist, fs.ErrNotExist} {
		if errors.Is(err, e) {
			return true
		}
	}
	return strings.HasSuffix(err.Error(), "path escapes from parent") || strings.HasSuffix(err.Error(), "not a directory")
}

// cleanPath gives the path of an entry below the root, "." for the root itself. A
// leading slash means the root, as all container tools have it.
func cleanPath(name string) (string, error) {
	if len(name) > maxPath || strings.ContainsRune(name, 0) {
		return "", errImage("the path %.50q… is too long, or none", name)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return "", errImage("the path %.200q leads upwards", name)
		case len(part) > maxName:
			return "", errImage("the name %.50q… is too long", part)
		}
		parts = append(parts, part)
	}
	if len(parts) > maxDepth {
		return "", errImage("the path %.50q… is too deep", name)
	}
	if len(parts) == 0 {
		return ".", nil
	}
	return strings.Join(parts, "/"), nil
}

// entry unpacks one.
func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleanPath(h.Name)
	if err != nil {
		return err
	}
	if err := u.room.entry(); err != nil {
		return err
	}
	dir, base := path.Dir(name), path.Base(name)
	if strings.Contains("/"+name, "/"+whiteout) {
		return u.whiteout(dir, base)
	}
	u.out.Entries++
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "SCHILY.xattr.") {
			u.out.LeftOut.Xattrs++
			break
		}
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return errImage("its root is not a folder")
		}
		return u.settleFolder(u.root, ".", name, h)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(name, h)
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		return u.file(dir, base, h, r)
	case tar.TypeSymlink:
		return u.symlink(dir, base, h)
	case tar.TypeLink:
		return u.link(name, h)
	}
	u.out.LeftOut.Devices++
	u.out.Entries--
	return nil
}

// whiteout notes what layers below lose.
func (u *unpacker) whiteout(dir, base string) error {
	for part := range strings.SplitSeq(dir, "/") {
		if strings.HasPrefix(part, reserved) {
			return nil // AUFS's own
		}
		if strings.HasPrefix(part, whiteout) {
			return errImage("%.200q is in a folder that is a whiteout", dir+"/"+base)
		}
	}
	if base == opaque {
		u.out.Opaque = append(u.out.Opaque, dir)
		return u.note(dir)
	}
	gone, _ := strings.CutPrefix(base, whiteout)
	switch {
	case strings.HasPrefix(base, reserved):
		return nil
	case gone == "" || gone == "." || gone == "..":
		return errImage("%.200q is not a whiteout of anything", dir+"/"+base)
	}
	u.out.Gone = append(u.out.Gone, path.Join(dir, gone))
	return u.note(dir + base)
}

// note counts what a path takes in memory.
func (u *unpacker) note(name string) error {
	if u.noted += len(name) + 16; u.noted > maxNoted {
		return errTooLarge("the names in it take more than %d MiB", maxNoted>>20)
	}
	return nil
}

// enter opens the folder of an entry, making it where it is missing. Links on the
// way are followed inside of the layer; one that leads out of it is an error.
func (u *unpacker) enter(dir string) (*os.Root, error) {
	if dir == "." {
		return u.root, nil
	}
	if u.at != nil && u.in == dir {
		return u.at, nil
	}
	u.leave()
	sub, err := u.root.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if sub, err = u.enter(path.Dir(dir)); err != nil {
			return nil, err
		}
		if err = u.room.entry(); err != nil {
			return nil, err
		}
		u.out.Entries++
		if err = u.mkdir(sub, path.Base(dir)); err != nil {
			return nil, err
		}
		u.leave()
		sub, err = u.root.OpenRoot(dir)
	}
	if err != nil {
		return nil, err
	}
	u.at, u.in = sub, dir
	return sub, nil
}

func (u *unpacker) leave() {
	if u.at != nil {
		u.at.Close()
		u.at = nil
	}
}

// mkdir makes a folder as it is where the tar says nothing of it.
func (u *unpacker) mkdir(dir *os.Root, base string) error {
	if err := dir.Mkdir(base, 0o755); err != nil {
		return err
	}
	if err := u.grow(0); err != nil {
		return err
	}
	return dir.Chmod(base, 0o755) // whatever the umask is
}

// grow counts what something takes on the disk.
func (u *unpacker) grow(size int64) error {
	if size < 0 || size > u.room.of.maxBytes { // before it is rounded, which could overflow
		return u.room.of.tooMuch()
	}
	size = max((size+blockBytes-1)/blockBytes*blockBytes, blockBytes)
	if err := u.room.grow(size); err != nil {
		return err
	}
	u.out.Bytes += size
	return nil
}

func (u *unpacker) folder(name string, h *tar.Header) error {
	dir, err := u.enter(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if info, err := dir.Lstat(base); err == nil && !info.IsDir() {
		if err := dir.Remove(base); err != nil {
			return err
		}
	}
	if err := u.mkdir(dir, base); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return u.settleFolder(dir, base, name, h)
}

// settleFolder gives a folder its owner and permissions; its time comes last.
func (u *unpacker) settleFolder(dir *os.Root, base, name string, h *tar.Header) error {
	perm := u.permissions(h, 0o700)
	if err := u.own(h, func(uid, gid int) error { return dir.Lchown(base, uid, gid) }); err != nil {
		return err
	}
	if err := dir.Chmod(base, perm); err != nil {
		return err
	}
	u.times[name] = h.ModTime
	return u.note(name)
}

// permissions are an entry's, without setuid and setgid; where files are their
// user's and not root's, with what that user needs.
func (u *unpacker) permissions(h *tar.Header, need fs.FileMode) fs.FileMode {
	mode := h.FileInfo().Mode()
	if mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		u.out.LeftOut.Setuid++
	}
	perm := mode & (fs.ModePerm | fs.ModeSticky)
	if !u.owners {
		perm |= need
	}
	return perm
}

// own gives an entry its owner, as far as we can.
func (u *unpacker) own(h *tar.Header, chown func(uid, gid int) error) error {
	const most = 1<<31 - 1
	if h.Uid < 0 || h.Gid < 0 || h.Uid > most || h.Gid > most {
		return errImage("%.200q has the owner %d:%d", h.Name, h.Uid, h.Gid)
	}
	if !u.owners {
		if h.Uid != 0 || h.Gid != 0 {
			u.out.LeftOut.Owners++
		}
		return nil
	}
	err := chown(h.Uid, h.Gid)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) { // a root that is not allowed all
		u.out.LeftOut.Owners++
		return nil
	}
	return err
}

func (u *unpacker) file(dir, base string, h *tar.Header, r io.Reader) error {
	if err := u.grow(h.Size); err != nil {
		return err
	}
	in, err := u.enter(dir)
	if err != nil {
		return err
	}
	f, err := u.create(in, base)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, r, u.buffer)
	if err == nil {
		err = u.own(h, f.Chown)
	}
	if err == nil {
		err = f.Chmod(u.permissions(h, 0o400))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return in.Chtimes(base, h.ModTime, h.ModTime)
}

// create makes a file that was not there; what had its name is removed.
func (u *unpacker) create(in *os.Root, base string) (*os.File, error) {
	const fresh = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := in.OpenFile(base, fresh, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err := in.RemoveAll(base); err != nil {
			return nil, err
		}
		f, err = in.OpenFile(base, fresh, 0o600)
	}
	return f, err
}

// symlink makes a link that leads wherever it wants: nobody here follows it out.
func (u *unpacker) symlink(dir, base string, h *tar.Header) error {
	if len(h.Linkname) > maxPath || h.Linkname == "" || strings.ContainsRune(h.Linkname, 0) {
		return errImage("the link %.200q leads nowhere", h.Name)
	}
	if err := u.grow(0); err != nil {
		return err
	}
	in, err := u.enter(dir)
	if err != nil {
		return err
	}
	err = in.Symlink(h.Linkname, base)
	if errors.Is(err, fs.ErrExist) {
		if err := in.RemoveAll(base); err != nil {
			return err
		}
		err = in.Symlink(h.Linkname, base)
	}
	if err != nil {
		return err
	}
	return u.own(h, func(uid, gid int) error { return in.Lchown(base, uid, gid) })
}

// link makes a second name of a file of this layer.
func (u *unpacker) link(name string, h *tar.Header) error {
	target, err := cleanPath(h.Linkname)
	if err != nil {
		return err
	}
	info, err := u.root.Lstat(target)
	if err != nil || info.IsDir() {
		return errImage("%.200q is a hard link to %.200q, which is not a file of its layer", h.Name, h.Linkname)
	}
	in, err := u.enter(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if there, err := in.Lstat(base); err == nil {
		if os.SameFile(there, info) {
			return nil
		}
		if err := in.RemoveAll(base); err != nil {
			return err
		}
	}
	return u.root.Link(target, name)
}

// finish gives folders their times, which change while something is put into
// them.
func (u *unpacker) finish() error {
	for name, at := range u.times {
		info, err := u.root.Lstat(name)
		if err != nil || !info.IsDir() {
			continue // something took its place later
		}
		if err := u.root.Chtimes(name, at, at); err != nil && !misshapen(err) {
			return fmt.Errorf("setting the time of a folder: %w", err)
		}
	}
	return nil
}
