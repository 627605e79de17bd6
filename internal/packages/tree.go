package packages

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
// often it begins anew because of a peer.
const (
	maxNodes      = 3000
	maxPackuments = 1500
	maxRestarts   = 50
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
	// by beginning anew.
	peers map[string][]string
	// left are packages whose optional parts for one kind of machine were left out.
	left []string
}

// answer is a packument, or why there is none.
type answer struct {
	packument *packument
	registry  npmRegistry
	err       error
}

// wish is a dependency: a name, and what of it.
type wish struct {
	name, spec string
	optional   bool
}

// errPeer says that a package's version does not suit another's peer: the resolution
// begins anew with that range.
type errPeer struct{ name, spec string }

func (e errPeer) Error() string { return "packages: another version of " + e.name + " is needed" }

// resolve finds out what npm would install for wishes, by its rules since version 7:
// the latest version that matches, as high in the tree as it can be, peers with those
// that want them, and optional packages only where they exist.
func (p *Packages) resolve(ctx context.Context, wishes []wish, preferred map[string]string) (*tree, error) {
	t := &tree{p: p, found: map[string]*answer{}, preferred: preferred, peers: map[string][]string{}}
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

func (t *tree) build(ctx context.Context, wishes []wish) error {
	t.root, t.all, t.left, t.edges = &node{children: map[string]*node{}}, nil, nil, map[string][]edge{}
	for _, w := range wishes {
		if err := t.need(ctx, t.root, w, t.root); err != nil {
			return err
		}
	}
	for next := 0; next < len(t.all); next++ {
		for _, w := range t.all[next].wishes() {
			if err := t.need(ctx, t.all[next], w, t.all[next]); err != nil {
				return err
			}
		}
	}
	return nil
}

// wishes are what a package depends on, sorted by name; optional ones count as that
// where they are listed twice.
func (n *node) wishes() (all []wish) {
	m := n.release.manifest
	for _, name := range slices.Sorted(maps.Keys(m.Dependencies)) {
		if _, optional := m.OptionalDependencies[name]; !optional && !m.bundles(name) {
			all = append(all, wish{name, m.Dependencies[name], false})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.OptionalDependencies)) {
		all = append(all, wish{name, m.OptionalDependencies[name], true})
	}
	return all
}

// need sees that a package finds what it wants, beginning at a node.
func (t *tree) need(ctx context.Context, of *node, w wish, at *node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !validNPMName(w.name) {
		return fault.New(fault.Invalid, "%s depends on %.100q, which is no name of a package", of.label(), w.name)
	}
	t.edges[w.name] = append(t.edges[w.name], edge{of, w.spec})
	if there := at.up(w.name); there != nil && there.suits(w.spec) {
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
	if at.children[w.name] != nil || t.disturbs(n, at) {
		return errPeer{w.name, w.spec}
	}
	place := at
	for place.parent != nil && place.parent.children[w.name] == nil && !t.disturbs(n, place.parent) {
		place = place.parent
	}
	return t.put(ctx, place, n)
}

// edge is a dependency that was seen to.
type edge struct {
	from *node
	spec string
}

// disturbs tells whether a package would, in a node's folder, come before another one
// that something below there finds further up and cannot do with this one.
func (t *tree) disturbs(n, place *node) bool {
	for _, e := range t.edges[n.name] {
		if e.from.below(place) && !n.suits(e.spec) {
			if there := e.from.up(n.name); there != nil && !there.parent.below(place) {
				return true
			}
		}
	}
	return false
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
		case there != nil && there.suits(spec):
		case there != nil && there.parent == place:
			if !r.PeerMeta[peer].Optional {
				return errPeer{peer, spec}
			}
		case there == nil && r.PeerMeta[peer].Optional:
		default:
			if err := t.need(ctx, n, wish{peer, spec, r.PeerMeta[peer].Optional}, place); err != nil {
				return err
			}
		}
	}
	return nil
}

