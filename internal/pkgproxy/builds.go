package pkgproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/helper"
)

// buildsFolder has packs, by what they were made of: each begins with the digest of the
// rest, so that a file that was changed or cut short is made again.
const buildsFolder = "builds"

// batchBytes is how much of unpacked packages one process makes packs of.
const batchBytes = 24 << 20

// buildKey names the pack of a release. A pack depends on the package's own files alone:
// what its modules import is found when they run, by the tree of the session.
func (r *release) buildKey() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{madeBy(), r.Name, r.Version, r.digest.algorithm, r.digest.value}, "\n")))
	return hex.EncodeToString(sum[:])
}

// built reads a pack that was made before; nil: there is none.
func (s *store) built(key string) []byte {
	name := buildsFolder + "/" + key
	f, err := s.root.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := readBounded(f, maxModules)
	const digits = 2 * sha256.Size
	if err != nil || len(text) < digits {
		return nil
	}
	if sum := sha256.Sum256(text[digits:]); hex.EncodeToString(sum[:]) != string(text[:digits]) {
		s.drop(name)
		return nil
	}
	s.touch(name)
	return text[digits:]
}

// keepBuilt keeps a pack. One that cannot be kept is made again the next time.
func (s *store) keepBuilt(key string, pack []byte) error {
	sum := sha256.Sum256(pack)
	temp, info, err := s.write(io.MultiReader(strings.NewReader(hex.EncodeToString(sum[:])), bytes.NewReader(pack)))
	if err != nil {
		return err
	}
	if err := s.root.Rename(temp, buildsFolder+"/"+key); err != nil {
		return errors.Join(err, s.root.Remove(temp))
	}
	s.grow(info.Size())
	return nil
}

// making makes the packs of a tree that there are not.
type making struct {
	p     *Packages
	packs map[string][]byte // by key
	size  int
}

func (m *making) add(key string, pack []byte) error {
	m.packs[key] = pack
	if m.size += len(pack); m.size > maxModules {
		return fault.New(fault.Exhausted, "the packages' modules are larger than %d bytes", maxModules).WithHint("install fewer, or smaller ones")
	}
	return nil
}

// makeModules gives the files of a tree's packages, of which those are unpacked and made
// into packs that nobody has installed before.
func (p *Packages) makeModules(ctx context.Context, t *tree, out *Scripts) error {
	m := &making{p: p, packs: map[string][]byte{}}
	missing, err := m.look(t.all)
	if err == nil && len(missing) > 0 {
		err = m.build(ctx, missing)
	}
	if err != nil {
		return err
	}
	tree := map[string]string{}
	out.Files = map[string][]byte{}
	for _, n := range t.all {
		pack := m.packs[n.release.buildKey()]
		name := strings.ReplaceAll(n.release.Name, "/", "+") + "@" + n.release.Version + "-" + n.release.buildKey()[:16]
		folder := strings.TrimPrefix(n.folder(), "node_modules/")
		tree[folder] = name
		out.Files[path.Join(ModulesPacks, name)] = pack
		if err := assets(pack, func(inner string, data []byte) { out.Files[path.Join(Modules, folder, inner)] = data }); err != nil {
			return fmt.Errorf("reading the pack of %s: %w", n.label(), err)
		}
	}
	text, err := json.Marshal(map[string]any{"format": recordFormat, "packages": tree})
	out.Files[ModulesTree] = text
	return err
}

// look takes the packs that there are, and gives one node of each that there is not.
func (m *making) look(all []*node) (missing []*node, err error) {
	seen := map[string]bool{}
	for _, n := range all {
		key := n.release.buildKey()
		if seen[key] || m.packs[key] != nil {
			continue
		}
		seen[key] = true
		pack := m.p.store.built(key)
		if pack == nil {
			missing = append(missing, n)
		} else if err := m.add(key, pack); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// build unpacks packages and makes packs of them.
func (m *making) build(ctx context.Context, missing []*node) (err error) {
	if m.p.config.Helpers == nil {
		return fault.New(fault.Unsupported, "npm packages cannot be made into modules here").WithHint("they install in a session with isolation %q", isolationLinux)
	}
	leave, err := enterBuilds(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if missing, err = m.look(missing); err != nil || len(missing) == 0 { // somebody else was first
		return err
	}
	dir, end, err := m.p.store.workplace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacking{root: root}
	var batch []*node
	sum := int64(0)
	for k, n := range missing {
		size, err := u.unpack(ctx, n, strconv.Itoa(len(batch)))
		if err != nil {
			return err
		}
		batch, sum = append(batch, n), sum+size
		if sum < batchBytes && k < len(missing)-1 {
			continue
		}
		if err := m.batch(ctx, dir, batch); err != nil {
			return err
		}
		for k := range batch {
			if err := root.RemoveAll(strconv.Itoa(k)); err != nil {
				return err
			}
		}
		batch, sum = nil, 0
	}
	return nil
}

// batch makes packs of packages that lie in folders with numbers. Where one of them takes
// the whole process with it, each has its own, and so it is found.
func (m *making) batch(ctx context.Context, dir string, batch []*node) error {
	folders := make([]string, 0, len(batch))
	for k := range batch {
		folders = append(folders, strconv.Itoa(k))
	}
	packs, err := m.p.runBundler(ctx, dir, folders)
	if helper.Ended(err) && len(batch) > 1 {
		packs = nil
		for k, folder := range folders {
			one, err := m.p.runBundler(ctx, dir, []string{folder})
			if helper.Ended(err) {
				return errUnbuildable(batch[k].label(), err)
			}
			if err != nil {
				return err
			}
			packs = append(packs, one...)
		}
	} else if helper.Ended(err) {
		return errUnbuildable(batch[0].label(), err)
	} else if err != nil {
		return err
	}
	for k, n := range batch {
		key := n.release.buildKey()
		if err := m.p.store.keepBuilt(key, packs[k]); err != nil {
			m.p.log.Warn("a pack of an npm package is not kept", "package", n.label(), "err", err)
		}
		if err := m.add(key, packs[k]); err != nil {
			return err
		}
	}
	return nil
}

// headDigitsOfPack is how many digits a pack's header's length has.
const headDigitsOfPack = 16

// assets gives the files of a pack that are to lie beside it: those that are no modules,
// and each package.json, which packages read for their own version.
func assets(pack []byte, give func(name string, data []byte)) error {
	if len(pack) < headDigitsOfPack {
		return errors.New("it is too short")
	}
	size, err := strconv.ParseUint(string(pack[:headDigitsOfPack]), 16, 31)
	if err != nil || int(size) > len(pack)-headDigitsOfPack {
		return errors.New("it has no header")
	}
	var header packHeader
	rest := pack[headDigitsOfPack:]
	if err := json.Unmarshal(rest[:size], &header); err != nil {
		return err
	}
	rest = rest[size:]
	for _, name := range slices.Sorted(maps.Keys(header.Files)) {
		f := header.Files[name]
		if f.At < 0 || f.Size < 0 || f.At > int64(len(rest)) || f.Size > int64(len(rest))-f.At {
			return fmt.Errorf("%q lies outside of it", name)
		}
		if f.Kind == packAsset || name == "package.json" {
			give(name, rest[f.At:f.At+f.Size])
		}
	}
	return nil
}
