package setup

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzNothingElseChanges has every client's form change any file: it fails
// cleanly, or only the entry differs, which Set itself makes sure of; and a
// second time nothing changes.
func FuzzNothingElseChanges(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			f.Add(part.Data)
		}
	}
	f.Add([]byte("\ufeff{\r\n\t\"mcpServers\": {}\r\n}"))
	f.Add([]byte("a = '''\n]'''\n[[b]]\nc.\"d.e\" = [{ f = \"\\\"\" }]\n[mcp_servers]\npaddock = {}"))
	f.Fuzz(func(t *testing.T, before []byte) {
		for _, c := range clients {
			for _, s := range []Server{servers["stdio"], servers["env"]} {
				after, err := c.Set(before, s)
				if err != nil {
					continue
				}
				if again, err := c.Set(after, s); err != nil || !bytes.Equal(again, after) {
					t.Errorf("%s: set twice\n%q\nbecomes\n%q (%v)", c.Name, after, again, err)
				}
				if _, err := c.Remove(after, s.Name); err != nil {
					t.Errorf("%s: it cannot be removed from\n%q: %v", c.Name, after, err)
				}
			}
		}
	})
}
