package wasi

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// errno is WASI's error number.
type errno uint16

const (
	success      errno = 0
	eacces       errno = 2
	ebadf        errno = 8
	eexist       errno = 20
	efault       errno = 21
	efbig        errno = 22
	eintr        errno = 27
	einval       errno = 28
	eio          errno = 29
	eisdir       errno = 31
	eloop        errno = 32
	emfile       errno = 33
	enametoolong errno = 37
	enoent       errno = 44
	enospc       errno = 51
	enosys       errno = 52
	enotdir      errno = 54
	enotempty    errno = 55
	enotsup      errno = 58
	eperm        errno = 63
	erofs        errno = 69
	espipe       errno = 70
	exdev        errno = 75
)

// numbers translates the host's numbers, whose names all systems share.
var numbers = map[syscall.Errno]errno{
	syscall.EACCES: eacces, syscall.EEXIST: eexist, syscall.EFBIG: efbig, syscall.EINVAL: einval, syscall.EISDIR: eisdir,
	syscall.ELOOP: eloop, syscall.EMFILE: emfile, syscall.ENFILE: emfile, syscall.ENAMETOOLONG: enametoolong, syscall.ENOENT: enoent,
	syscall.ENOSPC: enospc, syscall.ENOTDIR: enotdir, syscall.ENOTEMPTY: enotempty, syscall.EPERM: eperm, syscall.EROFS: erofs,
	syscall.EXDEV: exdev, syscall.ENXIO: eacces, syscall.EBADF: ebadf, syscall.EINTR: eintr, syscall.EDQUOT: enospc,
}

// errnoOf translates an error of the os package. What it does not know is an
// escape from the root (which has no number of its own) or EIO.
func errnoOf(err error) errno {
	if err == nil {
		return success
	}
	var n syscall.Errno
	if errors.As(err, &n) {
		if e, ok := numbers[n]; ok {
			return e
		}
	}
	switch {
	case errors.Is(err, errFull):
		return enospc
	case errors.Is(err, fs.ErrNotExist):
		return enoent
	case errors.Is(err, fs.ErrExist):
		return eexist
	case errors.Is(err, fs.ErrPermission):
		return eacces
	case errors.Is(err, fs.ErrClosed):
		return ebadf
	case errors.Is(err, fs.ErrInvalid):
		return einval
	}
	var p *fs.PathError
	var l *os.LinkError
	if n == 0 && (errors.As(err, &p) || errors.As(err, &l)) {
		return eperm // "path escapes from parent"
	}
	return eio
}
