package pkgproxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"paddock/internal/fault"
)

// abbreviated is the short form of a package's description, which clients ask for to
// install.
const abbreviated = "application/vnd.npm.install-v1+json"

// shortFields are what it has of a release.
var shortFields = []string{
	"name", "version", "deprecated", "dependencies", "optionalDependencies", "devDependencies", "bundleDependencies", "bundledDependencies",
	"peerDependencies", "peerDependenciesMeta", "bin", "directories", "engines", "cpu", "os", "libc", "funding", "hasInstallScript", "_hasShrinkwrap",
}

// serveNPM answers for a package, a version of it, or a tarball.
func (p *Packages) serveNPM(w http.ResponseWriter, r *http.Request) {
	asked := r.PathValue("path") // with escapes undone: @scope%2fname is @scope/name
	if strings.HasPrefix(asked, "-/") {
		p.refuse(w, r, fault.New(fault.NotFound, "the front of npm's registry has packages and nothing else").WithHint("npm audit, search and login do not work here"))
		return
	}
	name, file, ok := strings.Cut(asked, "/-/")
	if !ok && !validNPMName(name) && strings.Contains(name, "/") {
		at := strings.LastIndexByte(name, '/') // a version or a tag of a package
		p.serveRelease(w, r, name[:at], name[at+1:])
		return
	}
	found, err := p.npmPackage(r.Context(), name)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer found.close()
	if !ok {
		p.servePackument(w, r, found)
		return
	}
	at, err := found.find(func(at row) bool { return file == tarballName(name, at.Version) }, fault.New(fault.NotFound, "%s has no file %.200q", name, file))
	var one *release
	if err == nil {
		one, err = found.release(at)
	}
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	content, err := found.registry.tarball(r.Context(), name, one)
	p.serveFile(w, r, content, err)
}

// origin is where a request was sent to: what links in the answer begin with.
func origin(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.URL.Scheme == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// servePackument gives a description out as it is read, version by version. One that
// cannot be read to its end has none for the client either.
func (p *Packages) servePackument(w http.ResponseWriter, r *http.Request, found *packument) {
	kind, part := prefers(r.Header.Get("Accept"), abbreviated, "application/json"), partLong
	first := map[string]any{"name": found.name, "dist-tags": found.tags}
	if kind == abbreviated {
		first["modified"], part = found.Updated, partShort
	} else {
		first["_id"] = found.name
	}
	head, err := json.Marshal(first)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	startPage(w, kind)
	out := bufio.NewWriter(w)
	_, _ = out.Write(head[:len(head)-1]) // errors are kept until Flush
	_, _ = out.WriteString(`,"versions":{`)
	before := ""
	for at, err := range found.rows() {
		if err == nil {
			_, _ = fmt.Fprintf(out, "%s%q:", before, at.Version) // plain versions need no more
			err = found.show(out, at, part, origin(r))
		}
		if err != nil {
			p.broken(r, err)
		}
		before = ","
	}
	_ = out.WriteByte('}')
	if part == partLong {
		_, _ = out.WriteString(`,"time":{`)
		before = ""
		for at, err := range found.rows() {
			if err != nil {
				p.broken(r, err)
			}
			if !at.Published.IsZero() {
				_, err = fmt.Fprintf(out, "%s%q:%q", before, at.Version, at.Published.UTC().Format(time.RFC3339Nano))
				before = ","
			}
			if err != nil {
				p.broken(r, err)
			}
		}
		_ = out.WriteByte('}')
	}
	_ = out.WriteByte('}')
	if err := out.Flush(); err != nil {
		p.broken(r, err)
	}
}

// broken ends an answer that has begun, so that it does not look whole.
func (p *Packages) broken(r *http.Request, err error) {
	if r.Context().Err() == nil && !slow(err) {
		p.log.Warn("a package's description cannot be given out", "path", r.URL.Path, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// show writes a version's description, with the front as the place of its file.
func (p *packument) show(to io.Writer, r row, part int, origin string) error {
	var at placed
	text, err := p.part(r, partPlaced, maxShort)
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		return err
	}
	if at.Dist == nil {
		at.Dist = map[string]json.RawMessage{}
	}
	if at.Dist["tarball"], err = json.Marshal(origin + "/npm/" + p.name + "/-/" + tarballName(p.name, r.Version)); err != nil {
		return err
	}
	dist, err := json.Marshal(at.Dist)
	if err == nil {
		_, err = io.Copy(to, p.section(r, part))
	}
	if err == nil {
		_, err = fmt.Fprintf(to, `,"dist":%s}`, dist)
	}
	return err
}

// serveRelease answers for one version, or what a tag names.
func (p *Packages) serveRelease(w http.ResponseWriter, r *http.Request, name, version string) {
	found, err := p.npmPackage(r.Context(), name)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer found.close()
	if tagged, ok := found.tags[version]; ok {
		version = tagged
	}
	at, err := found.find(func(at row) bool { return at.Version == version }, fault.New(fault.NotFound, "%s has no version %.100q that may be shown", name, version))
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	startPage(w, "application/json")
	out := bufio.NewWriter(w)
	if err = found.show(out, at, partLong, origin(r)); err == nil {
		err = out.Flush()
	}
	if err != nil {
		p.broken(r, err)
	}
}
