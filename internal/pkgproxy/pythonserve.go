package pkgproxy

import (
	"bufio"
	"encoding/json"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"deps.dev/util/pypi"

	"paddock/internal/fault"
)

// routes are the front's paths.
func (p *Packages) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pypi/simple/{$}", p.serveProjects)
	mux.HandleFunc("GET /pypi/simple/{name}", p.toProject)
	mux.HandleFunc("GET /pypi/simple/{name}/{$}", p.serveProject)
	mux.HandleFunc("GET /pypi/files/{name}/{file}", p.servePythonFile)
	mux.HandleFunc("GET /npm/-/ping", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, "application/json", struct{}{}) })
	mux.HandleFunc("GET /npm/{path...}", p.serveNPM)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

// refuse answers with what went wrong, for programs and for people.
func (p *Packages) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := map[fault.Kind]int{
		fault.Invalid: http.StatusBadRequest, fault.NotFound: http.StatusNotFound, fault.Denied: http.StatusForbidden,
		fault.Exhausted: http.StatusBadGateway, fault.Unsupported: http.StatusNotFound, fault.Unavailable: http.StatusBadGateway,
	}[fault.KindOf(err)]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	if status >= 500 && r.Context().Err() == nil {
		p.log.Warn("a package cannot be given out", "path", r.URL.Path, "error", fault.CauseOf(err))
	}
	problem := fault.ProblemOf(err)
	if status == http.StatusForbidden {
		w.Header().Set("X-Paddock-Denied", "package")
	}
	if strings.Contains(r.Header.Get("Accept"), "json") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": problem.Line(), "problem": problem})
		return
	}
	http.Error(w, problem.Line(), status)
}

func writeJSON(w http.ResponseWriter, kind string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "a mistake of paddock's own", http.StatusInternalServerError)
		return
	}
	writePage(w, kind, data)
}

func writePage(w http.ResponseWriter, kind string, data []byte) {
	startPage(w, kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

// startPage begins an answer.
func startPage(w http.ResponseWriter, kind string) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Vary", "Accept")
	w.Header().Set("Cache-Control", "no-cache")
}

// prefers gives the kind that an Accept header likes best; among equals the first. It
// is the last one where the header says nothing of any.
func prefers(accept string, kinds ...string) string {
	best, most := kinds[len(kinds)-1], 0.0
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := 1.0
		for param := range strings.SplitSeq(params, ";") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
				if n, err := strconv.ParseFloat(value, 64); err == nil {
					q = n
				}
			}
		}
		if kind = strings.TrimSpace(kind); slices.Contains(kinds, kind) && q > most {
			best, most = kind, q
		}
	}
	return best
}

// simpleMeta is what PEP 691 wants in each answer.
var simpleMeta = map[string]string{"api-version": "1.1"}

// shownFile is a file as PEP 691 and 700 have it.
type shownFile struct {
	Filename     string            `json:"filename"`
	URL          string            `json:"url"`
	Hashes       map[string]string `json:"hashes"`
	Requires     string            `json:"requires-python,omitempty"`
	Yanked       any               `json:"yanked,omitempty"`
	Uploaded     *time.Time        `json:"upload-time,omitempty"`
	Size         int64             `json:"size,omitempty"`
	CoreMetadata map[string]string `json:"core-metadata,omitempty"`
	OldMetadata  map[string]string `json:"data-dist-info-metadata,omitempty"`

	Link   string `json:"-"` // the URL with its digest
	Reason string `json:"-"`
	Sum    string `json:"-"` // of the metadata
}

// A page of PEP 503, of which each file is written by itself.
var (
	projectHead = template.Must(template.New("head").Parse(`<!DOCTYPE html>
<html><head><meta name="pypi:repository-version" content="1.1"><title>{{.}}</title></head><body>
<h1>{{.}}</h1>
`))
	projectLink = template.Must(template.New("link").Parse(`<a href="{{.Link}}"{{with .Requires}} data-requires-python="{{.}}"{{end}}{{if .Yanked}} data-yanked="{{.Reason}}"{{end}}{{with .Sum}} data-core-metadata="{{.}}" data-dist-info-metadata="{{.}}"{{end}}>{{.Filename}}</a><br>
`))
)

// projectsPage lists them.
var projectsPage = template.Must(template.New("projects").Parse(`<!DOCTYPE html>
<html><head><meta name="pypi:repository-version" content="1.1"><title>Packages</title></head><body>
{{range .}}<a href="{{.}}/">{{.}}</a><br>
{{end}}</body></html>
`))

