package packages

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"deps.dev/util/semver"

	"paddock/internal/bundle"
	"paddock/internal/fault"
)

// npmRegistry is where npm packages come from: a registry, or a folder.
type npmRegistry interface {
	// packument lists a package's versions; a fault.NotFound: there is no such package.
	packument(ctx context.Context, name string) (*packument, error)
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

// packument is what a registry says of a package.
type packument struct {
	name     string
	tags     map[string]string
	releases map[string]*release
	modified string
}

// release is one version of an npm package.
type release struct {
	manifest
	raw       json.RawMessage // the manifest as the registry has it
	digest    digest
	url       *url.URL
	published time.Time
	local     string // the file in a folder
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

func (m *manifest) deprecated() bool {
	return m.Deprecated != nil && m.Deprecated != "" && m.Deprecated != false
}

// npmRemote is a registry over HTTP.
type npmRemote struct{ *remote }

// maxReleases bounds how many versions of one package are looked at.
const maxReleases = 20_000

func (n npmRemote) packument(ctx context.Context, name string) (*packument, error) {
	page, err := n.page(ctx, strings.Replace(name, "/", "%2f", 1), "application/json")
	if err != nil {
		return nil, err
	}
	var in struct {
		Name     string                     `json:"name"`
		Tags     stringMap                  `json:"dist-tags"`
		Versions map[string]json.RawMessage `json:"versions"`
		Time     stringMap                  `json:"time"`
	}
	if err := json.Unmarshal(page.body, &in); err != nil || in.Name != name || len(in.Versions) > maxReleases {
		return nil, errIndex("its description of a package is damaged").WithCause(err)
	}
	out := &packument{name: name, tags: in.Tags, releases: map[string]*release{}, modified: in.Time["modified"]}
	for version, raw := range in.Versions {
		r := &release{raw: raw}
		r.published, _ = time.Parse(time.RFC3339Nano, in.Time[version])
		if n.read(r) && r.Name == name && r.Version == version {
			out.releases[version] = r
		}
	}
	return out, nil
}

// read reads a release's description; false: it has no digest, or no place.
func (n npmRemote) read(r *release) bool {
	var dist struct {
		Dist struct{ Tarball, Integrity, Shasum string }
	}
	if json.Unmarshal(r.raw, &r.manifest) != nil || json.Unmarshal(r.raw, &dist) != nil {
		return false
	}
	if !plainVersion(r.Version) {
		return false
	}
	at, err := n.base.Parse(dist.Dist.Tarball)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		return false
	}
	r.url = at
	digests := integrity(dist.Dist.Integrity)
	if d, ok := newDigest("sha1", dist.Dist.Shasum); ok && digests == nil {
		digests = append(digests, d)
	}
	var ok bool
	r.digest, ok = strongest(digests)
	return ok
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

func (n npmFolder) packument(_ context.Context, name string) (*packument, error) {
	names, err := n.names()
	if err != nil {
		return nil, err
	}
	out := &packument{name: name, tags: map[string]string{}, releases: map[string]*release{}}
	for _, file := range names {
		// npm pack calls @scope/name scope-name.
		if !strings.HasSuffix(file, ".tgz") || !strings.HasPrefix(file, path.Base(name)) && !strings.HasPrefix(file, strings.NewReplacer("@", "", "/", "-").Replace(name)) {
			continue
		}
		at, err := n.look(file)
		if err != nil {
			return nil, err
		}
		r := &release{raw: at.manifest, digest: at.sha512, published: at.modified, local: file}
		if at.manifest == nil || json.Unmarshal(at.manifest, &r.manifest) != nil || r.Name != name || !plainVersion(r.Version) {
			continue
		}
		out.releases[r.Version] = r
	}
	if len(out.releases) == 0 {
		return nil, errNoPackage(name)
	}
	out.tagLatest()
	return out, nil
}

func (n npmFolder) tarball(ctx context.Context, _ string, r *release) (*stored, error) {
	return n.get(ctx, r.local, r.digest)
}

// manifestLimits bound what is read of a tarball for its package.json.
var manifestLimits = bundle.Limits{Entries: 50_000, Ratio: 200, Free: 64 << 20}

// errFound ends the reading of a tarball.
var errFound = errors.New("found")

// manifestOf reads the package.json of a tarball.
func manifestOf(from io.Reader) (manifest []byte, err error) {
	err = bundle.Read(from, manifestLimits, bundle.Receiver{Entry: func(name string, mode fs.FileMode, content io.Reader) error {
		if dir, file := path.Split(path.Clean(name)); file != "package.json" || strings.Count(dir, "/") != 1 || !mode.IsRegular() {
			return nil
		}
		if manifest, err = readBounded(content, maxMetadata); err != nil {
			return err
		}
		return errFound
	}})
	if errors.Is(err, errFound) {
		err = nil
	}
	if err == nil && (manifest == nil || !json.Valid(manifest)) {
		err = errors.New("packages: a tarball without a package.json")
	}
	return bytes.TrimPrefix(manifest, []byte("\xef\xbb\xbf")), err
}

// tagLatest makes the newest release the latest, where a tag names none that is there.
func (p *packument) tagLatest() {
	if p.releases[p.tags["latest"]] != nil {
		return
	}
	best := ""
	for version, r := range p.releases {
		if best == "" || better(r, p.releases[best]) {
			best = version
		}
	}
	if best == "" {
		delete(p.tags, "latest")
		return
	}
	p.tags["latest"] = best
}

// better tells whether a comes before b for who names no version: what is not
// deprecated, and no preliminary version.
func better(a, b *release) bool {
	if a.deprecated() != b.deprecated() {
		return b.deprecated()
	}
	if x, y := preliminary(a.Version), preliminary(b.Version); x != y {
		return y
	}
	return semver.NPM.Compare(a.Version, b.Version) > 0
}

func preliminary(version string) bool {
	v, err := semver.NPM.Parse(version)
	return err == nil && v.IsPrerelease()
}

// npmPackage finds a package: what of it may be shown, and the registry that it
// belongs to.
func (p *Packages) npmPackage(ctx context.Context, name string) (*packument, npmRegistry, error) {
	switch {
	case len(p.npm) == 0:
		return nil, nil, errNone(kindNPM)
	case !validNPMName(name):
		return nil, nil, fault.New(fault.Invalid, "%.100q is no name of an npm package", name)
	case !allowed(p.config.NPM.Allow, name):
		return nil, nil, errNotAllowed(kindNPM, name)
	}
	all, at, err := first(ctx, p.npm, func(ctx context.Context, at npmRegistry) (*packument, error) { return at.packument(ctx, name) })
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			err = errNoPackage(name)
		}
		return nil, nil, err
	}
	maps.DeleteFunc(all.releases, func(_ string, r *release) bool {
		return r.local == "" && p.young(p.config.NPM.Cooldown, r.published)
	})
	if len(all.releases) == 0 {
		return nil, nil, fault.New(fault.NotFound, "the package %q has no version that may be shown", name).
			WithHint("those that it has are younger than packages.%s.cooldown_days, or without a digest", kindNPM)
	}
	all.tagLatest()
	for tag, version := range all.tags {
		if all.releases[version] == nil {
			delete(all.tags, tag)
		}
	}
	return all, at, nil
}

// versions are all of a package's, the oldest first.
func (p *packument) versions() []string {
	return slices.SortedFunc(maps.Keys(p.releases), semver.NPM.Compare)
}
