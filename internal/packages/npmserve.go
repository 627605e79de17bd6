package packages

import (
	"encoding/hex"
	"encoding/json"
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
	found, registry, err := p.npmPackage(r.Context(), name)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	if !ok {
		p.servePackument(w, r, found)
		return
	}
	for _, one := range found.releases {
		if file == tarballName(name, one.Version) {
			content, err := registry.tarball(r.Context(), name, one)
			p.serveFile(w, r, content, err)
			return
		}
	}
	p.refuse(w, r, fault.New(fault.NotFound, "%s has no file %.200q", name, file))
}

// origin is where a request was sent to: what links in the answer begin with.
func origin(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.URL.Scheme == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

func (p *Packages) servePackument(w http.ResponseWriter, r *http.Request, found *packument) {
	kind := prefers(r.Header.Get("Accept"), abbreviated, "application/json")
	versions := map[string]any{}
	times := map[string]string{}
	for version, one := range found.releases {
		shown, err := shownRelease(found.name, one, origin(r), kind == abbreviated)
		if err != nil {
			continue
		}
		versions[version] = shown
		if !one.published.IsZero() {
			times[version] = one.published.UTC().Format(time.RFC3339Nano)
		}
	}
	out := map[string]any{"name": found.name, "dist-tags": found.tags, "versions": versions}
	if kind == abbreviated {
		out["modified"] = found.modified
	} else {
		out["_id"], out["time"] = found.name, times
	}
	writeJSON(w, kind, out)
}

// shownRelease is a release's description with the front as the place of its file.
func shownRelease(name string, one *release, origin string, short bool) (map[string]json.RawMessage, error) {
	var fields, shown map[string]json.RawMessage
	if err := json.Unmarshal(one.raw, &fields); err != nil {
		return nil, err
	}
	if shown = fields; short {
		shown = map[string]json.RawMessage{}
		for _, field := range shortFields {
			if value, ok := fields[field]; ok {
				shown[field] = value
			}
		}
		if one.installScripts() {
			shown["hasInstallScript"] = json.RawMessage("true")
		}
	}
	dist := map[string]any{}
	var known map[string]any
	if json.Unmarshal(fields["dist"], &known) == nil {
		for _, field := range []string{"shasum", "fileCount", "unpackedSize", "signatures"} {
			if value, ok := known[field]; ok {
				dist[field] = value
			}
		}
	}
	dist["tarball"] = origin + "/npm/" + name + "/-/" + tarballName(name, one.Version)
	if raw, _ := hex.DecodeString(one.digest.value); raw != nil && one.digest.algorithm != "sha1" {
		dist["integrity"] = one.digest.integrity()
	}
	text, err := json.Marshal(dist)
	shown["dist"] = text
	return shown, err
}

// serveRelease answers for one version, or what a tag names.
func (p *Packages) serveRelease(w http.ResponseWriter, r *http.Request, name, version string) {
	found, _, err := p.npmPackage(r.Context(), name)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	if tagged, ok := found.tags[version]; ok {
		version = tagged
	}
	one := found.releases[version]
	if one == nil {
		p.refuse(w, r, fault.New(fault.NotFound, "%s has no version %.100q that may be shown", name, version))
		return
	}
	shown, err := shownRelease(name, one, origin(r), false)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	writeJSON(w, "application/json", shown)
}
