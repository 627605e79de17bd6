package envd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// resolve makes a path absolute: relative ones, and those that begin with ~, are the user's.
func (u account) resolve(path string) string {
	switch {
	case path == "" || path == "~":
		return u.home
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(u.home, path[2:])
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	}
	return filepath.Join(u.home, path)
}

// The types of entries.
const (
	typeUnknown   = "FILE_TYPE_UNSPECIFIED"
	typeFile      = "FILE_TYPE_FILE"
	typeDirectory = "FILE_TYPE_DIRECTORY"
)

// entry is a file as clients are told of it.
type entry struct {
	Name          string            `json:"name"`
	Type          string            `json:"type"`
	Path          string            `json:"path"`
	Size          string            `json:"size"` // an int64, which JSON has as a string
	Mode          uint32            `json:"mode"`
	Permissions   string            `json:"permissions"`
	Owner         string            `json:"owner"`
	Group         string            `json:"group"`
	ModifiedTime  string            `json:"modifiedTime"`
	SymlinkTarget string            `json:"symlinkTarget,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// describe tells of a file. A link has the type and mode of what it leads to.
func (s *Server) describe(path string) (*entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	e := &entry{
		Name: info.Name(), Path: path, Size: strconv.FormatInt(info.Size(), 10), Mode: uint32(info.Mode().Perm()), Type: typeOf(info.Mode()),
		Permissions: info.Mode().String(), ModifiedTime: info.ModTime().UTC().Format(time.RFC3339Nano),
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = s.ownerOf(int(stat.Uid)), s.groupOf(int(stat.Gid))
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		e.Type, e.SymlinkTarget = typeUnknown, path
		if target, err := filepath.EvalSymlinks(path); err == nil {
			e.SymlinkTarget = target
			if there, err := os.Stat(target); err == nil {
				e.Type, e.Mode = typeOf(there.Mode()), uint32(there.Mode().Perm())
			}
		}
	}
	e.Metadata = s.metadataOf(path)
	return e, nil
}

func typeOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return typeFile
	case mode.IsDir():
		return typeDirectory
	}
	return typeUnknown
}

// ownerOf is the name of a user. This process's own is the default one.
func (s *Server) ownerOf(uid int) string {
	if uid == os.Getuid() && s.config.Default != "" {
		return s.config.Default
	}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

func (s *Server) groupOf(gid int) string {
	if gid == os.Getgid() && s.config.Default != "" {
		return s.config.Default
	}
	if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
		return g.Name
	}
	return strconv.Itoa(gid)
}

// fileID is a file, whatever it is called.
type fileID struct{ dev, ino uint64 }

func idOf(info fs.FileInfo) fileID {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return fileID{uint64(stat.Dev), stat.Ino}
	}
	return fileID{}
}

// Metadata of a file are attributes of it, whose names begin so.
const attribute = "user.e2b."

// How much metadata a file may have, in bytes.
const mostMetadata = 4096

// metadataOf reads a file's metadata; nil: it has none.
func (s *Server) metadataOf(path string) map[string]string {
	names := make([]byte, 64<<10)
	n, err := unix.Listxattr(path, names)
	if err != nil {
		return s.keptMetadata(path)
	}
	var all map[string]string
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		key, is := strings.CutPrefix(name, attribute)
		value := make([]byte, mostMetadata)
		if !is {
			continue
		}
		if n, err := unix.Getxattr(path, name, value); err == nil {
			if all == nil {
				all = map[string]string{}
			}
			all[key] = string(value[:n])
		}
	}
	if all == nil {
		return s.keptMetadata(path)
	}
	return all
}

// keptMetadata is what this process remembers of a file whose file system keeps none.
func (s *Server) keptMetadata(path string) map[string]string {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metadata[idOf(info)]
}

// setMetadata replaces a file's metadata.
func (s *Server) setMetadata(f *os.File, wanted map[string]string) error {
	for name := range s.metadataOf(f.Name()) {
		if _, stays := wanted[name]; !stays {
			_ = unix.Fremovexattr(int(f.Fd()), attribute+name) // it may be kept here
		}
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.metadata, idOf(info))
	s.mu.Unlock()
	for name, value := range wanted {
		err := unix.Fsetxattr(int(f.Fd()), attribute+name, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
			s.mu.Lock()
			s.metadata[idOf(info)] = wanted
			s.mu.Unlock()
			return nil
		}
		if err != nil {
			return fmt.Errorf("setting the metadata %q: %w", name, err)
		}
	}
	return nil
}
