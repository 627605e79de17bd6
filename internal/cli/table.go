package cli

import (
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

const (
	columnGap   = 2 // spaces between columns
	leastColumn = 6 // no column is made narrower than this
)

// printTable prints rows in columns; the first is the heading where it is in capitals. On a
// terminal it is no wider than that.
func (cl *cli) printTable(rows [][]string) error {
	return cl.printPainted(rows, func(i int, line string) string {
		if i == 0 && isHeading(line) {
			return paint(cl.stdout, bold, line)
		}
		return line
	})
}

// printPainted is printTable with the colours that painted gives each line.
func (cl *cli) printPainted(rows [][]string, painted func(i int, line string) string) error {
	if width := columns(cl.stdout); width > 0 {
		rows = fit(rows, width)
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 8, columnGap, ' ', 0)
	for _, r := range rows {
		_, _ = io.WriteString(w, strings.TrimRight(strings.Join(r, "\t"), "\t")+"\n") // to memory
	}
	_ = w.Flush()
	i := 0
	for line := range strings.Lines(table.String()) {
		text := strings.TrimSuffix(line, "\n")
		if _, err := io.WriteString(cl.stdout, painted(i, text)+"\n"); err != nil {
			return err
		}
		i++
	}
	return nil
}

// isHeading reports whether a line names columns.
func isHeading(line string) bool {
	return line != "" && !strings.ContainsFunc(line, func(r rune) bool { return r != ' ' && r != '…' && !unicode.IsUpper(r) })
}

// fit cuts cells so that no row is wider than width, beginning with the widest column. Rows
// of a single cell are texts of their own.
func fit(rows [][]string, width int) [][]string {
	var widths []int
	for _, r := range rows {
		for i, cell := range r {
			if len(r) < 2 {
				continue
			}
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := columnGap * max(len(widths)-1, 0)
	for _, w := range widths {
		total += w
	}
	for total > width {
		widest := 0
		for i, w := range widths {
			if w >= widths[widest] { // of equals the last, which is seldom an id
				widest = i
			}
		}
		if len(widths) == 0 || widths[widest] <= leastColumn {
			break
		}
		widths[widest]--
		total--
	}
	cut := make([][]string, len(rows))
	for i, r := range rows {
		cut[i] = make([]string, len(r))
		for k, cell := range r {
			most := width
			if len(r) > 1 {
				most = widths[k]
			}
			cut[i][k] = shortened(cell, most)
		}
	}
	return cut
}

// shortened is a text of at most n characters; an ellipsis says that there was more.
func shortened(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(n-1, 0)]) + "…"
}
