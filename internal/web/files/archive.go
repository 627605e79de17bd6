package files

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/workspace"
)

func (t target) archive(w http.ResponseWriter, r *http.Request, tree *workspace.Tree) error {
	if r.Method == http.MethodPut {
		return t.unpack(w, r, tree)
	}
	format, err := formatOf(r)
	if err != nil {
		return err
	}
	glob := r.URL.Query().Get("glob")
	if _, err := workspace.NewGlob(glob); err != nil {
		return err
	}
	head := w.Header()
	safe(head)
	head.Set("Cache-Control", "no-store")
	head.Set("Vary", "Accept")
	head.Set("Content-Type", map[string]string{"zip": "application/zip", "tar.gz": "application/gzip"}[format])
	head.Set("Content-Disposition", disposition("attachment", string(t.id)+"."+format))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if err := pack(r.Context(), w, tree, format, glob); err != nil {
		if r.Context().Err() == nil {
			t.config.Log.WarnContext(r.Context(), "an archive broke off", "session", t.id, "cause", err)
		}
		panic(http.ErrAbortHandler) // the client has to see that it is not whole
	}
	return nil
}

// formatOf is "zip" or "tar.gz", by query or else by what is accepted.
func formatOf(r *http.Request) (string, error) {
	switch format := r.URL.Query().Get("format"); format {
	case "zip", "tar.gz":
		return format, nil
	case "tgz":
		return "tar.gz", nil
	case "":
	default:
		return "", fault.New(fault.Invalid, "there are no archives of this format").WithHint("format is zip or tar.gz")
	}
	accepted := strings.Join(r.Header.Values("Accept"), ",")
	if strings.Contains(accepted, "application/zip") && !strings.Contains(accepted, "gzip") {
		return "zip", nil
	}
	return "tar.gz", nil
}

// packer writes an archive's entries one after the other.
type packer interface {
	add(f workspace.File, mode fs.FileMode) (io.Writer, error)
	Close() error
}

// pack writes the regular files that a glob chooses, as they are when it comes
// to them. Links are left out, and so are folders without files.
func pack(ctx context.Context, w io.Writer, tree *workspace.Tree, format, glob string) error {
	var p packer
	if format == "zip" {
		p = zipPacker{zip.NewWriter(w)}
	} else {
		compressed := gzip.NewWriter(w)
		p = tarPacker{tar.NewWriter(compressed), compressed}
	}
	left, err := tree.Walk(ctx, glob, func(f workspace.File) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return packFile(p, tree, f.Path)
	})
	if err == nil && left {
		err = packNote(p, tree)
	}
	if err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	return p.Close()
}

// leftOut is the file of an archive that says that not all files are in it.
const (
	leftOut     = "paddock-left-out.txt"
	leftOutText = "Some files are not in this archive: they lie deeper than 200 folders, their paths are\nlonger than 4,096 bytes, or their folders may not be read.\n"
)

// packNote says in an archive that files were left out.
func packNote(p packer, tree *workspace.Tree) error {
	if _, err := tree.Stat(leftOut); err == nil {
		return nil // it is one of the files
	}
	w, err := p.add(workspace.File{Path: leftOut, Size: int64(len(leftOutText)), Modified: time.Now()}, 0o644)
	if err == nil {
		_, err = io.WriteString(w, leftOutText)
	}
	return err
}

func packFile(p packer, tree *workspace.Tree, name string) error {
	f, about, err := tree.OpenFile(name)
	if err != nil {
		var gone *fault.Error
		if errors.As(err, &gone) && gone.Kind != fault.Internal {
			return nil // it vanished, or became something else
		}
		return err
	}
	defer f.Close()
	w, err := p.add(about, modeOf(f))
	if err != nil {
		return err
	}
	n, err := io.Copy(w, io.NewSectionReader(f, 0, about.Size))
	if err == nil && n < about.Size {
		err = fmt.Errorf("%s became shorter meanwhile", name)
	}
	return err
}

// modeOf is 0755 for programs and 0644 for everything else.
func modeOf(f *os.File) fs.FileMode {
	if info, err := f.Stat(); err == nil {
		return plainMode(info.Mode())
	}
	return 0o644
}

func plainMode(m fs.FileMode) fs.FileMode {
	if m.Perm()&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

type tarPacker struct {
	*tar.Writer
	compressed *gzip.Writer
}

func (p tarPacker) add(f workspace.File, mode fs.FileMode) (io.Writer, error) {
	return p.Writer, p.WriteHeader(&tar.Header{Name: f.Path, Size: f.Size, Mode: int64(mode), ModTime: f.Modified, Typeflag: tar.TypeReg})
}

func (p tarPacker) Close() error { return errors.Join(p.Writer.Close(), p.compressed.Close()) }

type zipPacker struct{ *zip.Writer }

func (p zipPacker) add(f workspace.File, mode fs.FileMode) (io.Writer, error) {
	h := &zip.FileHeader{Name: f.Path, Modified: f.Modified, Method: zip.Deflate}
	h.SetMode(mode)
	return p.CreateHeader(h)
}
