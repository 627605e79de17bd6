package envd

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

type (
	pathRequest struct {
		Path string `json:"path"`
	}
	listRequest struct {
		Path  string `json:"path"`
		Depth uint32 `json:"depth"`
	}
	moveRequest struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	oneEntry struct {
		Entry *entry `json:"entry"`
	}
	entries struct {
		Entries []*entry `json:"entries"`
	}
)

func (s *Server) fileMethods() map[string]http.Handler {
	return map[string]http.Handler{
		"Stat": unary(s.stat), "ListDir": unary(s.listDir), "MakeDir": unary(s.makeDir), "Move": unary(s.move), "Remove": unary(s.remove),
		"WatchDir": streaming(s.watchDir), "CreateWatcher": unary(s.createWatcher), "GetWatcherEvents": unary(s.watcherEvents),
		"RemoveWatcher": unary(s.removeWatcher),
	}
}

// fileError says what went wrong with a file.
func fileError(err error, doing string) *connectError {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failed(notFound, "error %s: %v", doing, err)
	case errors.Is(err, fs.ErrExist):
		return failed(alreadyExists, "error %s: %v", doing, err)
	}
	return failed(internalError, "error %s: %v", doing, err)
}

func (s *Server) entryOf(path string) (*oneEntry, *connectError) {
	e, err := s.describe(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, failed(notFound, "file not found: %s", path)
		}
		return nil, fileError(err, "looking at the file")
	}
	return &oneEntry{e}, nil
}

func (s *Server) stat(r *http.Request, q *pathRequest) (*oneEntry, *connectError) {
	u, refused := s.userOf(r)
	if refused != nil {
		return nil, refused
	}
	return s.entryOf(u.resolve(q.Path))
}

// listDir lists a folder and, up to a depth, those in it, in the order of their names.
func (s *Server) listDir(r *http.Request, q *listRequest) (*entries, *connectError) {
	u, refused := s.userOf(r)
	if refused != nil {
		return nil, refused
	}
	asked := u.resolve(q.Path)
	folder, refused := openFolder(asked)
	if refused != nil {
		return nil, refused
	}
	depth, all := max(int(q.Depth), 1), entries{Entries: []*entry{}}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if path == folder {
			return err
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it went meanwhile
			}
			return err
		}
		inside, _ := filepath.Rel(folder, path)
		e, err := s.describe(path)
		if err == nil {
			e.Path = filepath.Join(asked, inside)
			all.Entries = append(all.Entries, e)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if d.IsDir() && strings.Count(inside, "/")+1 >= depth {
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fileError(err, "reading the directory "+asked)
	}
	return &all, nil
}

// openFolder follows the links on the way to a folder.
func openFolder(path string) (string, *connectError) {
	folder, err := filepath.EvalSymlinks(path)
	if err == nil {
		var info fs.FileInfo
		if info, err = os.Stat(folder); err == nil && !info.IsDir() {
			return "", failed(invalidArgument, "path is not a directory: %s", path)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", failed(notFound, "directory not found: %s", path)
	case err != nil:
		return "", fileError(err, "looking at the directory "+path)
	}
	return folder, nil
}

func (s *Server) makeDir(r *http.Request, q *pathRequest) (*oneEntry, *connectError) {
	u, refused := s.userOf(r)
	if refused != nil {
		return nil, refused
	}
	path := u.resolve(q.Path)
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return nil, failed(alreadyExists, "directory already exists: %s", path)
		}
		return nil, failed(invalidArgument, "path already exists but it is not a directory: %s", path)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fileError(err, "creating the directory")
	}
	return s.entryOf(path)
}

func (s *Server) move(r *http.Request, q *moveRequest) (*oneEntry, *connectError) {
	u, refused := s.userOf(r)
	if refused != nil {
		return nil, refused
	}
	from, to := u.resolve(q.Source), u.resolve(q.Destination)
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil, failed(notFound, "source file not found: %s", from)
	}
	err := os.MkdirAll(filepath.Dir(to), 0o755)
	if err == nil {
		err = os.Rename(from, to)
	}
	if err != nil {
		return nil, fileError(err, "renaming the file")
	}
	return s.entryOf(to)
}

func (s *Server) remove(r *http.Request, q *pathRequest) (*nothing, *connectError) {
	u, refused := s.userOf(r)
	if refused != nil {
		return nil, refused
	}
	if err := os.RemoveAll(u.resolve(q.Path)); err != nil {
		return nil, failed(internalError, "error removing file or directory: %v", err)
	}
	return &nothing{}, nil
}
