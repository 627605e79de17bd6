package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// beginning cuts text that only tells what it is about.
func beginning(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// plainLines makes a text of several lines safe for a terminal.
func plainLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, plain(strings.TrimSuffix(line, "\n")))
	}
	return strings.Join(lines, "\n")
}

func indented(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// report tells a person every mistake in err.
func (cl *cli) report(err error) {
	for _, e := range fault.Apart(err) {
		var f *fault.Error
		switch {
		case errors.As(e, &f):
			cl.say("error", f.Message)
			if f.Hint != "" {
				cl.say("hint", f.Hint)
			}
			if cause := errors.Unwrap(f); cause != nil && !isUsageError(cause) {
				cl.Log.Debug("the cause", "error", e, "cause", cause)
			}
		case errors.Is(e, context.Canceled):
			cl.say("error", "cancelled")
		default: // a person who types commands may know where it went wrong
			cl.say("error", e.Error())
		}
	}
}

// say prints one message for people. What others wrote may be in it: nothing of that
// reaches the terminal as more than text.
func (cl *cli) say(kind, message string) {
	fmt.Fprintf(cl.stderr, "paddock: %s: %s\n", paint(cl.stderr, kinds[kind], kind), plainLines(strings.TrimRight(message, "\n")))
}

// kinds are the colours of messages.
var kinds = map[string]colour{"error": red, "warning": yellow, "hint": cyan, "notice": cyan, "waiting": yellow, "session": green}

func (cl *cli) panicked(v any) {
	cl.say("error", fmt.Sprintf("paddock made a mistake: %v", v))
	if cl.Log.Enabled(context.Background(), slog.LevelDebug) {
		fmt.Fprintf(cl.stderr, "%s", debug.Stack())
		return
	}
	cl.say("hint", "the same with --log-level debug shows where; please report it")
}

// jsonFlag adds --json to a command that has a result.
func jsonFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "json", false, "print the result as one JSON object")
}

// printJSON prints a result as one object.
func (cl *cli) printJSON(v any) error {
	e := json.NewEncoder(cl.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printList prints a list: as one object that has it under a name, or as a table.
func (cl *cli) printList(asJSON bool, name string, list any, rows [][]string) error {
	if asJSON {
		return cl.printJSON(map[string]any{name: list})
	}
	return cl.printTable(rows)
}

// plain makes text from a program or a file's name safe for a terminal and a
// table: what does not print is shown as an escape.
func plain(s string) string { return textsafe.Escape(s) }

// moment is a time as people read it.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// amount is a number of bytes as people read it.
func amount(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/(1<<10), "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if f < 1<<10 {
			break
		}
		f, unit = f/(1<<10), next
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// sink passes output on and remembers why it could not.
type sink struct {
	to  io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.to.Write(b)
	if err != nil {
		s.err = err
	}
	return n, err
}
