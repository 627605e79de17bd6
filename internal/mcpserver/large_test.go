package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"math/rand/v2"
	"strings"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/picture"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// noisy is a picture that does not get small, as PNG.
func noisy(t *testing.T, width, height int) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	source := rand.New(rand.NewPCG(1, 2))
	for k := range m.Pix {
		m.Pix[k] = byte(source.Uint32())
	}
	return encodePNG(t, m)
}

// shrink makes a picture smaller in this process.
func shrink(data []byte) []byte {
	small, err := picture.Smaller(context.Background(), nil, "", data)
	if err != nil {
		return nil
	}
	return small
}

// away is putAway into a map.
func away(res session.Result) (execution.Filed, map[string][]byte) {
	files := map[string][]byte{}
	return putAway(res, func(name string, data []byte) (string, error) {
		files[name] = data
		return ".paddock/1-" + name, nil
	}, false, shrink), files
}

func TestWhatIsTooLargeForAResultBecomesAFileWithAPreview(t *testing.T) {
	table := "<style>p{}</style><table>" + strings.Repeat("<tr><td>one</td><td>two</td></tr>\n", 2000) + "</table>"
	for _, test := range []struct {
		name    string
		display sandbox.Display
		file    string // empty: it is shown whole, or not at all
		preview string // what the text begins with
		image   bool
	}{
		{"a picture that clients show", sandbox.Display{MIME: "image/png", Data: pngOf(t, 20, 20)}, "", "", true},
		{"a picture of many bytes", sandbox.Display{MIME: "image/png", Data: noisy(t, 1100, 1000)}, "1.png", "", true},
		{"a picture of many pixels on a side", sandbox.Display{MIME: "image/png", Data: pngOf(t, 8001, 10)}, "1.png", "", true},
		{"a picture of too many pixels for any preview", sandbox.Display{MIME: "image/png", Data: pngOf(t, 8001, 3000)}, "1.png", "", false},
		{"a picture with half a header", sandbox.Display{MIME: "image/png", Data: pngOf(t, 2, 2)[:20]}, "", "", false},
		{"a short document", sandbox.Display{MIME: "text/html", Data: []byte("<p>")}, "", "<p>", false},
		{"a long table", sandbox.Display{MIME: "text/html", Data: []byte(table)}, "1.html", "one two \none two \n", false},
		{"a long text", sandbox.Display{MIME: "text/plain", Data: bytes.Repeat([]byte("ä"), maxDocument)}, "1.txt", "ää", false},
		{"a large chart", sandbox.Display{MIME: "application/vnd.vegalite.v5+json", Data: []byte(`{"a":"` + strings.Repeat("x", maxDocument) + `"}`)}, "1.json", `{"a":"xx`, false},
		{"bytes of some other kind", sandbox.Display{MIME: "application/pdf", Data: []byte("%PDF\xff")}, "1.pdf", "", false},
		{"bytes of a kind with a strange name", sandbox.Display{MIME: "application/../../x", Data: []byte("\xff")}, "1.bin", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := ran("", "", test.display)
			kept, files := away(res)
			e, list := describe(res, kept)
			d := e.Displays[0]
			if test.file == "" {
				expect.Equal(t, "the files", len(files), 0)
				expect.Equal(t, "its path", d.Path, "")
			} else {
				expect.Equal(t, "the file has its bytes", bytes.Equal(files[test.file], test.display.Data), true)
				expect.Equal(t, "its path", d.Path, ".paddock/1-"+test.file)
				expect.Equal(t, "its problem", d.Problem, "")
				expect.Equal(t, "its size", d.Size, len(test.display.Data))
				expect.Equal(t, "it has a preview", d.Text != "", test.preview != "")
			}
			if !strings.HasPrefix(d.Text, test.preview) {
				t.Errorf("the preview: got %.60q, want it to begin with %q", d.Text, test.preview)
			}
			if len(d.Text) > previewDocument+10 {
				t.Errorf("the preview's bytes: got %d, want at most %d", len(d.Text), previewDocument+10)
			}
			if (list[0].image != nil) != test.image {
				t.Errorf("it has an image: %v", list[0].image != nil)
			}
			if test.file != "" && test.image {
				c, _, err := image.DecodeConfig(bytes.NewReader(list[0].image))
				expect.Equal(t, "the error of decoding the preview", err, nil)
				expect.Equal(t, "the preview's longer side", max(c.Width, c.Height), 768)
			}
			if got := strings.Join(e.texts(), "\n"); (test.file != "") != strings.Contains(got, "in a file: .paddock/1-") {
				t.Errorf("the text says %q", got)
			}
		})
	}
}

