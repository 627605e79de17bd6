package pkgproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deps.dev/util/semver"

	"paddock/internal/fault"
)

// Bounds of a resolution: installed packages, descriptions that are fetched, and how
// often it begins again because of a peer.
const (
	maxNodes      = 3000
	maxPackuments = 1500
	maxRestarts   = 50
	// maxSteps bounds what else is done: versions, dependencies and folders that are
	// looked at. What MCP's tests install are 10,000.
	maxSteps = 20_000_000
	// maxHeld bounds what is remembered of descriptions, in bytes.
	maxHeld = 32 << 20
	// maxRange bounds a range of versions, in bytes.
	maxRange = 1 << 10
)

// node is an installed package: its folder is node_modules/<name> in its parent's. The
// root has no release.
type node struct {
	name     string // as it is imported; an alias, maybe
	release  *release
	registry npmRegistry
	parent   *node
	children map[string]*node
}

// up finds what a module of n would import by a name.
func (n *node) up(name string) *node {
	for at := n; at != nil; at = at.parent {
		if child := at.children[name]; child != nil {
			return child
		}
	}
	return nil
}

// folder is where the package lies, with slashes.
func (n *node) folder() string {
	if n.parent == nil {
		return ""
	}
	if above := n.parent.folder(); above != "" {
		return above + "/node_modules/" + n.name
	}
	return "node_modules/" + n.name
}

// label names who wanted a package, for errors.
func (n *node) label() string {
	if n.release == nil {
		return "the session"
	}
	return n.release.Name + "@" + n.release.Version
}

// tree is a resolution: what npm would put where.
type tree struct {
	p     *Packages
	root  *node
	all   []*node           // but the root, in the order of their coming
	edges map[string][]edge // by the name that is wanted
	found map[string]*answer
	// preferred are versions that are taken where they match, by name: what is
	// installed already.
	preferred map[string]string
	// peers are ranges that a package's version should match because of a peer, found
	// by beginning again.
	peers       map[string][]string
	steps, held int
	ranges      map[string]*semver.Constraint // by how they are written; nil: it is none
	// left are packages whose optional parts for one kind of machine were left out.
	left []string
}

// answer is what is remembered of a packument, or why there is none.
type answer struct {
	page     *page // closed
	rows     []row // the newest version first
	tags     map[string]string
	registry npmRegistry
	chosen   map[string]*release // by version
	picked   map[string]*release // by what was asked for
	err      error
}

// step counts what is done, and ends it where that is too much.
func (t *tree) step(ctx context.Context, n int) error {
	const look = 1 << 12
	before := t.steps / look
	if t.steps += n; t.steps > maxSteps {
		return fault.New(fault.Exhausted, "which versions of the packages fit together takes too long to find out").WithHint("install fewer at once, or name versions")
	}
	if t.steps/look != before {
		return context.Cause(ctx)
	}
	return nil
}

// reserve counts what is remembered.
func (t *tree) reserve(n int) error {
	if t.held += n; t.held > maxHeld {
		return fault.New(fault.Exhausted, "the descriptions of the packages are too large to be looked at together").WithHint("install fewer at once")
	}
	return nil
}

// dependency is a dependency: a name, and what of it.
type dependency struct {
	name, spec string
	optional   bool
}

// errPeer says that a package's version does not suit another's peer: the resolution
// begins again with that range.
type errPeer struct{ name, spec string }

func (e errPeer) Error() string { return "pkgproxy: another version of " + e.name + " is needed" }

// resolve finds out what npm would install for wishes, by its rules since version 7:
// the latest version that matches, as high in the tree as it can be, peers with those
// that want them, and optional packages only where they exist.
func (p *Packages) resolve(ctx context.Context, wishes []dependency, preferred map[string]string) (*tree, error) {
	t := &tree{p: p, found: map[string]*answer{}, preferred: preferred, peers: map[string][]string{}, ranges: map[string]*semver.Constraint{}}
	for range maxRestarts {
		err := t.build(ctx, wishes)
		var peer errPeer
		if !errors.As(err, &peer) {
			return t, err
		}
		if slices.Contains(t.peers[peer.name], peer.spec) {
			return nil, fault.New(fault.Conflict, "no version of %s suits all that want it: %s", peer.name, strings.Join(t.peers[peer.name], ", ")).
				WithHint("install older or newer versions of what wants it")
		}
		t.peers[peer.name] = append(t.peers[peer.name], peer.spec)
	}
	return nil, fault.New(fault.Conflict, "the packages' peers do not fit together").WithHint("install fewer packages at once, or name versions")
}

