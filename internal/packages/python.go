package packages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"mime"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"deps.dev/util/pypi"
	"deps.dev/util/semver"
	"golang.org/x/net/html"

	"paddock/internal/fault"
)

// pythonIndex is where Python packages come from: a simple index, or a folder.
type pythonIndex interface {
	// project lists a package's files; a fault.NotFound: it has no such package.
	project(ctx context.Context, name string) (*project, error)
	// open opens a file of a project, which has the digest that it says.
	open(ctx context.Context, f projectFile) (*stored, error)
	// metadata reads what a wheel says of itself, where the index gives that apart.
	metadata(ctx context.Context, f projectFile) ([]byte, error)
}

func (p *Packages) pythonIndex(index Index) (pythonIndex, error) {
	if filepath.IsAbs(index.URL) {
		f, err := p.openFolder(index.URL)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	r, err := p.newRemote(index)
	if err != nil {
		return nil, err
	}
	return simpleIndex{r}, nil
}

// project is a package as an index shows it.
type project struct {
	name  string
	files []projectFile
	seen  map[string]bool // by their names
}

// projectFile is one file of it.
type projectFile struct {
	name           string
	version        string
	url            *url.URL // of an index
	digest         digest
	requiresPython string
	yanked         *string // why
	uploaded       time.Time
	size           int64
	// described is the digest of its metadata; a zero one: it is not given apart.
	described digest
	local     bool // of a folder: it has no age
}

// wheel tells whether a file is one.
func (f projectFile) wheel() bool { return strings.HasSuffix(f.name, ".whl") }

// pythonName is how the name of a Python package may be written (PEP 508).
var pythonName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?$`)

// sdistEndings are those of source archives.
var sdistEndings = []string{".tar.gz", ".zip"}

// fileOf reads what a file's name says; false: it is no wheel and no source archive of
// that package, as any can stand in an index.
func fileOf(name, of string) (version string, ok bool) {
	if len(name) > 300 || name != path.Base(name) || strings.ContainsAny(name, "\\/:\x00\r\n\"'<>&%#?") || strings.HasPrefix(name, ".") {
		return "", false
	}
	if strings.HasSuffix(name, ".whl") {
		w, err := pypi.ParseWheelName(name)
		if err != nil || pypi.CanonPackageName(w.Name) != of {
			return "", false
		}
		return w.Version, true
	}
	for _, ending := range sdistEndings {
		if !strings.HasSuffix(name, ending) {
			continue
		}
		_, version, err := pypi.SdistVersion(of, name)
		return version, err == nil && version != ""
	}
	return "", false
}

// simpleIndex is an index over HTTP, of PEP 503 or 691.
type simpleIndex struct{ *remote }

// acceptSimple asks for JSON rather than HTML.
const (
	simpleJSON   = "application/vnd.pypi.simple.v1+json"
	simpleHTML   = "application/vnd.pypi.simple.v1+html"
	acceptSimple = simpleJSON + ", " + simpleHTML + ";q=0.2, text/html;q=0.1"
)

func (s simpleIndex) project(ctx context.Context, name string) (*project, error) {
	at := name + "/"
	page, err := s.page(ctx, at, acceptSimple)
	if err != nil {
		return nil, err
	}
	base, err := s.base.Parse(at)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(page.Type)
	out := &project{name: name}
	switch kind {
	case simpleJSON, "application/vnd.pypi.simple.latest+json":
		err = out.readJSON(page.body, base)
	case simpleHTML, "application/vnd.pypi.simple.latest+html", "text/html":
		err = out.readHTML(page.body, base)
	default:
		err = errIndex("it answers with something that is no list of files")
	}
	if err != nil {
		return nil, err
	}
	if out.files == nil {
		s.p.log.Info("an index of packages has no file with a digest", slog.String("package", name))
	}
	return out, nil
}

// maxFiles bounds how many files of one package are looked at.
const maxFiles = 50_000

// add takes a file up, where it is one of the package's with a digest and a URL.
func (p *project) add(f projectFile, href string, base *url.URL, digests []digest) {
	var ok bool
	if f.version, ok = fileOf(f.name, p.name); !ok || len(p.files) >= maxFiles {
		return
	}
	if f.digest, ok = strongest(digests); !ok || f.digest.algorithm == "sha1" {
		return
	}
	at, err := base.Parse(href)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		return
	}
	at.Fragment = ""
	f.url = at
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	if !p.seen[f.name] { // the first counts
		p.seen[f.name] = true
		p.files = append(p.files, f)
	}
}

// described is metadata's entry: true, or its digests.
func described(raw json.RawMessage) digest {
	var sums map[string]string
	if json.Unmarshal(raw, &sums) != nil {
		return digest{}
	}
	d, _ := strongest(digestsOf(sums))
	return d
}

func digestsOf(sums map[string]string) (all []digest) {
	for algorithm, value := range sums {
		if d, ok := newDigest(algorithm, value); ok {
			all = append(all, d)
		}
	}
	return all
}

func (p *project) readJSON(body []byte, base *url.URL) error {
	var in struct {
		Files []struct {
			Filename string            `json:"filename"`
			URL      string            `json:"url"`
			Hashes   map[string]string `json:"hashes"`
			Requires string            `json:"requires-python"`
			Yanked   any               `json:"yanked"`
			Uploaded string            `json:"upload-time"`
			Size     int64             `json:"size"`
			Core     json.RawMessage   `json:"core-metadata"`
			DistInfo json.RawMessage   `json:"dist-info-metadata"`
			Old      json.RawMessage   `json:"data-dist-info-metadata"`
		} `json:"files"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return errIndex("its list of files is damaged").WithCause(err)
	}
	for _, f := range in.Files {
		out := projectFile{name: f.Filename, requiresPython: f.Requires, size: f.Size}
		out.uploaded, _ = time.Parse(time.RFC3339Nano, f.Uploaded)
		switch y := f.Yanked.(type) {
		case string:
			out.yanked = &y
		case bool:
			if y {
				out.yanked = new(string)
			}
		}
		for _, raw := range []json.RawMessage{f.Core, f.DistInfo, f.Old} {
			if out.described == (digest{}) {
				out.described = described(raw)
			}
		}
		p.add(out, f.URL, base, digestsOf(f.Hashes))
	}
	return nil
}

