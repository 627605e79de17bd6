package workspace

import (
	"fmt"
	"strconv"
	"strings"

	"paddock/internal/fault"
)

// Edit replaces old, which must be in the file exactly once unless all is
// set, and gives how often it did. In a file whose lines end in CRLF, an old
// that was written with LF is found as well, and CRLF is put back.
func (t *Tree) Edit(name, old, replacement string, all bool) (count int, err error) {
	p, err := Clean(name)
	if err != nil {
		return 0, err
	}
	if old == "" {
		return 0, fault.New(fault.Invalid, "the text to replace is empty").WithHint("write_file puts a whole file in place")
	}
	if old == replacement {
		return 0, fault.New(fault.Invalid, "the text to replace and its replacement are the same")
	}
	err = t.change(func() (_ []string, err error) {
		count, err = t.editLocked(p, old, replacement, all)
		return []string{p}, err
	})
	if err != nil {
		return 0, err
	}
	return count, nil
}

func (t *Tree) editLocked(p, old, replacement string, all bool) (count int, err error) {
	c, err := t.ReadAll(p, MaxText)
	if err != nil {
		return 0, err
	}
	if !c.Text {
		return 0, fault.New(fault.Invalid, "%s is not a text", p).WithHint("only UTF-8 texts can be edited; write the whole file instead")
	}
	text := string(c.Data)
	count = strings.Count(text, old)
	if count == 0 && strings.Contains(old, "\n") && strings.Contains(text, "\r\n") {
		old, replacement = toCRLF(old), toCRLF(replacement)
		count = strings.Count(text, old)
	}
	switch {
	case count == 0:
		return 0, notInFile(p, text, old)
	case count > 1 && !all:
		return 0, fault.New(fault.Conflict, "the text to replace is in %s %d times, in lines %s", p, count, linesOf(text, old)).
			WithHint("give more of the text around it, or replace all of them")
	}
	if err := fits(p, len(text), count, len(replacement)-len(old)); err != nil {
		return 0, err
	}
	edited := strings.ReplaceAll(text, old, replacement)
	if _, err := t.writeLocked(p, strings.NewReader(edited), int64(len(edited))); err != nil {
		return 0, fmt.Errorf("putting the edited file in place: %w", err)
	}
	return count, nil
}

// fits refuses an edit whose result would be larger than what is edited, before any
// of it is made: whoever chooses the text and how often it is there multiplies.
func fits(p string, size, count, growth int) error {
	if growth <= 0 || growth <= (MaxText-size)/count { // growth*count may be more than an int holds
		return nil
	}
	return fault.New(fault.Exhausted, "%s would be larger than %d bytes, and that often is the text in it: %d times", p, MaxText, count).
		WithHint("replace fewer of them, or write the file with a program in the session")
}

func toCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// notInFile says where something similar stands.
func notInFile(p, text, old string) error {
	f := fault.New(fault.NotFound, "the text to replace is not in %s", p)
	want, _, _ := strings.Cut(strings.TrimSpace(old), "\n")
	if want = strings.TrimSpace(want); want != "" {
		if at := strings.Index(text, want); at >= 0 {
			return f.WithHint("its first line is in line %d, with other white space or another continuation; read the file and copy the text exactly", lineAt(text, at))
		}
	}
	return f.WithHint("read the file and copy the text exactly, white space included")
}

func lineAt(text string, at int) int { return strings.Count(text[:at], "\n") + 1 }

// linesOf names the lines where old begins, the first few of them.
func linesOf(text, old string) string {
	const few = 5
	var lines []string
	for at := 0; len(lines) < few; {
		k := strings.Index(text[at:], old)
		if k < 0 {
			return strings.Join(lines, ", ")
		}
		lines = append(lines, strconv.Itoa(lineAt(text, at+k)))
		at += k + len(old)
	}
	return strings.Join(lines, ", ") + ", …"
}