func (t *tree) build(ctx context.Context, wishes []dependency) error {
	t.root, t.all, t.left, t.edges = &node{children: map[string]*node{}}, nil, nil, map[string][]edge{}
	for _, w := range wishes {
		if err := t.resolveDep(ctx, t.root, w, t.root); err != nil {
			return err
		}
	}
	for next := 0; next < len(t.all); next++ {
		for _, w := range t.all[next].requirements() {
			if err := t.resolveDep(ctx, t.all[next], w, t.all[next]); err != nil {
				return err
			}
		}
	}
	return nil
}

// requirements are what a package depends on, sorted by name; optional ones count as that
// where they are listed twice.
func (n *node) requirements() (all []dependency) {
	m := n.release.manifest
	for _, name := range slices.Sorted(maps.Keys(m.Dependencies)) {
		if _, optional := m.OptionalDependencies[name]; !optional && !m.bundles(name) {
			all = append(all, dependency{name, m.Dependencies[name], false})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.OptionalDependencies)) {
		all = append(all, dependency{name, m.OptionalDependencies[name], true})
	}
	return all
}

// resolveDep sees that a package finds what it wants, beginning at a node.
func (t *tree) resolveDep(ctx context.Context, of *node, w dependency, at *node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.step(ctx, 1+len(t.edges[w.name])); err != nil {
		return err
	}
	if !validNPMName(w.name) {
		return fault.New(fault.Invalid, "%s depends on %.100q, which is not a name of a package", of.label(), w.name)
	}
	t.edges[w.name] = append(t.edges[w.name], edge{of, w.spec})
	if there := at.up(w.name); there != nil && t.nodeSatisfies(there, w.spec) {
		return nil
	}
	r, registry, err := t.pick(ctx, w)
	if err != nil {
		if w.optional && fault.KindOf(err) != fault.Unavailable && ctx.Err() == nil {
			return nil
		}
		return blame(of, err)
	}
	if !r.anywhere() {
		if w.optional {
			t.left = append(t.left, of.label())
			return nil
		}
		return fault.New(fault.Unsupported, "the npm package %s@%s is for one kind of machine, and not for isolation %q", r.Name, r.Version, isolationWasm).
			WithHint("it installs in a session with isolation %q", isolationLinux)
	}
	n := &node{name: w.name, release: r, registry: registry, children: map[string]*node{}}
	if at.children[w.name] != nil || t.wouldShadow(n, at) {
		return errPeer{w.name, w.spec}
	}
	place := at
	for place.parent != nil && place.parent.children[w.name] == nil && !t.wouldShadow(n, place.parent) {
		place = place.parent
		if err := t.step(ctx, 0); err != nil {
			return err
		}
	}
	return t.put(ctx, place, n)
}

// edge is a dependency that was seen to.
type edge struct {
	from *node
	spec string
}

// wouldShadow tells whether a package would, in a node's folder, come before another one
// that something below there finds further up and cannot do with this one.
func (t *tree) wouldShadow(n, place *node) bool {
	t.steps += len(t.edges[n.name]) * (1 + place.depth())
	for _, e := range t.edges[n.name] {
		if e.from.below(place) && !t.nodeSatisfies(n, e.spec) {
			if there := e.from.up(n.name); there != nil && !there.parent.below(place) {
				return true
			}
		}
	}
	return false
}

// depth is in how many folders a node lies.
func (n *node) depth() (d int) {
	for at := n; at.parent != nil; at = at.parent {
		d++
	}
	return d
}

// below tells whether a node is another one, or lies in its folder.
func (n *node) below(place *node) bool {
	for at := n; at != nil; at = at.parent {
		if at == place {
			return true
		}
	}
	return false
}