// readHTML takes the links of a page.
func (p *project) readHTML(body []byte, base *url.URL) error {
	for z := html.NewTokenizer(bytes.NewReader(body)); ; {
		switch z.Next() {
		case html.ErrorToken:
			if z.Err() == io.EOF {
				return nil
			}
			return errIndex("its list of files is damaged").WithCause(z.Err())
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			attrs := map[string]string{}
			for _, a := range token.Attr {
				if _, twice := attrs[a.Key]; !twice {
					attrs[a.Key] = a.Val
				}
			}
			switch token.Data {
			case "base":
				if at, err := base.Parse(attrs["href"]); err == nil && p.files == nil {
					base = at
				}
			case "a":
				p.link(attrs, base)
			}
		}
	}
}

// link takes one of them up.
func (p *project) link(attrs map[string]string, base *url.URL) {
	at, err := base.Parse(attrs["href"])
	if err != nil {
		return
	}
	f := projectFile{name: path.Base(at.Path), requiresPython: attrs["data-requires-python"]}
	if reason, ok := attrs["data-yanked"]; ok {
		f.yanked = &reason
	}
	for _, key := range []string{"data-core-metadata", "data-dist-info-metadata"} {
		if d, ok := parseSum(attrs[key]); ok && f.described == (digest{}) {
			f.described = d
		}
	}
	f.uploaded, _ = time.Parse(time.RFC3339Nano, attrs["data-upload-time"])
	var digests []digest
	if d, ok := parseSum(at.Fragment); ok {
		digests = append(digests, d)
	}
	p.add(f, attrs["href"], base, digests)
}

// parseSum reads sha256=….
func parseSum(text string) (digest, bool) {
	text, _, _ = strings.Cut(text, "&")
	algorithm, value, _ := strings.Cut(text, "=")
	return newDigest(algorithm, value)
}

func (s simpleIndex) open(ctx context.Context, f projectFile) (*stored, error) {
	return s.p.store.get(ctx, f.digest, f.name, func(ctx context.Context) (io.ReadCloser, error) { return s.fetch(ctx, f.url) })
}

// maxMetadata bounds a wheel's, in bytes.
const maxMetadata = 4 << 20

func (s simpleIndex) metadata(ctx context.Context, f projectFile) ([]byte, error) {
	at := *f.url
	at.Path, at.RawPath = at.Path+".metadata", ""
	file, err := s.p.store.get(ctx, f.described, f.name+".metadata", func(ctx context.Context) (io.ReadCloser, error) { return s.fetch(ctx, &at) })
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readBounded(file, maxMetadata)
}

// readBounded reads all of something that is no larger than that.
func readBounded(from io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, fault.New(fault.Exhausted, "a description of a package is larger than %d bytes", most)
	}
	return data, err
}

// pythonProject finds a package by any way of writing its name: what of it may be
// shown, and the index that it belongs to.
func (p *Packages) pythonProject(ctx context.Context, name string) (*project, pythonIndex, error) {
	if len(p.python) == 0 {
		return nil, nil, errNone(kindPython)
	}
	if !pythonName.MatchString(name) {
		return nil, nil, fault.New(fault.Invalid, "%.100q is no name of a Python package", name)
	}
	name = pypi.CanonPackageName(name)
	if !p.allowsPython(name) {
		return nil, nil, errNotAllowed(kindPython, name)
	}
	all, at, err := first(ctx, p.python, func(ctx context.Context, at pythonIndex) (*project, error) { return at.project(ctx, name) })
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			err = errNoPackage(name)
		}
		return nil, nil, err
	}
	shown := &project{name: name}
	for _, f := range all.files {
		if f.local || !p.young(p.config.Python.Cooldown, f.uploaded) {
			shown.files = append(shown.files, f)
		}
	}
	slices.SortStableFunc(shown.files, func(a, b projectFile) int {
		return cmp.Or(semver.PyPI.Compare(a.version, b.version), strings.Compare(a.name, b.name))
	})
	return shown, at, nil
}

func errNoPackage(name string) error {
	return fault.New(fault.NotFound, "no index has a package %.100q", name).WithHint("check how it is written")
}

func (p *Packages) allowsPython(name string) bool {
	for _, pattern := range p.config.Python.Allow {
		if allowed([]string{canonPattern(pattern)}, name) {
			return true
		}
	}
	return false
}

// canonPattern is a pattern as names are written.
func canonPattern(pattern string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(pattern))
}
