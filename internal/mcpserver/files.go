package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/membudget"
	"paddock/internal/pkgproxy/install"
	"paddock/internal/session"
	"paddock/internal/textsafe"
	"paddock/internal/workspace"
)

// Bounds of the file tools.
const (
	maxReadText   = 60 << 10
	maxReadBinary = 24 << 10
	maxMatches    = 200
	maxWrite      = 8 << 20 // characters of content, as one argument
)

const aboutPath = "data/a.csv"

func (s *Server) fileTools() []tool {
	return []tool{
		define("read_file", "Read file", "Read text by lines, else bytes (base64); shows pictures.", hints{readOnly: true},
			func(in *readInput) []param { return in.params(s.config.Link != nil, s.config.Preview != nil) }, readFile),
		define("write_file", "Write file", "Write a file and its folders.", hints{destructive: true, idempotent: true}, (*writeInput).params, writeFile),
		define("edit_file", "Edit file", "Replace text that stands once, or all.", hints{destructive: true}, (*editInput).params, editFile),
		define("list_files", "List files", "List files.", hints{readOnly: true}, (*listInput).globParams, listFiles),
		define("search_files", "Search files", "Find lines.", hints{readOnly: true}, (*listInput).searchParams, searchFiles),
	}
}

// withFiles runs f on the files of the call's session.
func (c *call) withFiles(ctx context.Context, given session.ID, f func(*workspace.Tree) error) error {
	return c.inSession(ctx, given, session.Settings{}, func(id session.ID) error {
		tree, done, err := c.server.config.Sessions.Files(c.bound.Owner, id)
		if err != nil {
			return err
		}
		defer done()
		return f(tree)
	})
}

// file is one file in a list.
type file struct {
	Path     string `json:"path"`
	Size     int64  `json:"size"`
	Modified string `json:"modified"`
}

func fileOf(f workspace.File) file {
	return file{Path: f.Path, Size: f.Size, Modified: timestamp(f.Modified)}
}

type readInput struct {
	path          string
	offset, limit int64
	bytes, link   bool
	session       session.ID
}

func (in *readInput) params(links, previews bool) []param {
	all := []param{
		text("path", &in.path, 0, 4096, aboutPath).must(),
		number("offset", &in.offset, 0, 1e12, "First line (from 1) or byte"),
		number("limit", &in.limit, 1, 1<<20, "Lines or bytes"),
		boolean("bytes", &in.bytes, "Count bytes"),
		sessionID(&in.session, aboutSession),
	}
	switch {
	case links && previews:
		all = append(all, boolean("link", &in.link, "Give a URL for the user instead, good for one download, or with localhost:PORT as path for what listens there"))
	case links:
		all = append(all, boolean("link", &in.link, "Give a URL for the user instead, good for one download"))
	}
	return all
}

type readOutput struct {
	SessionID  session.ID `json:"session_id"`
	Path       string     `json:"path"`
	Size       int64      `json:"size"`
	Text       bool       `json:"text"`
	Content    *string    `json:"content,omitempty" listed:"true"` // of a text
	Base64     string     `json:"content_base64,omitempty"`        // of anything else
	MIMEType   string     `json:"mime_type"`
	FirstLine  int64      `json:"first_line,omitempty"`
	LastLine   int64      `json:"last_line,omitempty"`
	TotalLines int64      `json:"total_lines,omitempty"`
	Offset     int64      `json:"offset"`                // in bytes
	More       bool       `json:"more"`                  // there is something after this
	NextOffset int64      `json:"next_offset,omitempty"` // what to give as offset to go on
	URL        string     `json:"download_url,omitempty"`
	PreviewURL string     `json:"preview_url,omitempty"`
	Expires    string     `json:"expires_at,omitempty"`
	Notice     string     `json:"notice,omitempty"`
}

