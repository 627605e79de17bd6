package image

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"paddock/internal/fault"
)

// Host is the name of the machine's own userland, which is not an image and in no
// store.
const Host = "host"

// Names are what images are called in the configuration.
type Names struct {
	// Default is the image of who names none; empty: Host.
	Default string
	// Table has references, or Host, by names.
	Table map[string]string
}

// standing are names that microsandbox has for its images; where the table does
// not have them they are the default image.
var standing = []string{"microsandbox/python", "microsandbox/node"}

// Resolve gives the reference that a name stands for: one of the table, the
// default, or the name itself. A reference of the table is not looked up again.
func (n Names) Resolve(called string) string {
	if ref, ok := n.Table[called]; ok {
		return ref
	}
	if called != "" && !slices.Contains(standing, called) {
		return called
	}
	if n.Default == "" {
		return Host
	}
	if ref, ok := n.Table[n.Default]; ok {
		return ref
	}
	return n.Default
}

const digestPrefix = "sha256:"

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// hostPattern is what a registry may be: a name or an address, with a port or not.
var hostPattern = regexp.MustCompile(`^(?:[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?$`)

func isDigest(s string) bool       { return digestPattern.MatchString(s) }
func hexOf(digest string) string   { return strings.TrimPrefix(digest, digestPrefix) }
func shortOf(digest string) string { return hexOf(digest)[:12] }

// CheckReference says what is wrong with what an image is to be called.
func CheckReference(called string) error {
	_, err := parse(called)
	return err
}

// parse reads a reference as container tools do: without a registry it is in
// the one that all of them have as their default, without a tag it is latest.
func parse(called string, opts ...name.Option) (name.Reference, error) {
	if called == Host {
		return nil, fault.New(fault.Invalid, "%q is this machine's own userland, and no image", Host).WithHint("it needs no pull; give images other names")
	}
	if isDigest(called) {
		return nil, fault.New(fault.Invalid, "%q says which image, and not where it is", called).WithHint("give the name too: NAME@%s", called)
	}
	ref, err := name.ParseReference(called, opts...)
	if err == nil && !hostPattern.MatchString(ref.Context().RegistryStr()) {
		err = errors.New("that is not a host")
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "%.200q cannot be the name of an image", called).
			WithHint("it looks like python:3.12, registry.example.com/team/tools:1 or NAME@sha256:…").WithCause(err)
	}
	return ref, nil
}

// full is a reference's whole name, with registry and tag, which is what the
// store knows images by; familiar is what people call it.
func full(ref name.Reference) string { return ref.Name() }

func familiar(full string) string {
	short, ok := strings.CutPrefix(full, name.DefaultRegistry+"/")
	if !ok {
		return full
	}
	return strings.TrimPrefix(short, "library/")
}

// named is an image under one name.
type named struct {
	ID     string    `json:"id"`
	Digest string    `json:"digest,omitempty"` // what pins it in the registry
	At     time.Time `json:"at"`
}

// catalog is the file of names: by full name. It is only ever replaced whole, so
// who reads it needs no lock.
type catalog struct {
	Names map[string]named `json:"names"`
}

func (s *Store) catalog() (catalog, error) {
	c := catalog{Names: map[string]named{}}
	err := readJSON(s.path(namesFile), &c)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return c, err
}

// rename changes the catalog; change tells whether it did.
func (s *Store) rename(ctx context.Context, change func(*catalog) (bool, error)) error {
	lock, err := s.take(ctx, namesLock, lockTimeout, 0)
	if err != nil {
		return err
	}
	defer lock.Close()
	c, err := s.catalog()
	if err != nil {
		return err
	}
	changed, err := change(&c)
	if err != nil || !changed {
		return err
	}
	return writeJSON(s.path(namesFile), c)
}

// find gives the ID of the image that is meant: by its own name, by the digest
// that it was pulled by, or by its ID.
func (s *Store) find(called string) (string, error) {
	if isDigest(called) {
		if _, err := s.image(called); err == nil {
			return called, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		return "", fault.New(fault.NotFound, "there is no image %s here", called).WithHint("paddock image ls --json lists the ids of those that there are")
	}
	ref, err := parse(called)
	if err != nil {
		return "", err
	}
	c, err := s.catalog()
	if err != nil {
		return "", err
	}
	if n, ok := c.Names[full(ref)]; ok {
		return n.ID, nil
	}
	if pinned, ok := ref.(name.Digest); ok {
		for _, known := range slices.Sorted(maps.Keys(c.Names)) {
			other, err := name.ParseReference(known)
			if err == nil && other.Context().Name() == ref.Context().Name() && c.Names[known].Digest == pinned.DigestStr() {
				return c.Names[known].ID, nil
			}
		}
	}
	return "", errNotHere(called)
}

func errNotHere(called string) error {
	return fault.New(fault.NotFound, "there is no image %q here", called).WithHint("paddock image pull %s brings it; paddock image ls lists those that there are", called)
}
