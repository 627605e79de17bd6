package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
