package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// file is one file of an archive.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// below gives the files in a folder.
func below(dir string, files []file) []file {
	moved := slices.Clone(files)
	for i := range moved {
		moved[i].name = path.Join(dir, moved[i].name)
	}
	return moved
}

// sorted gives the files in the order of their names.
func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
}

// packTar packs files in the order of their names, all of the same time and of root. Folders
// are made by whoever unpacks them.
func packTar(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&b, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zipped)
	for _, f := range sorted(files) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// packZip is packTar for zip.
func packZip(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.DefaultCompression) })
	for _, f := range sorted(files) {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		to, err := w.CreateHeader(h)
		if err == nil {
			_, err = to.Write(f.content)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// zipped is a file as gzip packs it, without a name or a time.
func zipped(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
