package pkgproxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"time"
)

// Bounds of what is kept of a registry's description.
const (
	maxManifest = 2 << 20   // of one version's, in bytes, as the registry has it
	maxShort    = 256 << 10 // of what clients need to install it
	maxFields   = 1000      // of its fields
	maxTags     = 1000
	maxText     = 256 // of a tag or a version
	maxURL      = 4 << 10
)

// The parts of a version's record: a [placed], and what is shown of the manifest, without
// dist and the last brace.
const (
	partPlaced = iota
	partShort
	partLong
)

// placed is where a version's file is, what it has to be, and what is shown of that.
type placed struct {
	Algorithm string                     `json:"algorithm"`
	Digest    string                     `json:"digest"`
	URL       string                     `json:"url,omitempty"`
	Local     string                     `json:"local,omitempty"` // the file in a folder
	Dist      map[string]json.RawMessage `json:"dist,omitempty"`
}

// shownDist are the fields of dist that are passed on, beside the digest.
var shownDist = []string{"shasum", "fileCount", "unpackedSize", "signatures"}

// npmReader reads a registry's description of a package.
type npmReader struct {
	name     string
	base     *url.URL
	out      *pageWriter
	head     pageHead
	named    string
	times    map[string]time.Time
	versions map[string]bool
}

// readPackument reads one as it comes, and writes its versions.
func readPackument(from io.Reader, name string, base *url.URL, out *pageWriter) (pageHead, error) {
	r := &npmReader{name: name, base: base, out: out, head: pageHead{Tags: map[string]string{}}, times: map[string]time.Time{}, versions: map[string]bool{}}
	in := newJSONStream(from, maxManifest)
	if err := in.object(func(field string) error { return r.field(in, field) }); err != nil {
		return r.head, err
	}
	if r.named != name {
		return r.head, errIndex("its description of a package is damaged")
	}
	for k := range out.rows {
		out.rows[k].Published = r.times[out.rows[k].Version]
	}
	return r.head, nil
}

func (r *npmReader) field(in *jsonStream, field string) error {
	switch field {
	case "name":
		return in.value(&r.named)
	case "dist-tags":
		return in.texts(maxTags, func(tag, version string) {
			if len(tag) <= maxText && len(version) <= maxText {
				r.head.Tags[tag] = version
			}
		})
	case "time":
		return in.texts(maxReleases+100, func(version, text string) {
			switch at, err := time.Parse(time.RFC3339Nano, text); {
			case version == "modified" && len(text) <= maxText:
				r.head.Updated = text
			case err == nil && len(version) <= maxText:
				r.times[version] = plainTime(at)
			}
		})
	case "versions":
		return in.object(func(version string) error { return r.version(in, version) })
	}
	return in.skip()
}

// plainTime is a time that can be written down; zero: it has no year of four digits.
func plainTime(at time.Time) time.Time {
	if at = at.UTC(); at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}
	}
	return at
}

func (r *npmReader) version(in *jsonStream, version string) error {
	var raw json.RawMessage
	if err := in.value(&raw); err != nil {
		return err
	}
	if len(r.versions) >= maxReleases {
		return errIndex("its description of a package is damaged")
	}
	if r.versions[version] || !plainVersion(version) {
		return nil
	}
	r.versions[version] = true
	m := readManifest(raw)
	if m == nil || m.name != r.name || m.version != version {
		return nil
	}
	at, digest := m.place(r.base)
	if at == nil {
		return nil
	}
	return m.write(r.out, placed{Algorithm: digest.algorithm, Digest: digest.value, URL: at.String()})
}

// shownManifest is what of a version's manifest is passed on.
type shownManifest struct {
	name, version string
	deprecated    bool
	scripts       bool // npm would run something
	dist          map[string]json.RawMessage
	short, long   bytes.Buffer
}

// readManifest reads one, of which the first of several fields of a name counts; nil: it
// is none, or too large.
func readManifest(raw []byte) *shownManifest {
	m := &shownManifest{}
	in := newJSONStream(bytes.NewReader(raw), maxManifest)
	seen := map[string]bool{}
	err := in.object(func(field string) error {
		var value json.RawMessage
		if err := in.value(&value); err != nil {
			return err
		}
		if seen[field] || field == "__proto__" {
			return nil
		}
		if len(seen) >= maxFields {
			return errJSON
		}
		seen[field] = true
		return m.take(field, value)
	})
	if err != nil || m.short.Len() > maxShort || m.short.Len() == 0 {
		return nil
	}
	if m.scripts && !seen["hasInstallScript"] {
		put(&m.short, "hasInstallScript", json.RawMessage("true"))
	}
	return m
}

func (m *shownManifest) take(field string, value json.RawMessage) error {
	switch field {
	case "dist":
		return json.Unmarshal(value, &m.dist)
	case "name":
		if err := json.Unmarshal(value, &m.name); err != nil {
			return err
		}
	case "version":
		if err := json.Unmarshal(value, &m.version); err != nil {
			return err
		}
	case "deprecated":
		var why any
		m.deprecated = json.Unmarshal(value, &why) == nil && why != nil && why != "" && why != false
	case "scripts":
		var all stringMap
		m.scripts = m.scripts || json.Unmarshal(value, &all) == nil && (all["preinstall"] != "" || all["install"] != "" || all["postinstall"] != "")
	case "hasInstallScript":
		if m.scripts = m.scripts || string(value) == "true"; m.scripts {
			value = json.RawMessage("true")
		}
	}
	put(&m.long, field, value)
	if slices.Contains(shortFields, field) {
		put(&m.short, field, value)
	}
	return nil
}

// put adds a field to an object that has no last brace.
func put(to *bytes.Buffer, field string, value json.RawMessage) {
	if to.Len() == 0 {
		to.WriteByte('{')
	} else {
		to.WriteByte(',')
	}
	name, _ := json.Marshal(field) // a text always can be
	to.Write(name)
	to.WriteByte(':')
	to.Write(value)
}

// place is where the version's file is and what it has to be; nil: that is not said.
func (m *shownManifest) place(base *url.URL) (*url.URL, digest) {
	var tarball, sums, sha1 string
	_ = json.Unmarshal(m.dist["tarball"], &tarball) // what is not text is none
	_ = json.Unmarshal(m.dist["integrity"], &sums)
	_ = json.Unmarshal(m.dist["shasum"], &sha1)
	at, err := base.Parse(tarball)
	if err != nil || len(tarball) > maxURL || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		return nil, digest{}
	}
	digests := integrity(sums)
	if d, ok := newDigest("sha1", sha1); ok && digests == nil {
		digests = append(digests, d)
	}
	d, ok := strongest(digests)
	if !ok {
		return nil, digest{}
	}
	return at, d
}

// write writes the version's record.
func (m *shownManifest) write(out *pageWriter, p placed) error {
	p.Dist = map[string]json.RawMessage{}
	for _, field := range shownDist {
		if value, ok := m.dist[field]; ok && len(value) <= maxURL {
			p.Dist[field] = value
		}
	}
	if p.Algorithm != "sha1" {
		text, err := json.Marshal(digest{p.Algorithm, p.Digest}.integrity())
		if err != nil {
			return err
		}
		p.Dist["integrity"] = text
	}
	first, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return out.add(row{Version: m.version, Deprecated: m.deprecated, Local: p.Local != ""}, first, m.short.Bytes(), m.long.Bytes())
}
