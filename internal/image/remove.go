package image

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// pruneTime is how long Prune waits for those who add images.
const pruneTime = 30 * time.Second

// Removed is what a Remove or a Prune took away.
type Removed struct {
	Images []string `json:"images"` // the ids of images that are gone
	Layers int      `json:"layers"`
	Bytes  int64    `json:"bytes"` // of the layers
}

// Remove takes a name away from its image, or by an ID all its names; an image
// without a name goes, with the layers that no other one has. One that is in use
// is a fault.Conflict, and stays. While others add images, what only they can tell
// whether they need stays for the next Prune.
func (s *Store) Remove(ctx context.Context, called string) (Removed, error) {
	id, err := s.find(called)
	if err != nil {
		return Removed{}, err
	}
	alone, err := s.take(ctx, contentLock, briefly, 0)
	if err == nil {
		defer alone.Close()
	} else if ctx.Err() != nil || fault.KindOf(err) != fault.Conflict {
		return Removed{}, err
	}
	out := Removed{Images: []string{}}
	err = s.rename(ctx, func(c *catalog) (bool, error) {
		names, err := c.toRemove(called, id)
		if err != nil {
			return false, err
		}
		for _, n := range names {
			delete(c.Names, n)
		}
		if len(c.of(id)) > 0 {
			return true, nil
		}
		return true, s.dropImage(id, alone != nil, &out)
	})
	if err == nil && alone != nil {
		err = s.dropLayers(&out)
	}
	return out, err
}

// toRemove are the full names that a removal is about.
func (c *catalog) toRemove(called, id string) ([]string, error) {
	var names []string
	if isDigest(called) {
		for n, at := range c.Names {
			if at.ID == id {
				names = append(names, n)
			}
		}
		return names, nil
	}
	ref, err := parse(called)
	if err != nil {
		return nil, err
	}
	if _, ok := c.Names[full(ref)]; ok {
		return []string{full(ref)}, nil
	}
	for n, at := range c.Names { // it was found by the digest that pins it
		if at.ID == id {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil, errNotHere(called) // it has gone since
	}
	return names, nil
}

// dropImage removes an image that has no name any more, or only finds out that it
// could be.
func (s *Store) dropImage(id string, really bool, out *Removed) error {
	unlock, err := s.unused(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return blob.Explain(err, "removing an image")
	}
	if unlock == nil {
		return fault.New(fault.Conflict, "the image %s is in use", shortOf(id)).WithHint("end the sandboxes that run in it first")
	}
	defer unlock()
	if !really {
		return nil
	}
	if err := s.discard(s.root(id)); err != nil {
		return err
	}
	out.Images = append(out.Images, id)
	return nil
}

// discard takes a folder away at once, and removes it then. What a crash leaves of
// it goes with the next sweep.
func (s *Store) discard(dir string) error {
	if err := os.MkdirAll(s.path(tempFolder), 0o700); err != nil {
		return blob.Explain(err, "removing an image")
	}
	gone := s.path(tempFolder, rand.Text())
	if err := os.Rename(dir, gone); err != nil {
		return blob.Explain(err, "removing an image")
	}
	return blob.Explain(os.RemoveAll(gone), "removing an image")
}

// dropLayers removes the layers that no image has. The caller has the content
// lock for itself.
func (s *Store) dropLayers(out *Removed) error {
	images, err := s.images()
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, img := range images {
		for _, l := range img.Layers {
			needed[hexOf(l)] = true
		}
	}
	entries, err := os.ReadDir(s.path(layersFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return blob.Explain(err, "listing the layers")
	}
	for _, e := range entries {
		if needed[e.Name()] {
			continue
		}
		dir := s.path(layersFolder, e.Name())
		var c contents
		_ = readJSON(filepath.Join(dir, layerFile), &c) // a damaged one counts nothing
		if err := s.discard(dir); err != nil {
			return err
		}
		out.Layers++
		out.Bytes += c.Bytes
	}
	return nil
}

// Prune removes the images without a name that nobody uses and keep (nil: none)
// does not keep, layers that no image has, and what was left of pulls that were
// cut short. It waits for those who add images just now, for half a minute.
func (s *Store) Prune(ctx context.Context, keep func(id string) bool) (Removed, error) {
	out := Removed{Images: []string{}}
	if _, err := os.Stat(s.config.Dir); errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	alone, err := s.take(ctx, contentLock, pruneTime, 0)
	if err != nil {
		return out, err
	}
	defer alone.Close()
	s.sweep()
	c, err := s.catalog()
	if err != nil {
		return out, err
	}
	images, err := s.images()
	if err != nil {
		return out, err
	}
	for id := range images {
		if len(c.of(id)) > 0 || keep != nil && keep(id) {
			continue
		}
		if err := s.dropImage(id, true, &out); err != nil && fault.KindOf(err) != fault.Conflict {
			return out, err
		}
	}
	return out, s.dropLayers(&out)
}