// put installs a package in a node's folder, with its peers.
func (t *tree) put(ctx context.Context, place, n *node) error {
	if len(t.all) >= maxNodes {
		return fault.New(fault.Exhausted, "the packages need more than %d others", maxNodes).WithHint("install fewer at once")
	}
	r := n.release
	n.parent, place.children[n.name] = place, n
	t.all = append(t.all, n)
	for _, peer := range slices.Sorted(maps.Keys(r.PeerDependencies)) {
		spec := r.PeerDependencies[peer]
		there := place.up(peer)
		switch {
		case there != nil && t.nodeSatisfies(there, spec):
		case there != nil && there.parent == place:
			if !r.PeerMeta[peer].Optional {
				return errPeer{peer, spec}
			}
		case there == nil && r.PeerMeta[peer].Optional:
		default:
			if err := t.resolveDep(ctx, n, dependency{peer, spec, r.PeerMeta[peer].Optional}, place); err != nil {
				return err
			}
		}
	}
	return nil
}

// nodeSatisfies tells whether an installed package is what a dependency asks for.
func (t *tree) nodeSatisfies(n *node, spec string) bool {
	if real, rest, ok := alias(spec); ok {
		return n.release.Name == real && t.satisfies(n.release.Version, rest)
	}
	return n.release.Name == n.name && t.satisfies(n.release.Version, spec)
}

// anywhere tells whether a package is for every kind of machine.
func (m *manifest) anywhere() bool {
	only := func(list stringList) bool {
		return slices.ContainsFunc(list, func(s string) bool { return !strings.HasPrefix(s, "!") && s != "any" && s != "wasm32" && s != "" })
	}
	return !only(m.OS) && !only(m.CPU)
}

// alias reads npm:name@range.
func alias(spec string) (name, rest string, ok bool) {
	text, ok := strings.CutPrefix(spec, "npm:")
	if !ok {
		return "", "", false
	}
	if at := strings.LastIndexByte(text, '@'); at > 0 {
		return text[:at], text[at+1:], true
	}
	return text, "*", true
}

// satisfies tells whether a version is within a range. Of a tag or anything else that
// is not a range that is not known: false.
func (t *tree) satisfies(version, spec string) bool {
	c := t.constraint(spec)
	return c != nil && c.Match(version)
}

// constraint reads a range, once; nil: it is none.
func (t *tree) constraint(spec string) *semver.Constraint {
	spec = strings.TrimSpace(spec)
	if spec == "" {
		spec = "*"
	}
	c, known := t.ranges[spec]
	if !known {
		t.steps += len(spec)
		if len(spec) <= maxRange {
			var err error
			if c, err = semver.NPM.ParseConstraint(spec); err != nil {
				c = nil
			}
			if len(t.ranges) < maxPackuments {
				t.ranges[spec] = c
			}
		}
	}
	return c
}

// elsewhere are what specifiers begin with that name no registry's package.
var elsewhere = []string{"git", "http:", "https:", "file:", "link:", "workspace:", "portal:", "patch:", "ssh:", "github:", "gitlab:", "bitbucket:", "gist:", "/", "./", "../", "~/"}

// pick finds the version that npm would take.
func (t *tree) pick(ctx context.Context, w dependency) (*release, npmRegistry, error) {
	name, spec := w.name, strings.TrimSpace(w.spec)
	if real, rest, ok := alias(spec); ok {
		name, spec = real, strings.TrimSpace(rest)
	}
	for _, prefix := range elsewhere {
		if strings.HasPrefix(spec, prefix) || strings.Contains(spec, "/") {
			return nil, nil, fault.New(fault.Denied, "%s is wanted from %.100q, which is not a version of a registry's", name, spec).
				WithHint("packages come from the configured registry only")
		}
	}
	a := t.found[name]
	if a == nil {
		if len(t.found) >= maxPackuments {
			return nil, nil, fault.New(fault.Exhausted, "the packages need more than %d others", maxPackuments).WithHint("install fewer at once")
		}
		a = t.fetch(ctx, name)
		t.found[name] = a
	}
	if a.err != nil {
		return nil, nil, a.err
	}
	asked := fmt.Sprintf("%d %q %q", len(t.peers[w.name]), w.name, spec)
	if r := a.picked[asked]; r != nil {
		return r, a.registry, t.step(ctx, 1)
	}
	version, err := t.choose(ctx, a, spec, t.preferred[name], t.peers[w.name])
	if err != nil {
		return nil, nil, err
	}
	if version == "" {
		return nil, nil, fault.New(fault.NotFound, "the npm package %s has no version %.100q that may be shown", name, spec).
			WithHint("it has %s", lastVersions(a.rows))
	}
	r, err := t.load(ctx, a, name, version)
	if err == nil {
		err = t.reserve(len(asked) + rowCost)
		a.picked[asked] = r
	}
	return r, a.registry, err
}

