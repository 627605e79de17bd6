//go:build linux && (amd64 || arm64)

package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// step is one thing to do in the new root of a part: exactly one of the fields
// beside Path says what. Path is relative to that root.
type step struct {
	Path string `json:"path"`
	// Dir makes a folder, which gets these permissions when all is done; those on
	// the way to it have to be there.
	Dir os.FileMode `json:"dir,omitempty"`
	// Bind shows a file or folder of the host.
	Bind string `json:"bind,omitempty"`
	// ReadOnly is about Bind, and so is NoLinks: there is no symbolic link on the way.
	ReadOnly bool `json:"read_only,omitempty"`
	NoLinks  bool `json:"no_links,omitempty"`
	// Link makes a symbolic link to it.
	Link string `json:"link,omitempty"`
	// Hide covers a folder with an empty one.
	Hide bool `json:"hide,omitempty"`
	// Text makes a file with it; Run says that it is a program.
	Text string `json:"text,omitempty"`
	Run  bool   `json:"run,omitempty"`
}

// scaffold is where a new root is built: every Linux has this folder, and nothing
// of this process needs what is in it.
const scaffold = "/proc/fs"

// newRoot makes an empty file system, which becomes the root when enter is
// called. Until then the old one is there as well.
func newRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("parting from the host's mounts: %w", err)
	}
	if err := unix.Mount("paddock", scaffold, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mounting an empty root: %w", err)
	}
	return nil
}

// build does the steps.
func build(steps []step) error {
	for _, s := range steps {
		path := filepath.Join(scaffold, filepath.Join("/", s.Path))
		var err error
		switch {
		case s.Dir != 0:
			err = os.Mkdir(path, 0o755)
		case s.Link != "":
			err = os.Symlink(s.Link, path)
		case s.Bind != "":
			err = bind(s, path)
		case s.Hide:
			err = unix.Mount("paddock", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "mode=0555,size=4k")
		default:
			if err = writeFile(path, s.Text); err == nil && s.Run {
				err = os.Chmod(path, 0o555)
			}
		}
		if err != nil {
			return fmt.Errorf("making %s: %w", s.Path, err)
		}
	}
	for _, s := range slices.Backward(steps) {
		if s.Dir == 0 {
			continue
		}
		if err := os.Chmod(filepath.Join(scaffold, filepath.Join("/", s.Path)), s.Dir); err != nil {
			return fmt.Errorf("closing %s: %w", s.Path, err)
		}
	}
	return nil
}

// bind shows a step's source at path, with everything that is mounted below it,
// and without set-user-id programs and devices.
func bind(s step, path string) error {
	source, readOnly := s.Bind, s.ReadOnly
	if s.NoLinks {
		// What is opened is what is mounted, whatever lies at the path by then.
		fd, err := unix.Openat2(unix.AT_FDCWD, source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		if err != nil {
			return fmt.Errorf("opening %s: %w", source, err)
		}
		defer unix.Close(fd)
		source = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		// it is there already: a mount upon what is shown
	} else if info.IsDir() {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	} else if err := writeFile(path, ""); err != nil {
		return err
	}
	if err := unix.Mount(source, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("showing %s: %w", source, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &attr); err != nil {
		if errors.Is(err, unix.ENOSYS) {
			return errors.New("the kernel is older than 5.12")
		}
		return fmt.Errorf("protecting %s: %w", source, err)
	}
	return nil
}

// enter makes the new root the only one, and nothing but what is mounted in it can
// be changed.
func enter() error {
	if err := unix.Mount("", scaffold, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("making the new root read-only: %w", err)
	}
	if err := os.Chdir(scaffold); err != nil {
		return err
	}
	// The old root comes to lie upon the new one, and is taken away.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root: %w", err)
	}
	return os.Chdir("/")
}

// writeFile makes a file that everybody may read, whatever the umask says.
func writeFile(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o444); err != nil {
		return err
	}
	return os.Chmod(path, 0o444)
}
