package setup

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"paddock/internal/fault"
)

var update = flag.Bool("update", false, "write the golden files anew")

// servers are those that the golden files name.
var servers = map[string]Server{
	"stdio": {Name: "paddock", Command: "/usr/local/bin/paddock", Args: []string{"mcp", "--tools", "core,files"}},
	"http":  {Name: "paddock", URL: "http://127.0.0.1:5555/mcp", Token: "pdk_secret"},
	"env":   {Name: "paddock", URL: "https://paddock.example/mcp", TokenEnv: "PADDOCK_TOKEN"},
}

// TestAnEntryIsSetAndRemoved takes each of testdata's files: "before" with the
// server set is "after", once more changes nothing, and without the server
// again it is "removed"; or it is a "fault".
func TestAnEntryIsSetAndRemoved(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no golden files")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string][]byte{}
			for _, f := range archive.Files {
				sections[f.Name] = f.Data
			}
			client, kind, _ := strings.Cut(strings.TrimSpace(string(sections["server"])), " ")
			got := changes(t, Find(client), servers[kind], sections["before"])
			if *update {
				archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return f.Name != "server" && f.Name != "before" })
				writeGolden(t, file, archive, got)
				return
			}
			for _, name := range []string{"after", "removed", "fault"} {
				if !bytes.Equal(got[name], sections[name]) {
					t.Errorf("%s is\n%s\nwant\n%s", name, got[name], sections[name])
				}
			}
		})
	}
}

// changes does to a file what a golden file holds.
func changes(t *testing.T, c *Client, s Server, before []byte) map[string][]byte {
	t.Helper()
	after, err := c.Set(before, s)
	if err != nil {
		return map[string][]byte{"fault": []byte(fault.Of(err).Message + "\n" + fault.Of(err).Hint + "\n")}
	}
	if again, err := c.Set(after, s); err != nil || !bytes.Equal(again, after) {
		t.Errorf("set twice it is\n%s\nand not\n%s (%v)", again, after, err)
	}
	removed, err := c.Remove(after, s.Name)
	if err != nil {
		t.Errorf("removing it: %v", err)
	}
	if again, err := c.Remove(removed, s.Name); err != nil || !bytes.Equal(again, removed) {
		t.Errorf("removed twice it is\n%s\nand not\n%s (%v)", again, removed, err)
	}
	// A golden file's sections end in a newline.
	end := func(b []byte) []byte {
		if !bytes.HasSuffix(b, []byte("\n")) {
			b = append(slices.Clone(b), '\n')
		}
		return b
	}
	return map[string][]byte{"after": end(after), "removed": end(removed)}
}

func writeGolden(t *testing.T, file string, archive *txtar.Archive, got map[string][]byte) {
	t.Helper()
	for _, name := range []string{"after", "removed", "fault"} {
		if data, ok := got[name]; ok {
			archive.Files = append(archive.Files, txtar.File{Name: name, Data: data})
		}
	}
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}