// linkTo gives a file's address in place of its content.
func linkTo(ctx context.Context, c *call, in readInput) (readOutput, answer, error) {
	if port, path, ok := previewed(in.path); ok && c.server.config.Preview != nil {
		c.path = "" // of no file
		return previewAt(ctx, c, in, port, path)
	}
	var f workspace.File
	err := c.withFiles(ctx, in.session, func(tree *workspace.Tree) (err error) {
		f, err = tree.Stat(in.path)
		return err
	})
	if err != nil {
		return readOutput{}, answer{}, err
	}
	url, expires, err := c.server.config.Link(ctx, c.bound.Owner, c.session, f.Path)
	if err != nil {
		return readOutput{}, answer{}, err
	}
	out := readOutput{SessionID: c.session, Path: f.Path, Size: f.Size, MIMEType: mimeOf(f.Path, false), URL: url, Expires: timestamp(expires), Notice: c.notice}
	return out, answer{texts: []string{fmt.Sprintf("%s can be downloaded once, until %s: %s", textsafe.Escape(f.Path), out.Expires, url)}}, nil
}

func readFile(ctx context.Context, c *call, in readInput) (readOutput, answer, error) {
	c.path = in.path
	if in.link {
		return linkTo(ctx, c, in)
	}
	var got workspace.Content
	var picture []byte
	err := c.withFiles(ctx, in.session, func(tree *workspace.Tree) (err error) {
		if got, err = tree.Read(in.path, workspace.Range{Offset: in.offset, Limit: in.limit, Bytes: in.bytes}); err != nil {
			return err
		}
		if mime := mimeOf(got.Path, got.Text); !got.Text && in.offset == 0 && in.limit == 0 && slices.Contains(pictures, mime) {
			if whole, err := tree.ReadAll(in.path, maxPictureBytes); err == nil && unfit(mime, whole.Data) == "" {
				picture = whole.Data
			}
		}
		return nil
	})
	if err != nil {
		return readOutput{}, answer{}, err
	}
	out := readOutput{
		SessionID: c.session, Path: got.Path, Size: got.Size, Text: got.Text, MIMEType: mimeOf(got.Path, got.Text),
		Offset: got.Offset, More: got.More, FirstLine: got.FirstLine, TotalLines: got.TotalLines, Notice: c.notice,
	}
	switch {
	case picture != nil:
		out.More = false
		return out, answer{shown: []shown{{Display: Display{MIMEType: out.MIMEType}, image: picture}}}, nil
	case got.Text:
		return out, answer{texts: out.fillText(got)}, nil
	}
	return out, out.fillBinary(got), nil
}

// fillText puts as many whole lines in as fit, and gives the text blocks.
func (out *readOutput) fillText(got workspace.Content) []string {
	data := got.Data
	counted := got.FirstLine > 0
	if len(data) > maxReadText {
		data = []byte(textsafe.Cut(string(data), maxReadText))
		if k := bytes.LastIndexByte(data, '\n'); counted && k >= 0 {
			data = data[:k+1]
		}
		out.More = true
	}
	content := string(data)
	out.Content = &content
	partial := len(data) > 0 && data[len(data)-1] != '\n' && out.More
	if counted {
		out.LastLine = got.FirstLine + int64(bytes.Count(data, []byte{'\n'})) - 1
		if len(data) > 0 && data[len(data)-1] != '\n' {
			out.LastLine++
		}
	}
	if !out.More {
		return []string{content}
	}
	if !counted || partial {
		// Inside of a line only bytes tell where to go on.
		out.NextOffset = got.Offset + int64(len(data))
		return []string{content, fmt.Sprintf("[%d of %d bytes up to here; go on with bytes: true, offset: %d]", out.NextOffset, got.Size, out.NextOffset)}
	}
	out.NextOffset = out.LastLine + 1
	total := ""
	if got.TotalLines > 0 {
		total = fmt.Sprintf(" of %d", got.TotalLines)
	}
	return []string{content, fmt.Sprintf("[lines %d to %d%s; go on with offset: %d]", got.FirstLine, out.LastLine, total, out.NextOffset)}
}

