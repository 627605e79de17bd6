package pkgproxy

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deps.dev/util/semver"

	"paddock/internal/archive"
	"paddock/internal/fault"
)

// npmRegistry is where npm packages come from: a registry, or a folder.
type npmRegistry interface {
	// packument lists a package's versions, until the page is closed; a fault.NotFound:
	// there is no such package.
	packument(ctx context.Context, name string) (*page, error)
	// tarball opens a version's file, which has the digest that is said of it.
	tarball(ctx context.Context, name string, r *release) (*stored, error)
}

func (p *Packages) npmRegistry(index Index) (npmRegistry, error) {
	if filepath.IsAbs(index.URL) {
		f, err := p.openFolder(index.URL)
		if err != nil {
			return nil, err
		}
		return npmFolder{f}, nil
	}
	r, err := p.newRemote(index)
	if err != nil {
		return nil, err
	}
	return npmRemote{r}, nil
}

// npmName is how npm's packages are called; older ones have capitals.
var npmName = regexp.MustCompile(`^(?:@[A-Za-z0-9~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_-][A-Za-z0-9._~-]*$`)

// validNPMName tells whether a name is one, of which no file's path makes something else.
func validNPMName(name string) bool {
	return len(name) <= 214 && npmName.MatchString(name) && !strings.Contains(name, "..") && path.Base(name) != "node_modules"
}

// release is one version of an npm package.
type release struct {
	manifest
	digest digest
	url    *url.URL
	local  string // the file in a folder
}

// manifest is what of a package.json matters here.
type manifest struct {
	Name                 string              `json:"name"`
	Version              string              `json:"version"`
	Dependencies         stringMap           `json:"dependencies"`
	OptionalDependencies stringMap           `json:"optionalDependencies"`
	PeerDependencies     stringMap           `json:"peerDependencies"`
	PeerMeta             map[string]peerMeta `json:"peerDependenciesMeta"`
	OS                   stringList          `json:"os"`
	CPU                  stringList          `json:"cpu"`
	Deprecated           any                 `json:"deprecated"`
	HasInstallScript     bool                `json:"hasInstallScript"`
	Scripts              stringMap           `json:"scripts"`
	Bundle               json.RawMessage     `json:"bundleDependencies"`
	Bundled              json.RawMessage     `json:"bundledDependencies"`
}

type peerMeta struct {
	Optional bool `json:"optional"`
}

// stringMap is an object of texts; of anything else that is there, nothing is taken.
type stringMap map[string]string

// UnmarshalJSON implements [json.Unmarshaler].
func (m *stringMap) UnmarshalJSON(data []byte) error {
	var all map[string]any
	if json.Unmarshal(data, &all) != nil {
		return nil
	}
	*m = stringMap{}
	for key, value := range all {
		if text, ok := value.(string); ok {
			(*m)[key] = text
		}
	}
	return nil
}

// stringList is a list of texts, or one.
type stringList []string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *stringList) UnmarshalJSON(data []byte) error {
	var all []string
	if json.Unmarshal(data, &all) == nil {
		*l = all
		return nil
	}
	var one string
	if json.Unmarshal(data, &one) == nil && one != "" {
		*l = stringList{one}
	}
	return nil
}

