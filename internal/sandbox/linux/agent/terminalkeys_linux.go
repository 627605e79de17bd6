package agent

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// The keys that send a signal to the program in the foreground are typed with care: gVisor
// sends it whether the program wants that (ISIG) or not, leaves the key itself in what the
// program reads next, and shows nothing of it.

// signalKeys are where a terminal's settings have those keys.
var signalKeys = []int{unix.VINTR, unix.VQUIT, unix.VSUSP}

// noKey is none.
const noKey = 0xff

// settings are the terminal's; nil: it has none any more.
func (t *terminal) settings() (got *unix.Termios) {
	t.control(func(fd int) { got, _ = unix.IoctlGetTermios(fd, unix.TCGETS) }) // an error leaves nil
	return got
}

// control calls f with the terminal's descriptor, unless it is closed.
func (t *terminal) control(f func(fd int)) {
	if conn, err := t.master.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { f(int(fd)) }) // closed: the next write says so
	}
}

// untilSignal gives how many of the keys come before the first one that sends a signal.
func untilSignal(p []byte, s *unix.Termios) int {
	if s == nil {
		return len(p)
	}
	n := len(p)
	for _, key := range signalKeys {
		if s.Cc[key] == 0 { // it is switched off
			continue
		}
		if at := bytes.IndexByte(p[:n], s.Cc[key]); at >= 0 {
			n = at
		}
	}
	return n
}

// typeSignal types a key that sends a signal. It reports whether the terminal took it. A
// program that reads lines gets the key taken back; what gVisor shows for that takes two
// characters off the screen, which are put there first. Its settings stay as they are: it
// wakes up by the signal, and changes them. One that reads keys gets this one as well.
func (t *terminal) typeSignal(key byte, s *unix.Termios) (took bool) {
	keys := []byte{key}
	switch {
	case s.Lflag&unix.ISIG == 0:
		return t.typeKeyAlone(key, s)
	case s.Lflag&unix.ICANON != 0 && s.Cc[unix.VERASE] != 0:
		keys = append(keys, s.Cc[unix.VERASE])
		if s.Lflag&unix.ECHO != 0 && s.Lflag&unix.ECHOCTL != 0 {
			t.print(fmt.Appendf(nil, "^%c  ", key^0x40))
		}
	}
	t.control(func(fd int) {
		n, err := unix.Write(fd, keys)
		took = err == nil && n > 0
	})
	return took
}

// typeKeyAlone types a key to a program that reads it itself: for that moment the terminal
// has no such keys.
func (t *terminal) typeKeyAlone(key byte, s *unix.Termios) (took bool) {
	changed := *s
	for _, one := range signalKeys {
		changed.Cc[one] = noKey
	}
	t.control(func(fd int) {
		if unix.IoctlSetTermios(fd, unix.TCSETS, &changed) != nil {
			return
		}
		n, err := unix.Write(fd, []byte{key})
		took = err == nil && n == 1
		if now, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil && *now == changed { // else the program has changed them
			_ = unix.IoctlSetTermios(fd, unix.TCSETS, s) // it took the others
		}
	})
	return took
}
