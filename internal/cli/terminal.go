package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/term"
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

// columns is how many characters a line of the terminal w has; 0: it is none, or does not
// say.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !person(f) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// colour is how a terminal shows a text; the zero colour is the terminal's own.
type colour string

const (
	bold   colour = "1"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

// coloured reports whether text on w may have colours: a person reads it and has not
// forbidden them (https://no-color.org).
func coloured(w io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !person(w) {
		return false
	}
	return runtime.GOOS != "windows" || os.Getenv("WT_SESSION") != ""
}

// paint gives a text its colour where w shows colours.
func paint(w io.Writer, c colour, text string) string {
	if c == "" || text == "" || !coloured(w) {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// confirm asks a person a question. Every answer but yes is no.
func (cl *cli) confirm(ctx context.Context, question string) (yes bool, err error) {
	fmt.Fprint(cl.stderr, question+" [yes/no] ")
	said := make(chan string, 1)
	go func() { // a read of a terminal does not end with ctx; the process does
		line, _ := bufio.NewReader(io.LimitReader(cl.stdin, 1<<10)).ReadString('\n')
		said <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-said:
		return answer == "yes" || answer == "y", nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