// fetch finds a package, and remembers what its versions are.
func (t *tree) fetch(ctx context.Context, name string) *answer {
	found, err := t.p.npmPackage(ctx, name)
	if err != nil {
		return &answer{err: err}
	}
	defer found.close()
	a := &answer{page: found.page, tags: found.tags, registry: found.registry, chosen: map[string]*release{}, picked: map[string]*release{}}
	for r, err := range found.rows() {
		if err == nil {
			err = errors.Join(t.reserve(len(r.Version)+rowCost), t.step(ctx, 1))
		}
		if err != nil {
			return &answer{err: err}
		}
		a.rows = append(a.rows, r)
	}
	for tag, version := range a.tags {
		if err := t.reserve(len(tag) + len(version) + rowCost); err != nil {
			return &answer{err: err}
		}
	}
	slices.Reverse(a.rows)
	return a
}

// load reads a version's description.
func (t *tree) load(ctx context.Context, a *answer, name, version string) (*release, error) {
	if r := a.chosen[version]; r != nil {
		return r, nil
	}
	p, err := t.p.store.again(a.page)
	if errors.Is(err, errAnotherPage) { // what is there now may have it as well
		now := t.fetch(ctx, name)
		if now.err != nil {
			return nil, now.err
		}
		a.page, a.rows = now.page, now.rows
		p, err = t.p.store.again(a.page)
	}
	if err != nil {
		return nil, err
	}
	defer p.close()
	for _, at := range a.rows {
		if at.Version != version {
			continue
		}
		if err := t.reserve(4 * int(at.Parts[partShort]+at.Parts[partPlaced])); err != nil {
			return nil, err
		}
		r, err := p.release(at)
		a.chosen[version] = r
		return r, err
	}
	return nil, errAnotherPage
}

func lastVersions(newest []row) string {
	var last []string
	for _, r := range newest[:min(len(newest), 5)] {
		last = append(last, r.Version)
	}
	slices.Reverse(last)
	if len(newest) > 5 {
		return "… " + strings.Join(last, ", ")
	}
	return strings.Join(last, ", ")
}

// choose takes a version as npm does: a tag's; else of those in the range the one that
// is preferred, the latest, or the newest, those that are not deprecated first. Empty:
// there is none.
func (t *tree) choose(ctx context.Context, a *answer, spec, preferred string, peers []string) (string, error) {
	c := t.constraint(spec)
	if tagged, ok := a.tags[spec]; ok && (c == nil || spec == "latest") {
		return tagged, nil
	}
	if c == nil {
		return "", nil
	}
	latest := a.tags["latest"]
	// A peer's wish is kept where it can be: where it cannot, the conflict is found again.
	for _, peers := range [][]string{peers, nil} {
		fits := func(version string) bool {
			return c.Match(version) && !slices.ContainsFunc(peers, func(s string) bool { return !t.satisfies(version, s) })
		}
		if preferred != "" && fits(preferred) && slices.ContainsFunc(a.rows, func(r row) bool { return r.Version == preferred }) {
			return preferred, nil
		}
		if latest != "" && (fits(latest) || (spec == "*" || spec == "") && len(peers) == 0) {
			return latest, nil
		}
		best := ""
		for _, r := range a.rows {
			if err := t.step(ctx, 1+len(peers)); err != nil {
				return "", err
			}
			if (best == "" || !r.Deprecated) && fits(r.Version) {
				if best = r.Version; !r.Deprecated {
					break
				}
			}
		}
		if best != "" {
			return best, nil
		}
	}
	return "", nil
}

// blame says which package it is whose dependency cannot be met.
func blame(of *node, err error) error {
	f := fault.Of(err)
	var peer errPeer
	if of.release == nil || f == nil || f.Kind == fault.Internal || errors.As(err, &peer) {
		return err
	}
	return fault.New(f.Kind, "%s (wanted by %s)", f.Message, of.label()).WithHint("%s", f.Hint).WithCause(fmt.Errorf("resolving: %w", err))
}
