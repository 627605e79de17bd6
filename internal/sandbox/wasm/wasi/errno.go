package wasi

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// errno is WASI's number for how a call went.
type errno uint16

const (
	success      errno = 0
	eacces       errno = 2
	eagain       errno = 6
	ebadf        errno = 8
	ebusy        errno = 10
	eexist       errno = 20
	efault       errno = 21
	efbig        errno = 22
	eilseq       errno = 25
	eintr        errno = 27
	einval       errno = 28
	eio          errno = 29
	eisdir       errno = 31
	eloop        errno = 32
	emfile       errno = 33
	emlink       errno = 34
	enametoolong errno = 37
	enoent       errno = 44
	enomem       errno = 48
	enospc       errno = 51
	enotdir      errno = 54
	enotempty    errno = 55
	enotsup      errno = 58
	eperm        errno = 63
	erofs        errno = 69
	espipe       errno = 70
	estale       errno = 72
	etxtbsy      errno = 74
	exdev        errno = 75
)

// commonErrnos are the numbers that every host's syscall package names.
var commonErrnos = map[syscall.Errno]errno{
	syscall.EACCES: eacces, syscall.EAGAIN: eagain, syscall.EBADF: ebadf, syscall.EBUSY: ebusy, syscall.EDQUOT: enospc,
	syscall.EEXIST: eexist, syscall.EFBIG: efbig, syscall.EILSEQ: eilseq, syscall.EINTR: eintr, syscall.EINVAL: einval,
	syscall.EISDIR: eisdir, syscall.ELOOP: eloop, syscall.EMFILE: emfile, syscall.EMLINK: emlink, syscall.ENAMETOOLONG: enametoolong,
	syscall.ENFILE: emfile, syscall.ENOENT: enoent, syscall.ENOMEM: enomem, syscall.ENOSPC: enospc, syscall.ENOTDIR: enotdir,
	syscall.ENOTEMPTY: enotempty, syscall.ENOTSUP: enotsup, syscall.ENXIO: eacces, syscall.EPERM: eperm, syscall.EROFS: erofs,
	syscall.ESPIPE: espipe, syscall.ETXTBSY: etxtbsy, syscall.EXDEV: exdev,
}

// errnoOf translates an error of the os package.
func errnoOf(err error) errno {
	if err == nil {
		return success
	}
	n, numbered := err.(syscall.Errno)
	if !numbered {
		numbered = errors.As(err, &n)
	}
	if numbered {
		if e, ok := commonErrnos[n]; ok {
			return e
		}
		if e, ok := hostErrnos[n]; ok {
			return e
		}
	}
	switch {
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
	if !numbered && (errors.As(err, &p) || errors.As(err, &l)) {
		return eperm // the only error without a number: the path leaves the root
	}
	return eio
}
