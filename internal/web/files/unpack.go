package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"paddock/internal/archive"
	"paddock/internal/fault"
	"paddock/internal/workspace"
)

// Bounds of an archive that is unpacked, besides the workspace's disk limit, as
// bundle.Limits has them.
const (
	maxEntries          = workspace.MaxFiles
	maxRatio, freeBytes = 200, 8 << 20
	maxZip, maxTable    = 256 << 20, 8 << 20
)

// unpack puts every file of an archive in place, or none. What kind it is,
// tar, tar.gz or zip, shows in its first bytes.
func (t target) unpack(w http.ResponseWriter, r *http.Request, tree *workspace.Tree) error {
	if err := checkUpload(r); err != nil {
		return err
	}
	stage, err := tree.Stage()
	if err != nil {
		return err
	}
	defer stage.Close()
	u := &unpacker{stage: stage}
	limits := archive.Limits{Entries: maxEntries, Ratio: maxRatio, Free: freeBytes, Zip: maxZip, Table: maxTable}
	if err := archive.Read(body{r.Context(), r.Body}, limits, archive.Receiver{Entry: u.add, Spool: u.spool}); err != nil {
		return damaged(err)
	}
	if err := stage.Commit(nil); err != nil {
		return err
	}
	answer(w, r, http.StatusOK, map[string]int64{"files": int64(u.files), "bytes": u.bytes})
	return nil
}

// damaged blames the archive for what is nobody else's fault.
func damaged(err error) error {
	var much archive.Excess
	var known *fault.Error
	var own broken
	switch {
	case errors.As(err, &much):
		return refusal{fault.Of(much), http.StatusRequestEntityTooLarge}
	case errors.As(err, &known) || errors.As(err, &own):
		return err
	}
	return fault.New(fault.Invalid, "the archive is damaged, or none").WithHint("send a tar, tar.gz or zip").WithCause(err)
}

// unpacker puts the entries of an archive into a stage.
type unpacker struct {
	stage *workspace.Stage
	files int
	bytes int64 // of all files
}

func (u *unpacker) spool(src io.Reader) (archive.File, int64, error) {
	file, size, err := u.stage.Spool(src)
	if err != nil {
		return nil, 0, err
	}
	return file, size, nil
}

// add takes one entry. Folders are made when there is a file in them.
func (u *unpacker) add(name string, mode fs.FileMode, src io.Reader) error {
	if mode.IsDir() && path.Clean(name) == "." {
		return nil
	}
	if strings.HasPrefix(name, "/") {
		return fault.New(fault.Denied, "the archive holds an absolute path").WithHint("pack it with relative names")
	}
	if _, err := workspace.Clean(name); err != nil {
		return err
	}
	switch {
	case mode.IsDir():
		return nil
	case !mode.IsRegular():
		return fault.New(fault.Denied, "the archive holds a link or a device").WithHint("pack plain files only; tar --dereference --hard-dereference packs what links lead to")
	}
	n, err := u.stage.Add(name, src, plainMode(mode))
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	u.files++
	u.bytes += n
	return nil
}