// bundles tells whether a dependency comes in the package's own file.
func (m *manifest) bundles(name string) bool {
	for _, raw := range []json.RawMessage{m.Bundle, m.Bundled} {
		var names []string
		if string(raw) == "true" && m.Dependencies[name] != "" || json.Unmarshal(raw, &names) == nil && slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// installScripts tells whether npm would run something of the package's.
func (m *manifest) installScripts() bool {
	return m.HasInstallScript || m.Scripts["preinstall"] != "" || m.Scripts["install"] != "" || m.Scripts["postinstall"] != ""
}

// npmRemote is a registry over HTTP.
type npmRemote struct{ *remote }

// maxReleases bounds how many versions of one package are looked at.
const maxReleases = 20_000

func (n npmRemote) packument(ctx context.Context, name string) (*page, error) {
	return n.page(ctx, strings.Replace(name, "/", "%2f", 1), "application/json", reading{semver.NPM, func(_ string, body io.Reader, out *pageWriter) (pageHead, error) {
		head, err := readPackument(body, name, n.base, out)
		return head, damaged(err)
	}})
}

// release reads a row's record.
func (p *page) release(r row) (*release, error) {
	var at placed
	text, err := p.part(r, partPlaced, maxShort)
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		return nil, err
	}
	out := &release{digest: digest{at.Algorithm, at.Digest}, local: at.Local}
	if at.URL != "" {
		if out.url, err = url.Parse(at.URL); err != nil {
			return nil, err
		}
	}
	if text, err = p.part(r, partShort, 2*maxShort); err == nil {
		err = json.Unmarshal(append(text, '}'), &out.manifest)
	}
	return out, err
}

// plainVersion tells whether a version is one, and can be a part of a file's name.
func plainVersion(version string) bool {
	_, err := semver.NPM.Parse(version)
	return err == nil && len(version) <= 256 && !strings.ContainsAny(version, "/\\ %?#")
}

// integrity reads digests as npm writes them: sha512-BASE64, several with spaces.
func integrity(text string) (all []digest) {
	for one := range strings.FieldsSeq(text) {
		algorithm, value, _ := strings.Cut(one, "-")
		value, _, _ = strings.Cut(value, "?")
		if raw, err := base64.StdEncoding.DecodeString(value); err == nil {
			if d, ok := newDigest(algorithm, hex.EncodeToString(raw)); ok {
				all = append(all, d)
			}
		}
	}
	return all
}

// integrity is the digest as npm writes it.
func (d digest) integrity() string {
	raw, _ := hex.DecodeString(d.value)
	return d.algorithm + "-" + base64.StdEncoding.EncodeToString(raw)
}

func (n npmRemote) tarball(ctx context.Context, name string, r *release) (*stored, error) {
	return n.p.store.get(ctx, r.digest, tarballName(name, r.Version), func(ctx context.Context) (io.ReadCloser, error) { return n.fetch(ctx, r.url) })
}

// tarballName is what npm calls a package's file.
func tarballName(name, version string) string { return path.Base(name) + "-" + version + ".tgz" }

// npmFolder is a folder with npm's tarballs: what they are stands in them.
type npmFolder struct{ *folder }

func (n npmFolder) packument(ctx context.Context, name string) (*page, error) {
	names, err := n.names()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(file string) bool {
		// npm pack calls @scope/name scope-name.
		return !strings.HasSuffix(file, ".tgz") || !strings.HasPrefix(file, path.Base(name)) && !strings.HasPrefix(file, strings.NewReplacer("@", "", "/", "-").Replace(name))
	})
	return n.page(ctx, kindNPM, name, semver.NPM, names, func(out *pageWriter) error {
		seen := map[string]bool{}
		for _, file := range names {
			if err := n.take(file, name, seen, out); err != nil {
				return err
			}
		}
		return nil
	})
}

// take writes the record of a tarball, where it is one of the package's.
func (n npmFolder) take(file, name string, seen map[string]bool, out *pageWriter) error {
	at, err := n.look(file)
	if err != nil {
		return err
	}
	text, err := n.manifest(file)
	if err != nil || text == nil {
		return err
	}
	m := readManifest(text)
	if m == nil || m.name != name || !plainVersion(m.version) || seen[m.version] {
		return nil
	}
	seen[m.version] = true
	return m.write(out, placed{Algorithm: at.sha512.algorithm, Digest: at.sha512.value, Local: file})
}

func (n npmFolder) tarball(ctx context.Context, _ string, r *release) (*stored, error) {
	return n.get(ctx, r.local, r.digest)
}

// manifestLimits bound what is read of a tarball for its package.json.
var manifestLimits = archive.Limits{Entries: 50_000, Ratio: 200, Free: 64 << 20}

