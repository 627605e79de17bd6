package mcpserver

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// goldens are what a server says at the beginning of every conversation: they stand once in
// a file of testdata/golden, by the configuration that says them, and transcripts have a
// word in their place, such as
//
//	< {"jsonrpc":"2.0","id":1,"result":HANDSHAKE 2025-11-25}
//	< {"jsonrpc":"2.0","id":2,"result":TOOLS}
type goldens struct {
	t     *testing.T
	files map[string]*txtar.Archive // by their names
	seen  map[string]string         // by the file and the section: what was said in this test
}

// openings tells by a part of an answer which kind it is, in which file that kind stands,
// and which word is there in its place.
var openings = []struct{ part, kind, file, word string }{
	{`"protocolVersion":"`, "initialize", "handshake.txtar", "HANDSHAKE"},
	{`"supportedVersions":[`, "server/discover", "handshake.txtar", "HANDSHAKE"},
	{`"tools":[{`, "tools/list", "tools.txtar", "TOOLS"},
}

var (
	opening = regexp.MustCompile(`^(\{"jsonrpc":"2\.0","id":[^,]+,"result":)(\{.*\})\}$`)
	agreed  = regexp.MustCompile(`"protocolVersion":"([^"]+)"`)
	// lineEnds are where a golden file has line ends that the answer has not, so that a
	// change of it is a change of one line.
	lineEnds = regexp.MustCompile(`\{"annotations":|\\n`)
)

func openGoldens(t *testing.T) *goldens {
	t.Helper()
	g := &goldens{t: t, files: map[string]*txtar.Archive{}, seen: map[string]string{}}
	for _, o := range openings {
		archive, err := txtar.ParseFile(filepath.Join("testdata", "golden", o.file))
		if errors.Is(err, fs.ErrNotExist) && *update {
			archive, err = &txtar.Archive{}, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		g.files[o.file] = archive
	}
	return g
}

// shorten puts the word in the place of an opening that a server with these sets of tools
// said. One that is not as the golden file has it fails the test once, not each transcript.
func (g *goldens) shorten(sets []string, line string) string {
	parts := opening.FindStringSubmatch(line)
	if parts == nil {
		return line
	}
	for _, o := range openings {
		if !strings.Contains(parts[2], o.part) {
			continue
		}
		said, word := parts[2], o.word
		if version := agreed.FindStringSubmatch(said); version != nil {
			said, word = strings.Replace(said, version[0], `"protocolVersion":"VERSION"`, 1), word+" "+version[1]
		}
		g.check(o.file, configurationOf(sets)+" "+o.kind, said)
		return parts[1] + word + "}"
	}
	return line
}

// configurationOf names a configuration by its sets of tools.
func configurationOf(sets []string) string {
	if sets == nil {
		return "usual"
	}
	return strings.Join(sets, ",")
}

// check holds what was said against a section of a golden file, which -update writes.
func (g *goldens) check(file, section, said string) {
	g.t.Helper()
	key := file + " " + section
	if before, there := g.seen[key]; there {
		if before != said {
			g.t.Errorf("%s: two servers say different things:\n%s", key, differences(before, said))
		}
		return
	}
	g.seen[key] = said
	archive := g.files[file]
	at := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == section })
	if *update {
		if at < 0 {
			at, archive.Files = len(archive.Files), append(archive.Files, txtar.File{Name: section})
		}
		archive.Files[at].Data = []byte(lineEnds.ReplaceAllStringFunc(said, endLine) + "\n")
		return
	}
	if at < 0 {
		g.t.Errorf("testdata/golden/%s has no section %q (-update writes it)", file, section)
	} else if want := strings.ReplaceAll(string(archive.Files[at].Data), "\n", ""); want != said {
		g.t.Errorf("the server says something else than %s (-update writes it down):\n%s", key, differences(want, said))
	}
}

// endLine adds a line end: before a tool, and after a line of the instructions.
func endLine(s string) string {
	if strings.HasPrefix(s, "{") {
		return "\n" + s
	}
	return s + "\n"
}

// finish writes the files where -update is given, and finds sections that no transcript
// needs, unless only some of them have been played.
func (g *goldens) finish() {
	g.t.Helper()
	some := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	for file, archive := range g.files {
		said := func(f txtar.File) bool { _, there := g.seen[file+" "+f.Name]; return there }
		if *update {
			archive.Comment = []byte("What a server says at the beginning, by its sets of tools. go test -run TestTranscripts -update writes it.\n")
			archive.Files = slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return !some && !said(f) })
			if err := os.WriteFile(filepath.Join("testdata", "golden", file), txtar.Format(archive), 0o644); err != nil {
				g.t.Error(err)
			}
			continue
		}
		for _, f := range archive.Files {
			if !some && !said(f) {
				g.t.Errorf("testdata/golden/%s has the section %q, which no transcript needs", file, f.Name)
			}
		}
	}
}
