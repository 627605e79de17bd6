package pkgproxy

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"mime"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"deps.dev/util/pypi"
	"deps.dev/util/semver"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// pythonIndex is where Python packages come from: a simple index, or a folder.
type pythonIndex interface {
	// project lists a package's files, until the page is closed; a fault.NotFound: it has
	// no such package.
	project(ctx context.Context, name string) (*page, error)
	// open opens a file of a project, which has the digest that it says.
	open(ctx context.Context, f projectFile) (*stored, error)
	// metadata opens what a wheel says of itself, where the index gives that apart.
	metadata(ctx context.Context, f projectFile) (io.ReadCloser, error)
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

// maxTagSets bounds how many combinations of tags a wheel's name stands for.
const maxTagSets = 256

// parseWheelName reads a wheel's name. The library makes a list of all combinations of the
// tags, which of a name of 300 bytes are a hundred thousand.
func parseWheelName(name string) (*pypi.WheelInfo, error) {
	parts := strings.Split(strings.TrimSuffix(name, ".whl"), "-")
	if len(name) > maxFileName || len(parts) < 5 {
		return nil, errors.New("pkgproxy: no name of a wheel")
	}
	sets := 1
	for _, part := range parts[len(parts)-3:] {
		sets *= 1 + strings.Count(part, ".")
	}
	if sets > maxTagSets {
		return nil, errors.New("pkgproxy: a wheel's name with too many tags")
	}
	return pypi.ParseWheelName(name)
}

// maxFileName bounds a file's name, in bytes.
const maxFileName = 300

// fileOf reads what a file's name says; false: it is not a wheel and no source archive of
// that package, as any can stand in an index.
func fileOf(name, of string) (version string, ok bool) {
	if len(name) > maxFileName || name != path.Base(name) || strings.ContainsAny(name, "\\/:\x00\r\n\"'<>&%#?") || strings.HasPrefix(name, ".") {
		return "", false
	}
	if strings.HasSuffix(name, ".whl") {
		w, err := parseWheelName(name)
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

func (s simpleIndex) project(ctx context.Context, name string) (*page, error) {
	at := name + "/"
	base, err := s.base.Parse(at)
	if err != nil {
		return nil, err
	}
	return s.page(ctx, at, acceptSimple, reading{semver.PyPI, func(kind string, body io.Reader, out *pageWriter) (pageHead, error) {
		return pageHead{}, s.read(name, kind, body, base, out)
	}})
}

// read reads an answer of either form.
func (s simpleIndex) read(name, kind string, body io.Reader, base *url.URL, out *pageWriter) (err error) {
	p := &project{name: name, out: out, base: base}
	kind, _, _ = mime.ParseMediaType(kind)
	switch kind {
	case simpleJSON, "application/vnd.pypi.simple.latest+json":
		err = p.readJSON(body)
	case simpleHTML, "application/vnd.pypi.simple.latest+html", "text/html":
		err = p.readHTML(body)
	default:
		err = errIndex("it answers with something that is not a list of files")
	}
	if err == nil && len(p.seen) == 0 {
		s.p.log.Info("an index of packages has no file with a digest", slog.String("package", name))
	}
	return err
}

// maxFiles bounds how many files of one package are looked at.
const maxFiles = 50_000

func (s simpleIndex) open(ctx context.Context, f projectFile) (*stored, error) {
	return s.p.store.get(ctx, f.digest, f.name, func(ctx context.Context) (io.ReadCloser, error) { return s.fetch(ctx, f.url) })
}

// maxMetadata bounds a wheel's, in bytes.
const maxMetadata = 4 << 20

func (s simpleIndex) metadata(ctx context.Context, f projectFile) (io.ReadCloser, error) {
	at := *f.url
	at.Path, at.RawPath = at.Path+".metadata", ""
	file, err := s.p.store.get(ctx, f.described, f.name+".metadata", func(ctx context.Context) (io.ReadCloser, error) { return s.fetch(ctx, &at) })
	if err != nil {
		return nil, err
	}
	if file.size > maxMetadata {
		file.Close()
		return nil, errMetadata
	}
	return file, nil
}

var errMetadata = fault.New(fault.Exhausted, "a description of a package is larger than %d bytes", maxMetadata)

// readBounded reads all of something that is no larger than that.
func readBounded(from io.Reader, most int64) ([]byte, error) {
	return iolimit.ReadAll(from, most, fault.New(fault.Exhausted, "a description of a package is larger than %d bytes", most))
}

// shownProject is a Python package of which some files may be shown.
type shownProject struct {
	*page
	p     *Packages
	name  string
	index pythonIndex
}

// pythonProject finds a package by any way of writing its name, and the index that it
// belongs to. The caller closes it.
func (p *Packages) pythonProject(ctx context.Context, name string) (*shownProject, error) {
	if len(p.python) == 0 {
		return nil, errNone(kindPython)
	}
	if !pythonName.MatchString(name) {
		return nil, fault.New(fault.Invalid, "%.100q is not a name of a Python package", name)
	}
	name = pypi.CanonPackageName(name)
	if !p.allowsPython(name) {
		return nil, errNotAllowed(kindPython, name)
	}
	all, at, err := first(ctx, p.python, func(ctx context.Context, at pythonIndex) (*page, error) { return at.project(ctx, name) })
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			err = errNoPackage(name)
		}
		return nil, err
	}
	return &shownProject{all, p, name, at}, nil
}

// rows are those of the files that may be shown, the oldest version first.
func (s *shownProject) rows() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for r, err := range s.all() {
			if err == nil && !r.Local && s.p.young(s.p.config.Python.Cooldown, r.Published) {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// files are the files that may be shown, and the wheels that are made of them: these have no
// digest.
func (s *shownProject) files() iter.Seq2[projectFile, error] {
	return func(yield func(projectFile, error) bool) {
		for r, err := range s.rows() {
			var f projectFile
			if err == nil {
				f, err = s.listed(r)
			}
			if !yield(f, err) || err != nil {
				return
			}
			if wheel := fallbackWheel(s.name, f.name, f.version); wheel != "" && !yield(projectFile{
				name: wheel, version: f.version, requiresPython: f.requiresPython, yanked: f.yanked, uploaded: f.uploaded, local: f.local,
			}, nil) {
				return
			}
		}
	}
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