// errFound ends the reading of a tarball.
var errFound = errors.New("found")

// manifestOf reads the package.json of a tarball.
func manifestOf(from io.Reader) (manifest []byte, err error) {
	err = archive.Read(from, manifestLimits, archive.Receiver{Entry: func(name string, mode fs.FileMode, content io.Reader) error {
		if dir, file := path.Split(path.Clean(name)); file != "package.json" || strings.Count(dir, "/") != 1 || !mode.IsRegular() {
			return nil
		}
		if manifest, err = readBounded(content, maxManifest); err != nil {
			return err
		}
		return errFound
	}})
	if errors.Is(err, errFound) {
		err = nil
	}
	if err == nil && (manifest == nil || !json.Valid(manifest)) {
		err = errors.New("pkgproxy: a tarball without a package.json")
	}
	return bytes.TrimPrefix(manifest, []byte("\xef\xbb\xbf")), err
}

// packument is an npm package of which some versions may be shown.
type packument struct {
	*page
	p        *Packages
	name     string
	tags     map[string]string
	registry npmRegistry
}

// better tells whether a comes before b for who names no version: what is not
// deprecated, and no preliminary version, and else what comes later in a page.
func better(a, b row) bool {
	if a.Deprecated != b.Deprecated {
		return b.Deprecated
	}
	return preliminary(b.Version) || !preliminary(a.Version)
}

func preliminary(version string) bool {
	v, err := semver.NPM.Parse(version)
	return err == nil && v.IsPrerelease()
}

// npmPackage finds a package, and the registry that it belongs to. The caller closes it.
func (p *Packages) npmPackage(ctx context.Context, name string) (*packument, error) {
	switch {
	case len(p.npm) == 0:
		return nil, errNone(kindNPM)
	case !validNPMName(name):
		return nil, fault.New(fault.Invalid, "%.100q is not a name of an npm package", name)
	case !allowed(p.config.NPM.Allow, name):
		return nil, errNotAllowed(kindNPM, name)
	}
	found, at, err := first(ctx, p.npm, func(ctx context.Context, at npmRegistry) (*page, error) { return at.packument(ctx, name) })
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			err = errNoPackage(name)
		}
		return nil, err
	}
	out := &packument{found, p, name, maps.Clone(found.Tags), at}
	if err := out.tag(); err != nil {
		found.close()
		return nil, err
	}
	return out, nil
}

// tag leaves tags of versions that may be shown, and makes the newest the latest where no
// tag says so.
func (p *packument) tag() error {
	tagged, some := map[string]bool{}, false
	for _, version := range p.tags {
		tagged[version] = false
	}
	var newest row
	for r, err := range p.rows() {
		if err != nil {
			return err
		}
		if _, ok := tagged[r.Version]; ok {
			tagged[r.Version] = true
		}
		if !some || better(r, newest) {
			newest = r
		}
		some = true
	}
	if !some {
		return fault.New(fault.NotFound, "the package %q has no version that may be shown", p.name).
			WithHint("those that it has are younger than packages.%s.cooldown_days, or without a digest", kindNPM)
	}
	maps.DeleteFunc(p.tags, func(_, version string) bool { return !tagged[version] })
	if p.tags == nil {
		p.tags = map[string]string{}
	}
	if p.tags["latest"] == "" {
		p.tags["latest"] = newest.Version
	}
	return nil
}

// rows are those of the versions that may be shown, the oldest first.
func (p *packument) rows() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for r, err := range p.all() {
			if err == nil && !r.Local && p.p.young(p.p.config.NPM.Cooldown, r.Published) {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// find finds the row that is wanted; a fault.NotFound with a text: there is none.
func (p *packument) find(wanted func(row) bool, missing *fault.Error) (row, error) {
	for r, err := range p.rows() {
		if err != nil || wanted(r) {
			return r, err
		}
	}
	return row{}, missing
}