// serveProjects lists what is known by name: of folders, and of the allow-list.
func (p *Packages) serveProjects(w http.ResponseWriter, r *http.Request) {
	var names []string
	for _, pattern := range p.config.Python.Allow {
		if name := pypi.CanonPackageName(pattern); pythonName.MatchString(name) {
			names = append(names, name)
		}
	}
	for _, index := range p.python {
		if f, ok := index.(*folder); ok {
			for _, name := range f.projects() {
				if p.allowsPython(name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch kind := prefers(r.Header.Get("Accept"), simpleJSON, simpleHTML, "text/html"); kind {
	case simpleJSON:
		type entry struct {
			Name string `json:"name"`
		}
		list := make([]entry, 0, len(names))
		for _, name := range names {
			list = append(list, entry{name})
		}
		writeJSON(w, kind, map[string]any{"meta": simpleMeta, "projects": list})
	default:
		p.writeTemplate(w, kind, projectsPage, names)
	}
}

func (p *Packages) writeTemplate(w http.ResponseWriter, kind string, t *template.Template, data any) {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		http.Error(w, "a mistake of paddock's own", http.StatusInternalServerError)
		return
	}
	writePage(w, kind+"; charset=utf-8", []byte(b.String()))
}

// toProject leads to the one way of writing a name, with a slash.
func (p *Packages) toProject(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if !pythonName.MatchString(name) {
		p.refuse(w, r, errNoPackage(name))
		return
	}
	http.Redirect(w, r, "/pypi/simple/"+pypi.CanonPackageName(name)+"/", http.StatusMovedPermanently)
}

func (p *Packages) serveProject(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if pythonName.MatchString(name) && pypi.CanonPackageName(name) != name {
		p.toProject(w, r)
		return
	}
	found, err := p.pythonProject(r.Context(), name)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer found.close()
	kind := prefers(r.Header.Get("Accept"), simpleJSON, simpleHTML, "text/html")
	out := bufio.NewWriter(w)
	if kind == simpleJSON {
		startPage(w, kind)
		err = found.writeJSON(out)
	} else {
		startPage(w, kind+"; charset=utf-8")
		err = found.writeHTML(out)
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		p.broken(r, err)
	}
}

// writeJSON writes a page of PEP 691 as it is read.
func (s *shownProject) writeJSON(out *bufio.Writer) error {
	meta, err := json.Marshal(map[string]any{"meta": simpleMeta, "name": s.name})
	if err != nil {
		return err
	}
	_, _ = out.Write(meta[:len(meta)-1]) // errors are kept until Flush
	_, _ = out.WriteString(`,"versions":[`)
	last := ""
	for r, err := range s.rows() { // files of a version follow one another
		if err != nil {
			return err
		}
		if r.Version == last {
			continue
		}
		text, err := json.Marshal(r.Version)
		if err != nil {
			return err
		}
		if last != "" {
			_ = out.WriteByte(',')
		}
		last = r.Version
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	_, _ = out.WriteString(`],"files":[`)
	first := true
	for f, err := range s.files() {
		var text []byte
		if err == nil {
			text, err = json.Marshal(shownOf(s.name, f))
		}
		if err != nil {
			return err
		}
		if !first {
			_ = out.WriteByte(',')
		}
		first = false
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	_, err = out.WriteString("]}")
	return err
}

// writeHTML writes a page of PEP 503 as it is read.
func (s *shownProject) writeHTML(out *bufio.Writer) error {
	if err := projectHead.Execute(out, s.name); err != nil {
		return err
	}
	for f, err := range s.files() {
		if err == nil {
			err = projectLink.Execute(out, shownOf(s.name, f))
		}
		if err != nil {
			return err
		}
	}
	_, err := out.WriteString("</body></html>\n")
	return err
}

func shownOf(name string, f projectFile) shownFile {
	s := shownFile{Filename: f.name, URL: "/pypi/files/" + name + "/" + f.name, Hashes: map[string]string{}, Requires: f.requiresPython, Size: f.size}
	s.Link = s.URL
	if f.digest != (digest{}) {
		s.Hashes[f.digest.algorithm] = f.digest.value
		s.Link += "#" + f.digest.algorithm + "=" + f.digest.value
	}
	if f.yanked != nil {
		if s.Yanked, s.Reason = any(true), *f.yanked; s.Reason != "" {
			s.Yanked = s.Reason
		}
	}
	if !f.uploaded.IsZero() {
		at := f.uploaded.UTC().Truncate(time.Microsecond)
		s.Uploaded = &at
	}
	if d := f.described; d != (digest{}) {
		s.CoreMetadata = map[string]string{d.algorithm: d.value}
		s.OldMetadata, s.Sum = s.CoreMetadata, d.algorithm+"="+d.value
	}
	return s
}

// servePythonFile gives out a file, or a wheel's metadata.
func (p *Packages) servePythonFile(w http.ResponseWriter, r *http.Request) {
	found, err := p.pythonProject(r.Context(), r.PathValue("name"))
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer found.close()
	wanted := r.PathValue("file")
	for at, err := range found.rows() {
		if err == nil && at.Name != wanted && at.Name+".metadata" != wanted && fallbackWheel(found.name, at.Name, at.Version) != wanted {
			continue
		}
		var f projectFile
		if err == nil {
			f, err = found.listed(at)
		}
		switch {
		case err != nil:
			p.refuse(w, r, err)
			return
		case f.name == wanted:
			file, err := found.index.open(r.Context(), f)
			p.serveFile(w, r, file, err)
			return
		case fallbackWheel(found.name, at.Name, at.Version) == wanted:
			p.serveFallback(w, r, found, f)
			return
		case f.described != (digest{}):
			p.serveMetadata(w, r, found.index, f)
			return
		}
	}
	p.refuse(w, r, fault.New(fault.NotFound, "%s has no file %.200q", found.name, wanted))
}

func (p *Packages) serveMetadata(w http.ResponseWriter, r *http.Request, index pythonIndex, f projectFile) {
	text, err := index.metadata(r.Context(), f)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer text.Close()
	startPage(w, "text/plain; charset=utf-8")
	if _, err := io.Copy(w, text); err != nil {
		p.broken(r, err)
	}
}

// serveFile gives out a file whose digest was checked, and closes it. One that turns out
// to be changed while it is read ends too early for its Content-Length.
func (p *Packages) serveFile(w http.ResponseWriter, r *http.Request, file *stored, err error) {
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, file)
	if file.changed != nil {
		p.log.Error("a file in the cache of packages was changed on the disk; it is removed", "path", r.URL.Path, "file", file.name)
	}
}
