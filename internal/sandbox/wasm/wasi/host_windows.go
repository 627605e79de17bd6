package wasi

import (
	"bytes"
	"io/fs"
	"syscall"
	"time"
)

// openNonblock is nothing here: no name in a folder makes an open wait.
const openNonblock = 0

// stableInodes tells that inode numbers are made up from names.
const stableInodes = false

// hostErrnos are the numbers that only this kind of host has.
var hostErrnos = map[syscall.Errno]errno{
	17:                               exdev,        // ERROR_NOT_SAME_DEVICE
	19:                               erofs,        // ERROR_WRITE_PROTECT
	32:                               ebusy,        // ERROR_SHARING_VIOLATION
	33:                               ebusy,        // ERROR_LOCK_VIOLATION
	39:                               enospc,       // ERROR_HANDLE_DISK_FULL
	87:                               einval,       // ERROR_INVALID_PARAMETER
	112:                              enospc,       // ERROR_DISK_FULL
	123:                              einval,       // ERROR_INVALID_NAME
	206:                              enametoolong, // ERROR_FILENAME_EXCED_RANGE
	267:                              enotdir,      // ERROR_DIRECTORY
	1142:                             emlink,       // ERROR_TOO_MANY_LINKS
	1920:                             eacces,       // ERROR_CANT_ACCESS_FILE
	syscall.ERROR_DIR_NOT_EMPTY:      enotempty,
	syscall.ERROR_PRIVILEGE_NOT_HELD: eperm,
}

// validName tells whether part may stand in a path; it has no "/" and no zero.
// What the host would take for a drive, a stream of a file, a separator, or
// would quietly cut off the end, may not. Names of devices are refused by
// os.Root.
func validName(part []byte) bool {
	for _, c := range part {
		if c < ' ' {
			return false
		}
	}
	return !bytes.ContainsAny(part, `\:*?"<>|`) && !bytes.HasSuffix(part, []byte(".")) && !bytes.HasSuffix(part, []byte(" "))
}

// fileStat asks the host about an open file.
func fileStat(name string, f *content) (stat, error) {
	info, err := f.Stat()
	if err != nil {
		return stat{}, err
	}
	s := statOf(name, info)
	var by syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &by); err != nil {
		return stat{}, err
	}
	s.links = uint64(by.NumberOfLinks)
	return s, nil
}

// statOf is what the host has told of name.
func statOf(name string, info fs.FileInfo) stat {
	s := plainStat(name, info)
	if sys, ok := info.Sys().(*syscall.Win32FileAttributeData); ok {
		s.accessed = sys.LastAccessTime.Nanoseconds()
	}
	return s
}

// setFileTimes sets the times of an open file; the zero time leaves one as it
// is.
func setFileTimes(f *content, accessed, modified time.Time) error {
	var times [2]*syscall.Filetime
	for i, t := range []time.Time{accessed, modified} {
		if !t.IsZero() {
			ft := syscall.NsecToFiletime(t.UnixNano())
			times[i] = &ft
		}
	}
	return syscall.SetFileTime(syscall.Handle(f.Fd()), nil, times[0], times[1])
}