// fillBinary puts bytes in, which clients get as a resource.
func (out *readOutput) fillBinary(got workspace.Content) answer {
	data := got.Data
	if len(data) > maxReadBinary {
		data = data[:maxReadBinary]
		out.More = true
	}
	out.Base64 = base64.StdEncoding.EncodeToString(data)
	if out.More {
		out.NextOffset = got.Offset + int64(len(data))
	}
	note := fmt.Sprintf("%s: %d bytes, no text", textsafe.Escape(out.Path), out.Size)
	if out.More {
		note += fmt.Sprintf("; these are %d from %d on, go on with offset: %d", len(data), got.Offset, out.NextOffset)
	}
	return answer{texts: []string{note}, extra: []mcp.Content{&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
		URI: fileURI(out.SessionID, out.Path), MIMEType: out.MIMEType, Blob: data,
	}}}}
}

type writeInput struct {
	path, content, base64 string
	hasContent, hasBase64 bool
	session               session.ID
}

func (in *writeInput) params() []param {
	return []param{
		text("path", &in.path, 0, 4096, aboutPath).must(),
		text("content", &in.content, 0, maxWrite, "Text").noting(&in.hasContent),
		text("content_base64", &in.base64, 0, maxWrite, "Or base64").noting(&in.hasBase64),
		sessionID(&in.session, aboutSession),
	}
}

func (in *writeInput) data() ([]byte, error) {
	if in.hasContent == in.hasBase64 {
		return nil, fault.New(fault.Invalid, "write_file takes either content or content_base64").WithHint("an empty file is content: \"\"")
	}
	if in.hasContent {
		return []byte(in.content), nil
	}
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(in.base64))
	if err != nil {
		return nil, fault.New(fault.Invalid, "content_base64 is not base64").WithHint("the standard alphabet with + and /, padded with =").WithCause(err)
	}
	return data, nil
}

type written struct {
	SessionID session.ID `json:"session_id"`
	Path      string     `json:"path"`
	Size      int64      `json:"size"`
	Notice    string     `json:"notice,omitempty"`
}

func writeFile(ctx context.Context, c *call, in writeInput) (written, answer, error) {
	c.path = in.path
	data, err := in.data()
	if err != nil {
		return written{}, answer{}, err
	}
	if err := c.ensure(ctx, in.session, session.Settings{}); err != nil {
		return written{}, answer{}, err
	}
	var f workspace.File
	err = c.withFiles(ctx, in.session, func(tree *workspace.Tree) (err error) {
		f, err = tree.Write(in.path, data)
		return err
	})
	return written{SessionID: c.session, Path: f.Path, Size: f.Size, Notice: c.notice}, answer{}, err
}

type editInput struct {
	path, old, new string
	all            bool
	session        session.ID
}

func (in *editInput) params() []param {
	return []param{
		text("path", &in.path, 0, 4096, aboutPath).must(),
		text("old", &in.old, 1, maxWrite, "Exact").must(),
		text("new", &in.new, 0, maxWrite, "New text").must(),
		boolean("replace_all", &in.all, "All"),
		sessionID(&in.session, aboutSession),
	}
}

type edited struct {
	SessionID session.ID `json:"session_id"`
	Path      string     `json:"path"`
	Replaced  int        `json:"replaced"`
	Notice    string     `json:"notice,omitempty"`
}

func editFile(ctx context.Context, c *call, in editInput) (out edited, a answer, err error) {
	c.path = in.path
	err = c.withFiles(ctx, in.session, func(tree *workspace.Tree) (err error) {
		if out.Path, err = workspace.Clean(in.path); err != nil {
			return err
		}
		if err := membudget.Hold(ctx, in.takes(tree)); err != nil {
			return err
		}
		out.Replaced, err = tree.Edit(in.path, in.old, in.new, in.all)
		return err
	})
	out.SessionID, out.Notice = c.session, c.notice
	return out, answer{}, err
}

