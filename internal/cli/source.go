package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"paddock/internal/fault"
)

// maxProgram is a little more than a session takes: it has the better words
// for what is too long.
const maxProgram = 1<<20 + 1

// languages are the endings of files.
var languages = map[string]string{
	".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".ts": "typescript", ".mts": "typescript",
	".sh": "bash", ".bash": "bash",
}

// shortLanguages are other names that people have for languages.
var shortLanguages = map[string]string{
	"py": "python", "python3": "python", "js": "javascript", "node": "javascript", "nodejs": "javascript",
	"ts": "typescript", "sh": "bash", "shell": "bash",
}

// languageNamed is the language that a person calls so.
func languageNamed(name string) string {
	name = strings.ToLower(name)
	if full := shortLanguages[name]; full != "" {
		return full
	}
	return name
}

// languageOf is the language of a program in a file: its ending tells, or else the
// interpreter that its first line names. A first line that names paddock alone begins
// Python, as paddock run -c does.
func languageOf(path, code string) (string, error) {
	if l := languages[strings.ToLower(filepath.Ext(path))]; l != "" {
		return l, nil
	}
	if first, ok := hashbang(code); ok {
		for word := range strings.FieldsFuncSeq(first, func(r rune) bool { return r == ' ' || r == '\t' || r == '/' }) {
			if l := languageNamed(strings.TrimRight(word, "0123456789.")); slices.Contains(slices.Collect(maps.Values(languages)), l) {
				return l, nil
			}
		}
		if strings.Contains(first, "paddock") {
			return "python", nil
		}
	}
	return "", usage("the ending of %q tells no language", path).WithHint("say --language python, javascript, typescript or bash")
}

// hashbang is the first line of a program that names its interpreter, without the #!.
func hashbang(code string) (string, bool) {
	first, _, _ := strings.Cut(code, "\n")
	return strings.CutPrefix(strings.TrimRight(first, "\r"), "#!")
}

// withoutHashbang makes the line that names an interpreter a comment of the language. The
// numbers of the lines stay.
func withoutHashbang(code, language string) string {
	if _, ok := hashbang(code); ok && (language == "javascript" || language == "typescript") {
		return "//" + code
	}
	return code
}

// fileName is what error reports call a file: its path, or if that is long
// the end of it.
func fileName(path string) string {
	const most = 200 // bytes, see session.Request
	if len(path) <= most {
		return filepath.ToSlash(path)
	}
	return strings.ToValidUTF8(filepath.ToSlash(path[len(path)-most:]), "")
}

func sourceFile(path string) (string, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "there is no file %q", path)
	}
	if err != nil {
		return "", fmt.Errorf("reading the program: %w", err)
	}
	defer file.Close()
	return source(file)
}

// source reads a program, without the mark that some editors put before text.
func source(r io.Reader) (string, error) {
	b, err := io.ReadAll(bufio.NewReader(io.LimitReader(r, maxProgram)))
	if err != nil {
		return "", fmt.Errorf("reading the program: %w", err)
	}
	return string(bytes.TrimPrefix(b, []byte("\ufeff"))), nil
}
