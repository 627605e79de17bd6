package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/textsafe"
)

// jsonFlag adds --json to a command that has a result.
func jsonFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "json", false, "print the result as one JSON object")
}

// printJSON prints a result as one object.
func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printTable prints rows in columns; the first is the heading.
func (p *program) printTable(rows [][]string) error {
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	return w.Flush()
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
