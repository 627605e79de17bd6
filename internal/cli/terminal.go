package cli

import (
	"io"
	"os"
)

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// person reports whether a person may be at a stream: it is a terminal.
func person(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok || !terminal(f) {
		return false
	}
	here, err := f.Stat()
	nowhere, other := os.Stat(os.DevNull)
	return err != nil || other != nil || !os.SameFile(here, nowhere)
}