// suits tells whether an installed package is what a dependency asks for.
func (n *node) suits(spec string) bool {
	if real, rest, ok := alias(spec); ok {
		return n.release.Name == real && satisfies(n.release.Version, rest)
	}
	return n.release.Name == n.name && satisfies(n.release.Version, spec)
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
// is no range that is not known: false.
func satisfies(version, spec string) bool {
	spec = strings.TrimSpace(spec)
	if spec == "" {
		spec = "*"
	}
	c, err := semver.NPM.ParseConstraint(spec)
	return err == nil && c.Match(version)
}

// elsewhere are what specifiers begin with that name no registry's package.
var elsewhere = []string{"git", "http:", "https:", "file:", "link:", "workspace:", "portal:", "patch:", "ssh:", "github:", "gitlab:", "bitbucket:", "gist:", "/", "./", "../", "~/"}

// pick finds the version that npm would take.
func (t *tree) pick(ctx context.Context, w wish) (*release, npmRegistry, error) {
	name, spec := w.name, strings.TrimSpace(w.spec)
	if real, rest, ok := alias(spec); ok {
		name, spec = real, strings.TrimSpace(rest)
	}
	for _, prefix := range elsewhere {
		if strings.HasPrefix(spec, prefix) || strings.Contains(spec, "/") {
			return nil, nil, fault.New(fault.Denied, "%s is wanted from %.100q, which is no version of a registry's", name, spec).
				WithHint("packages come from the configured registry only")
		}
	}
	a := t.found[name]
	if a == nil {
		if len(t.found) >= maxPackuments {
			return nil, nil, fault.New(fault.Exhausted, "the packages need more than %d others", maxPackuments).WithHint("install fewer at once")
		}
		a = &answer{}
		a.packument, a.registry, a.err = t.p.npmPackage(ctx, name)
		t.found[name] = a
	}
	if a.err != nil {
		return nil, nil, a.err
	}
	r := a.packument.choose(spec, t.preferred[name], t.peers[w.name])
	if r == nil {
		return nil, nil, fault.New(fault.NotFound, "the npm package %s has no version %.100q that may be shown", name, spec).
			WithHint("it has %s", lastVersions(a.packument.versions()))
	}
	return r, a.registry, nil
}

func lastVersions(all []string) string {
	if len(all) > 5 {
		return "… " + strings.Join(all[len(all)-5:], ", ")
	}
	return strings.Join(all, ", ")
}

// choose takes a version as npm does: a tag's; else of those in the range the one that
// is preferred, the latest, or the newest, those that are not deprecated first. Nil:
// there is none.
func (p *packument) choose(spec, preferred string, peers []string) *release {
	if spec == "" {
		spec = "*"
	}
	c, err := semver.NPM.ParseConstraint(spec)
	if tagged, ok := p.tags[spec]; ok && (err != nil || spec == "latest") {
		return p.releases[tagged]
	}
	if err != nil {
		return nil
	}
	fits := func(version string, peers []string) bool {
		return p.releases[version] != nil && c.Match(version) && !slices.ContainsFunc(peers, func(s string) bool { return !satisfies(version, s) })
	}
	// A peer's wish is kept where it can be: where it cannot, the conflict is found again.
	for _, peers := range [][]string{peers, nil} {
		if preferred != "" && fits(preferred, peers) {
			return p.releases[preferred]
		}
		if latest := p.tags["latest"]; fits(latest, peers) || spec == "*" && len(peers) == 0 && p.releases[latest] != nil {
			return p.releases[latest]
		}
		var best *release
		for version, r := range p.releases {
			if fits(version, peers) && (best == nil || betterInRange(r, best)) {
				best = r
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}

// betterInRange tells whether npm takes a rather than b, where both are in the range.
func betterInRange(a, b *release) bool {
	if a.deprecated() != b.deprecated() {
		return b.deprecated()
	}
	return semver.NPM.Compare(a.Version, b.Version) > 0
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
