package linear

import "golang.org/x/sys/unix"

func preferLargePages(b []byte) {
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // else they are small
}