func TestLongOutputIsInAFileAndFewOfItIsShown(t *testing.T) {
	long := strings.Repeat("a line of output\n", 10_000)
	for _, test := range []struct {
		name           string
		stdout, stderr string
		files          string
	}{
		{"short output is in none", "out\n", "err\n", ""},
		{"what just fits is in none", long[:maxOutput], "", ""},
		{"long stdout", long, "why\n", "stdout.txt"},
		{"long stderr leaves stdout as it is", long[:30<<10], long, "stderr.txt"},
		{"both", long, long, "stdout.txt stderr.txt"},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := ran(test.stdout, test.stderr)
			kept, files := away(res)
			e, _ := describe(res, kept)
			for _, s := range []struct{ name, whole, shown string }{{"stdout.txt", test.stdout, e.Stdout}, {"stderr.txt", test.stderr, e.Stderr}} {
				if !strings.Contains(test.files, s.name) {
					if s.shown != s.whole {
						t.Errorf("%s: %d of %d bytes are shown, want all", s.name, len(s.shown), len(s.whole))
					}
					expect.Equal(t, s.name+" is a file", files[s.name] != nil, false)
					continue
				}
				if string(files[s.name]) != s.whole {
					t.Errorf("the file %s: got %d bytes, want the %d of the output", s.name, len(files[s.name]), len(s.whole))
				}
				if len(s.shown) > previewOutput+200 {
					t.Errorf("what is shown of %s: got %d bytes, want at most %d", s.name, len(s.shown), previewOutput+200)
				}
				if !strings.Contains(s.shown, "all of it is in .paddock/1-"+s.name) {
					t.Errorf("what is shown of %s: got %.300q, want its place in it", s.name, s.shown)
				}
			}
		})
	}
}

// What is told of output that is more than a result keeps: a file with the first MiB of
// nine was told to have everything.
func TestWhatIsToldOfOutputBeyondItsLimit(t *testing.T) {
	text := strings.Repeat("first\n", 12_000) + "\n[… 9000000 bytes left out …]\n" + strings.Repeat("last\n", 12_000)
	end := strings.Index(text, "last\n")
	of := func(path, problem string) session.Stream {
		return session.Stream{Bytes: 9_132_000, LeftOut: 9_000_000, End: end, Path: path, Problem: problem}
	}
	const path = ".paddock/1-stdout.txt"
	for name, c := range map[string]struct {
		stream session.Stream
		cause  sandbox.Cause
		shown  string // with what is left out
		notice string
	}{
		"all is in a file":    {of(path, ""), sandbox.Exited, "all of it is in " + path, ""},
		"too large for it":    {of(path, "it is more than the disk limit"), sandbox.Exited, "its beginning and its end are in " + path, "printed 9132000 bytes to stdout: its beginning and its end are kept, as it is more than the disk limit"},
		"no file":             {of("", "there is no room"), sandbox.Exited, "it could not be written to a file: there is no room", "are kept, as there is no room"},
		"it was too much":     {of(path, ""), sandbox.OutputExceeded, "all of it is in " + path, "printed more than 9132000 bytes to stdout; what came after is lost"},
		"a passing session's": {of("", ""), sandbox.Exited, "its beginning and its end are in " + path, "its beginning and its end are kept."},
	} {
		t.Run(name, func(t *testing.T) {
			res := ran(text, "")
			res.StdoutStream, res.Exit.Cause, res.Exit.StdoutTruncated = c.stream, c.cause, true
			kept, files := away(res)
			e, _ := describe(res, kept)
			middle := e.Stdout[strings.Index(e.Stdout, "[…"):]
			expect.Equal(t, "it begins with the first line", strings.HasPrefix(e.Stdout, "first\n"), true)
			expect.Equal(t, "it ends with the last line", strings.HasSuffix(e.Stdout, "last\n"), true)
			if !strings.Contains(e.Stdout, c.shown) {
				t.Errorf("what is shown: got %.120q in its middle, want %q", middle, c.shown)
			}
			var left int64
			if _, err := fmt.Sscanf(middle, "[… %d", &left); err != nil {
				t.Errorf("how much is left out: got %.120q, want a number: %v", middle, err)
			}
			shown := int64(strings.Count(e.Stdout, "first\n")*6 + strings.Count(e.Stdout, "last\n")*5)
			expect.Equal(t, "bytes that are shown and said to be left out", left+shown, 9_132_000)
			expect.Part(t, "the notice", e.Notice, c.notice)
			expect.Equal(t, "there is a notice", e.Notice != "", c.notice != "")
			if c.stream.Path != "" && len(files) != 0 {
				t.Error("the file is written again")
			}
		})
	}
}

