package envd

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// download gives the contents of a file.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	u, refused := s.userOf(r)
	if refused != nil {
		failHTTP(w, http.StatusUnauthorized, refused.Message)
		return
	}
	path := u.resolve(r.URL.Query().Get("path"))
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		failHTTP(w, http.StatusNotFound, fmt.Sprintf("path '%s' does not exist", path))
		return
	case err != nil:
		failHTTP(w, http.StatusInternalServerError, fmt.Sprintf("error checking if path '%s' exists: %v", path, err))
		return
	case info.IsDir():
		failHTTP(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is a directory", path))
		return
	case !info.Mode().IsRegular():
		failHTTP(w, http.StatusBadRequest, fmt.Sprintf("path '%s' is not a regular file", path))
		return
	}
	f, err := os.Open(path)
	if err != nil {
		failHTTP(w, http.StatusInternalServerError, fmt.Sprintf("error opening file '%s': %v", path, err))
		return
	}
	defer f.Close()
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(path)}))
	http.ServeContent(w, r, path, info.ModTime(), f)
}

// written is a file that was uploaded.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// uploadError is one with a status.
type uploadError struct {
	status  int
	message string
}

func (e *uploadError) Error() string { return e.message }

func refuse(status int, format string, args ...any) error {
	return &uploadError{status, fmt.Sprintf(format, args...)}
}

// upload writes files: one whose contents are the body, or the parts of a form.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	all, err := s.uploadAll(r)
	_, _ = io.Copy(io.Discard, r.Body) // a client that still sends reads no answer
	var refused *uploadError
	switch {
	case errors.As(err, &refused):
		failHTTP(w, refused.status, refused.message)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		failHTTP(w, http.StatusInsufficientStorage, fmt.Sprintf("not enough disk space available: %v", err))
	case err != nil:
		failHTTP(w, http.StatusInternalServerError, err.Error())
	default:
		answerJSON(w, http.StatusOK, all)
	}
}

func (s *Server) uploadAll(r *http.Request) ([]written, error) {
	u, refused := s.userOf(r)
	if refused != nil {
		return nil, refuse(http.StatusUnauthorized, "%s", refused.Message)
	}
	metadata, err := metadataFrom(r.Header)
	if err != nil {
		return nil, err
	}
	body := io.Reader(r.Body)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "the body is not gzip: %v", err)
		}
		body = unpacked
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, "unsupported Content-Encoding: %s", encoding)
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	path := r.URL.Query().Get("path")
	switch {
	case err == nil && kind == "application/octet-stream":
		if path == "" {
			return nil, refuse(http.StatusBadRequest, "path is required")
		}
		one, err := s.writeFile(u.resolve(path), body, metadata)
		return []written{one}, err
	case err == nil && kind == "multipart/form-data" && params["boundary"] != "":
		return s.uploadParts(u, path, multipart.NewReader(body, params["boundary"]), metadata)
	}
	return nil, refuse(http.StatusBadRequest, "error parsing multipart form: request Content-Type isn't multipart/form-data")
}

func (s *Server) uploadParts(u account, path string, parts *multipart.Reader, metadata map[string]string) ([]written, error) {
	all, seen := []written{}, map[string]bool{}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, refuse(http.StatusBadRequest, "error reading multipart form: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		to := path
		if to == "" {
			to = wholeName(part)
		}
		if to == "" {
			return all, refuse(http.StatusBadRequest, "path is required")
		}
		to = u.resolve(to)
		if seen[to] {
			return all, refuse(http.StatusBadRequest, "you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", to)
		}
		seen[to] = true
		one, err := s.writeFile(to, part, metadata)
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
}

// wholeName is a part's name with its folders, which mime/multipart takes away.
func wholeName(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return part.FileName()
	}
	return params["filename"]
}

// writeFile writes a file, making the folders on its way.
func (s *Server) writeFile(path string, from io.Reader, metadata map[string]string) (written, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return written{}, refuse(http.StatusBadRequest, "path is a directory: %s", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return written{}, fmt.Errorf("error creating directories: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return written{}, fmt.Errorf("error opening file: %w", err)
	}
	_, err = io.Copy(f, from)
	if err == nil {
		err = s.setMetadata(f, metadata)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return written{}, fmt.Errorf("error writing file: %w", err)
	}
	return written{filepath.Base(path), path, "file", metadata}, nil
}

// metadataFrom reads the metadata that a request gives to its files.
func metadataFrom(h http.Header) (map[string]string, error) {
	all, size := map[string]string{}, 0
	for name, values := range maps.All(h) {
		key, is := strings.CutPrefix(name, "X-Metadata-")
		if !is || key == "" || len(values) == 0 {
			continue
		}
		for _, c := range values[0] {
			if c < ' ' || c > '~' {
				return nil, refuse(http.StatusBadRequest, "the value of the metadata %q is not printable US-ASCII", key)
			}
		}
		key = strings.ToLower(key)
		all[key] = values[0]
		if size += len(attribute) + len(key) + len(values[0]); size > mostMetadata {
			return nil, refuse(http.StatusBadRequest, "the metadata of a file has at most %d bytes", mostMetadata)
		}
	}
	return all, nil
}
