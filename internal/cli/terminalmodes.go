package cli

import "regexp"

// terminalQueries are what programs send to a terminal to get an answer, which it types:
// what it is, where its cursor is, which colours and settings it has.
var terminalQueries = regexp.MustCompile("\x1b\\[[>=?]?[0-9;]*[cn]|\x1b\\[\\??[0-9;]*\\$p|\x1b\\[>[0-9;]*q|\x1b\\[\\?u|\x1b\\](?:4;[0-9]+|1[0-9]);\\?(?:\x07|\x1b\\\\)|\x1bP[+$]q[^\x1b\x07]*(?:\x07|\x1b\\\\)")

// leaveModes ends what a program may have switched on at a terminal and did not switch off:
// pasted text in brackets, the mouse, a hidden cursor, colours, keys of applications. One that
// goes on elsewhere has its own screen, too.
func leaveModes(detached bool) string {
	modes := "\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"
	if detached {
		modes = "\x1b[?1049l" + modes + "\r\n"
	}
	return modes
}
