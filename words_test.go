package paddock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// outgrown are words and turns that texts for people no longer use, and what to write.
var outgrown = []struct {
	turn    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\bleave (it|them|\w+) away\b`), "omit"},
	{regexp.MustCompile(`(?i)\bwho(ever)? runs (the|this) server\b|\bwho(ever)? runs paddock\b`), "the operator"},
	{regexp.MustCompile(`(?i)\bnobody\b`), "the passive, or who it is: no program, no client, no one"},
	{regexp.MustCompile(`(?i)\bbesides\b`), "also, in addition to, other than"},
	{regexp.MustCompile(`(?i)\bof then\b`), "earlier, original"},
	{regexp.MustCompile(`(?i)\bis no [a-z]`), "is not a"},
	{regexp.MustCompile(`(?i)\bstands? in\b`), "is in"},
	{regexp.MustCompile(`(?i)\bwhat lives\b`), "live state, running sessions"},
	{regexp.MustCompile(`(?i)\blet go of\b`), "release, close, drop"},
	{regexp.MustCompile(`(?i)\banew\b`), "again; reseed for random numbers"},
}

// stillRight are uses of those turns that are right: "there is no …", "is no longer …",
// and the user that systems call nobody.
var stillRight = regexp.MustCompile("(?i)(there|here|it|that|this) is no (other|longer|more|such|need|way)\\b|\\bthere is no\\b|is no part of Python|\\bis no (longer|more|other|less|better)\\b|`nobody`|\\(nobody\\b|user \\(nobody\\)|nobody:x:|Why is no\\b")

// Texts for people are written in the field's own words. The test reads each string of the
// program that has a space in it, and each document.
func TestTextsUsePlainWords(t *testing.T) {
	check := func(where, text string) {
		text = stillRight.ReplaceAllString(text, "")
		for _, o := range outgrown {
			if found := o.turn.FindString(text); found != "" {
				t.Errorf("%s: %q; write %s: %.160q", where, found, o.instead, text)
			}
		}
	}
	texts := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "dist" || name == "node_modules" || name == "guest" || name == "skills" || name == "tests" || name == "bin" || path != "." && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(text), "\n") {
				check(path+":"+strconv.Itoa(i+1), line)
			}
			texts++
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			return eachString(path, func(line int, text string) {
				if strings.Contains(text, " ") {
					check(path+":"+strconv.Itoa(line), text)
					texts++
				}
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if texts < 3000 {
		t.Errorf("only %d texts were found", texts)
	}
}

// eachString calls do with each string of a Go file and the line that it begins in.
func eachString(path string, do func(line int, text string)) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				do(files.Position(lit.Pos()).Line, text)
			}
		}
		return true
	})
	return nil
}
