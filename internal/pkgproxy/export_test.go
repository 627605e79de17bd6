package pkgproxy

import (
	"context"
	"errors"
	"slices"
)

// TreeOf lists where npm's packages would lie, as a lock file does.
func (p *Packages) TreeOf(ctx context.Context, names []string) (all []string, err error) {
	var wishes []dependency
	for _, name := range names {
		wishes = append(wishes, dependency{name: name})
	}
	t, err := p.resolve(ctx, wishes, nil)
	if err != nil {
		return nil, err
	}
	for _, n := range t.all {
		all = append(all, n.folder()+"@"+n.release.Version)
	}
	slices.Sort(all)
	return all, nil
}

// Workplace makes a folder in a cache, as an installation does; end removes it.
func Workplace(dir string) (place string, end func() error, err error) {
	s, err := openStore(dir, 1<<20, 1<<20)
	if err != nil {
		return "", nil, err
	}
	place, remove, err := s.workplace()
	if err != nil {
		return "", nil, errors.Join(err, s.close())
	}
	return place, func() error { return errors.Join(remove(), s.close()) }, nil
}