func TestWhatNoFileCanTakeIsShownAsFarAsItGoes(t *testing.T) {
	res := ran(strings.Repeat("out\n", maxOutput), "", sandbox.Display{MIME: "application/pdf", Data: []byte("\xff")})
	kept := putAway(res, func(string, []byte) (string, error) {
		return "", fault.New(fault.Exhausted, "the disk limit is reached")
	}, false, shrink)
	e, _ := describe(res, kept)
	if len(e.Stdout) < maxOutput/2 {
		t.Errorf("the bytes of stdout: got %d, want at least %d", len(e.Stdout), maxOutput/2)
	}
	if !strings.Contains(e.Stdout, "not be written to a file: the disk limit is reached") {
		t.Errorf("stdout: got %d bytes without the reason, want it in them", len(e.Stdout))
	}
	expect.Equal(t, "stdout is cut", e.StdoutTruncated, true)
	expect.Equal(t, "the path of what was shown", e.Displays[0].Path, "")
	expect.Part(t, "its problem", e.Displays[0].Problem, "the disk limit is reached")
}

func TestAFileOfARunIsReadAndUndoneWithIt(t *testing.T) {
	s := newServer(t, Config{Tools: []string{"core", "files", "history"}}, session.Config{})
	cs := connect(t, s, "test", nil)
	use(t, cs, "execute_code", map[string]any{"code": "x = 1"})
	page := "<p>" + strings.Repeat("word ", maxDocument)
	res := use(t, cs, "execute_code", map[string]any{"code": fmt.Sprintf("display('text/html', '%s')", page)})
	const path = ".paddock/2-1.html"
	var out Execution
	if err := json.Unmarshal(transport.Encoded(res.StructuredContent), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Displays) != 1 {
		t.Fatalf("displays: got %.300v, want one", out.Displays)
	}
	expect.Equal(t, "the display's path", out.Displays[0].Path, path)
	if text := out.Displays[0].Text; !strings.HasPrefix(text, "word word") {
		t.Errorf("the display's text: got %.60q, want it to begin with the words", text)
	}
	if len(out.FilesChanged) != 1 {
		t.Fatalf("changes: got %v, want one", out.FilesChanged)
	}
	expect.Equal(t, "the change's path", out.FilesChanged[0].Path, path)
	expect.Equal(t, "the change", out.FilesChanged[0].Change, "added")
	if read := use(t, cs, "read_file", map[string]any{"path": path, "bytes": true, "limit": 8}); field[string](t, read, "content") != page[:8] {
		t.Errorf("the file is %v", read.StructuredContent)
	}
	use(t, cs, "undo", map[string]any{})
	if read := use(t, cs, "read_file", map[string]any{"path": path}); !read.IsError {
		t.Error("the file is there after an undo")
	}
}

func TestChangesInCrowdedFoldersAreOne(t *testing.T) {
	change := func(path, kind string) session.Change { return session.Change{Path: path, Change: kind, Size: 10} }
	all := []session.Change{change("a.txt", "added"), change("r/.git/HEAD", "added"), change("r/__pycache__/m.pyc", "added")}
	for k := range 30 {
		all = append(all, change(fmt.Sprintf("r/.git/objects/%d", k), "added"), change(fmt.Sprintf("node_modules/p%d/node_modules/x.js", k), "modified"))
	}
	all = append(all, change("r/.git/index", "removed"), change("node_modules", "added"))
	got := fold(all)
	want := []Change{
		{Path: "a.txt", Change: "added", Size: 10}, {Path: "r/.git/", Change: "modified", Size: 320, Files: 32},
		{Path: "r/__pycache__/m.pyc", Change: "added", Size: 10}, {Path: "node_modules/", Change: "modified", Size: 300, Files: 30},
		{Path: "node_modules", Change: "added", Size: 10},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestPicturesThatTheServerHasNoMemoryForAreInFiles(t *testing.T) {
	data := noisy(t, 100, 100)
	res := ran("", "", sandbox.Display{MIME: "image/png", Data: data})
	files := map[string][]byte{}
	kept := putAway(res, func(name string, data []byte) (string, error) {
		files[name] = data
		return name, nil
	}, true, func([]byte) []byte { return nil })
	e, list := describe(res, kept)
	d := e.Displays[0]
	expect.Equal(t, "it has a path", d.Path != "", true)
	expect.Equal(t, "it has an image", list[0].image != nil, false)
	expect.Equal(t, "the file has its bytes", bytes.Equal(files[d.Path], data), true)
}

func TestPicturesOfOneCallAreBoundedTogether(t *testing.T) {
	large := append(noisy(t, 10, 10), make([]byte, 3<<20)...)
	var all []sandbox.Display
	for range 4 {
		all = append(all, sandbox.Display{MIME: "image/png", Data: large})
	}
	kept, files := away(ran("", "", all...))
	_, list := describe(ran("", "", all...), kept)
	bytes := 0
	for _, s := range list {
		bytes += len(s.image)
	}
	expect.Equal(t, "those in files", len(files), 2)
	if bytes > maxPicturesRoom {
		t.Errorf("the bytes of those that are shown: got %d, want at most %d", bytes, maxPicturesRoom)
	}
}