// takes is how many bytes the server holds while it edits: the file and the result, each as
// bytes and as a text.
func (in *editInput) takes(tree *workspace.Tree) int64 {
	f, err := tree.Stat(in.path)
	if err != nil {
		return 0 // Edit says why
	}
	size := min(f.Size, workspace.MaxText)
	result := size + int64(len(in.new))
	if in.all {
		result = size + size/int64(max(1, len(in.old)))*int64(len(in.new))
	}
	return 2 * (size + min(result, workspace.MaxText))
}

type listInput struct {
	pattern, glob string
	session       session.ID
}

func (in *listInput) globParams() []param {
	return []param{
		text("glob", &in.glob, 0, 256, "src/**"),
		sessionID(&in.session, aboutSession),
	}
}

func (in *listInput) searchParams() []param {
	return append([]param{text("pattern", &in.pattern, 1, 1000, "RE2 syntax").must()}, in.globParams()...)
}

type fileList struct {
	SessionID session.ID `json:"session_id"`
	Files     []file     `json:"files"`
	More      bool       `json:"more"`
	Notice    string     `json:"notice,omitempty"`
}

func listFiles(ctx context.Context, c *call, in listInput) (fileList, answer, error) {
	var all []workspace.File
	var more bool
	err := c.withFiles(ctx, in.session, func(tree *workspace.Tree) (err error) {
		all, more, err = tree.List(ctx, in.glob)
		return err
	})
	if err != nil {
		return fileList{}, answer{}, err
	}
	out := fileList{SessionID: c.session, Files: []file{}, Notice: c.notice}
	ofPackages := ""
	if in.glob == "" {
		before := len(all)
		all = slices.DeleteFunc(all, func(f workspace.File) bool { return install.Folder(f.Path) })
		if left := before - len(all); left > 0 {
			ofPackages = fmt.Sprintf("[%d files of installed packages are left out; a glob lists them]", left)
		}
	}
	out.More = more || len(all) > maxListed
	var b strings.Builder
	for _, f := range all[:min(len(all), maxListed)] {
		out.Files = append(out.Files, fileOf(f))
		fmt.Fprintf(&b, "%s\t%d bytes\n", textsafe.Escape(f.Path), f.Size)
	}
	if len(all) == 0 {
		b.WriteString("(no files)\n")
	}
	if out.More {
		b.WriteString("[there are more; a glob shows fewer]\n")
	}
	b.WriteString(ofPackages)
	out.Notice = strings.TrimSpace(out.Notice + " " + ofPackages)
	return out, answer{texts: []string{strings.TrimSuffix(b.String(), "\n")}}, nil
}

type matches struct {
	SessionID session.ID `json:"session_id"`
	Matches   []match    `json:"matches"`
	Searched  int        `json:"files_searched"`
	Skipped   int        `json:"files_skipped"` // no text, or too large
	More      bool       `json:"more"`
	Notice    string     `json:"notice,omitempty"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

func searchFiles(ctx context.Context, c *call, in listInput) (matches, answer, error) {
	var found workspace.Matches
	err := c.withFiles(ctx, in.session, func(tree *workspace.Tree) (err error) {
		found, err = tree.Search(ctx, in.pattern, in.glob, maxMatches)
		return err
	})
	if err != nil {
		return matches{}, answer{}, err
	}
	out := matches{SessionID: c.session, Matches: []match{}, Searched: found.Files, Skipped: found.Skipped, More: found.More, Notice: c.notice}
	var b strings.Builder
	for _, m := range found.Matches {
		line := strings.ToValidUTF8(m.Text, string(utf8.RuneError))
		out.Matches = append(out.Matches, match{Path: m.Path, Line: m.Line, Text: line})
		fmt.Fprintf(&b, "%s:%d: %s\n", textsafe.Escape(m.Path), m.Line, line)
	}
	if len(found.Matches) == 0 {
		fmt.Fprintf(&b, "(no matches in %d files)", found.Files)
	}
	if out.More {
		b.WriteString("[there are more; a glob or a narrower pattern shows fewer]")
	}
	return out, answer{texts: []string{b.String()}}, nil
}
