package cli

import (
	"archive/tar"
	"archive/zip"
	"context"
	"fmt"
	"io"

	"paddock/internal/session"
	"paddock/internal/workspace"
)

// formats are how a session's files can be written without the rest of it.
var formats = map[string]func(context.Context, *workspace.Tree, io.Writer) error{"zip": packZip, "tar": packTar}

// packFiles writes the files of a session as an archive that other programs read.
func packFiles(ctx context.Context, m *session.Manager, o session.Owner, id session.ID, format string, w io.Writer) error {
	tree, done, err := m.Files(o, id)
	if err != nil {
		return err
	}
	defer done()
	if err := formats[format](ctx, tree, w); err != nil {
		return fmt.Errorf("packing the files: %w", err)
	}
	return nil
}

func packZip(ctx context.Context, tree *workspace.Tree, w io.Writer) error {
	archive := zip.NewWriter(w)
	_, err := tree.Walk(ctx, "", func(f workspace.File) error {
		to, err := archive.CreateHeader(&zip.FileHeader{Name: f.Path, Method: zip.Deflate, Modified: f.Modified})
		if err != nil {
			return err
		}
		in, _, err := tree.OpenFile(f.Path)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(to, in)
		return err
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func packTar(ctx context.Context, tree *workspace.Tree, w io.Writer) error {
	archive := tar.NewWriter(w)
	_, err := tree.Walk(ctx, "", func(f workspace.File) error {
		in, now, err := tree.OpenFile(f.Path)
		if err != nil {
			return err
		}
		defer in.Close()
		if err := archive.WriteHeader(&tar.Header{Name: f.Path, Mode: 0o644, Size: now.Size, ModTime: now.Modified, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = io.CopyN(archive, in, now.Size)
		return err
	})
	if err != nil {
		return err
	}
	return archive.Close()
}
