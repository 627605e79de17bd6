package image

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"paddock/internal/blob"
)

// Rootfs is an image as a box uses it.
type Rootfs struct {
	// Dir is the folder with the root file system. Its files are shared with other
	// images, so nobody may write in it, and as links in it lead anywhere, nobody
	// may follow them from outside.
	Dir string
	// ID says which image it is: the same ID is the same files, and Rootfs takes it
	// instead of a name.
	ID string
	// Settings are what the image says of how it wants to be run.
	Settings Settings
}

// Rootfs finds the image that is called so (a reference, or an ID) and holds it:
// until release is called nobody removes it, in any process. release works twice.
// It is a fault.NotFound where the image is not there; nothing is pulled. Names of
// the configuration are resolved before, by [Names.Resolve].
func (s *Store) Rootfs(ctx context.Context, called string) (r Rootfs, release func(), err error) {
	for range 3 { // a name may move to another image just now, and the first one go
		id, err := s.find(called)
		if err != nil {
			return r, nil, err
		}
		lock, err := s.use(ctx, id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return r, nil, blob.Explain(err, "using an image")
		}
		img, err := s.image(id)
		if err != nil {
			_ = lock.Close()
			return r, nil, blob.Explain(err, "using an image")
		}
		return Rootfs{Dir: filepath.Join(s.root(id), treeFolder), ID: id, Settings: img.Settings}, func() { _ = lock.Close() }, nil
	}
	return r, nil, errNotHere(called)
}

// List gives all images that are there, sorted by their first name; those without
// one come last.
func (s *Store) List() ([]Image, error) {
	images, err := s.images()
	if err != nil {
		return nil, err
	}
	c, err := s.catalog()
	if err != nil {
		return nil, err
	}
	var all []Image
	for id, img := range images {
		img.Names = c.of(id)
		for _, n := range c.Names {
			if n.ID == id && n.Digest != "" {
				img.Digest = n.Digest
			}
		}
		all = append(all, img)
	}
	slices.SortFunc(all, func(a, b Image) int {
		if x, y := len(a.Names) == 0, len(b.Names) == 0; x != y {
			return map[bool]int{true: 1, false: -1}[x]
		}
		return strings.Compare(strings.Join(a.Names, "\n")+a.ID, strings.Join(b.Names, "\n")+b.ID)
	})
	return all, nil
}

// of are the names of an image, as people say them.
func (c catalog) of(id string) []string {
	names := []string{}
	for name, n := range c.Names {
		if n.ID == id {
			names = append(names, familiar(name))
		}
	}
	slices.Sort(names)
	return names
}
