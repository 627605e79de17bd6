package pkgproxy

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"path"
	"strings"
	"time"

	"golang.org/x/net/html"
)

// Bounds of what is kept of an index's list of files.
const (
	// maxListed bounds one file's entry, in bytes.
	maxListed = 128 << 10
	// maxMarkup bounds a piece of an HTML page between two of its signs.
	maxMarkup = 256 << 10
	// maxRequires bounds the versions of Python that a file is for, in bytes, and
	// maxReason why it was withdrawn.
	maxRequires = 256
	maxReason   = 1 << 10
)

// listed is a file's record in a page.
type listed struct {
	URL      string    `json:"url,omitempty"`
	Digest   [2]string `json:"digest"`
	Requires string    `json:"requires,omitempty"`
	Yanked   *string   `json:"yanked,omitempty"`
	Uploaded time.Time `json:"uploaded,omitzero"`
	Size     int64     `json:"size,omitempty"`
	// Described is the digest of its metadata.
	Described [2]string `json:"described,omitzero"`
}

// project writes the files of a package as an index lists them.
type project struct {
	name string
	out  *pageWriter
	base *url.URL
	seen map[string]bool // files, by their names
	any  bool            // a link was there
}

// add takes a file up, where it is one of the package's with a digest and a URL.
func (p *project) add(f projectFile, href string, digests []digest) error {
	var ok bool
	if f.version, ok = fileOf(f.name, p.name); !ok || len(p.seen) >= maxFiles || len(href) > maxURL || len(f.requiresPython) > maxRequires {
		return nil
	}
	if f.digest, ok = strongest(digests); !ok || f.digest.algorithm == "sha1" {
		return nil
	}
	at, err := p.base.Parse(href)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		return nil
	}
	at.Fragment = ""
	f.url = at
	return p.put(f)
}

// put writes a file's record, of several with one name the first.
func (p *project) put(f projectFile) error {
	if p.seen[f.name] {
		return nil
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[f.name] = true
	f.uploaded = plainTime(f.uploaded)
	l := listed{Digest: [2]string{f.digest.algorithm, f.digest.value}, Requires: f.requiresPython, Uploaded: f.uploaded, Size: f.size}
	if f.described != (digest{}) {
		l.Described = [2]string{f.described.algorithm, f.described.value}
	}
	if f.yanked != nil {
		why := strings.ToValidUTF8((*f.yanked)[:min(len(*f.yanked), maxReason)], "")
		l.Yanked = &why
	}
	if f.url != nil {
		l.URL = f.url.String()
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return p.out.add(row{Version: f.version, Name: f.name, Published: f.uploaded, Local: f.local}, text)
}

// listed reads a row's record.
func (p *page) listed(r row) (projectFile, error) {
	text, err := p.part(r, 0, maxListed)
	var l listed
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	f := projectFile{
		name: r.Name, version: r.Version, digest: digest{l.Digest[0], l.Digest[1]}, requiresPython: l.Requires, yanked: l.Yanked,
		uploaded: l.Uploaded, size: l.Size, described: digest{l.Described[0], l.Described[1]}, local: r.Local,
	}
	if err == nil && l.URL != "" {
		f.url, err = url.Parse(l.URL)
	}
	return f, err
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

// readJSON takes the files of an answer of PEP 691.
func (p *project) readJSON(body io.Reader) error {
	in := newJSONStream(body, maxListed)
	err := in.object(func(field string) error {
		if field != "files" {
			return in.skip()
		}
		return in.list(func() error { return p.entry(in) })
	})
	return damaged(err)
}

// damaged makes a fault of a list that cannot be read.
func damaged(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.Is(err, errJSON) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &syntax) || errors.As(err, &kind) {
		return errIndex("what it says of a package is damaged").WithCause(err)
	}
	return err
}

func (p *project) entry(in *jsonStream) error {
	var f struct {
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
	}
	if err := in.value(&f); err != nil {
		return err
	}
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
	return p.add(out, f.URL, digestsOf(f.Hashes))
}

// readHTML takes the links of a page.
func (p *project) readHTML(body io.Reader) error {
	z := html.NewTokenizer(body)
	z.SetMaxBuf(maxMarkup)
	for signs := 0; ; signs++ {
		if signs > maxValues {
			return errManyValues
		}
		switch z.Next() {
		case html.ErrorToken:
			switch {
			case z.Err() == io.EOF:
				return nil
			case errors.Is(z.Err(), html.ErrBufferExceeded):
				return errIndex("what it says of a package is damaged").WithCause(z.Err())
			}
			return z.Err()
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
				if at, err := p.base.Parse(attrs["href"]); err == nil && !p.any {
					p.base = at
				}
			case "a":
				if err := p.link(attrs); err != nil {
					return err
				}
			}
		}
	}
}

// link takes one of them up.
func (p *project) link(attrs map[string]string) error {
	at, err := p.base.Parse(attrs["href"])
	if err != nil {
		return nil
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
	before := len(p.seen)
	err = p.add(f, attrs["href"], digests)
	p.any = p.any || len(p.seen) > before
	return err
}

// parseSum reads sha256=….
func parseSum(text string) (digest, bool) {
	text, _, _ = strings.Cut(text, "&")
	algorithm, value, _ := strings.Cut(text, "=")
	return newDigest(algorithm, value)
}
