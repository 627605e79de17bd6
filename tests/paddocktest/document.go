package paddocktest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// WriteSection puts a table below its title into a document, in place of the one that is
// there. The document's path is absolute.
func WriteSection(t testing.TB, file, title string, head, rows []string) {
	t.Helper()
	if !filepath.IsAbs(file) {
		t.Fatalf("%s is not an absolute path", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), "## "+title+"\n")
	if !found {
		t.Fatalf("%s has no section %q", file, title)
	}
	after := ""
	if at := strings.Index(rest, "\n## "); at >= 0 {
		after = rest[at:]
	}
	intro, _, _ := strings.Cut(rest, "\n|")
	made := before + "## " + title + "\n" + strings.TrimRight(intro, "\n") + "\n\n| " + strings.Join(head, " | ") + " |\n" + strings.Repeat("|---", len(head)) + "|\n" + strings.Join(rows, "\n") + "\n" + after
	if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
		t.Fatal(err)
	}
}

// BuildCache is the folder in which make keeps what it built and fetched.
func BuildCache(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("PADDOCK_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "paddock-build")
}

// Prints compares what a command printed with what a document shows, in which … is
// anything on its line, and spaces count as one.
func Prints(got, shown string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(oneSpaced(shown)), "…", ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(oneSpaced(got))
}

var spaces = regexp.MustCompile(" +")

func oneSpaced(s string) string { return spaces.ReplaceAllString(s, " ") }
