package image

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

const (
	// maxConfig bounds, in bytes, an image's configuration and its manifest.
	maxConfig = 4 << 20
	// maxLayers is twice what container tools make.
	maxLayers = 256
	// atOnce is how many layers are fetched and unpacked side by side.
	atOnce = 3
)

// add puts an image into the store and gives it a name. The caller holds the
// store (adding).
func (s *Store) add(ctx context.Context, called string, src *source, m *meter) (Image, error) {
	config, err := parseConfig(src.config)
	if err != nil {
		return Image{}, err
	}
	if len(src.layers) > maxLayers {
		return Image{}, errImage("it has more than %d layers", maxLayers)
	}
	sum := sha256.Sum256(src.config)
	img := Image{
		ID: digestPrefix + hex.EncodeToString(sum[:]), Digest: src.digest, Created: config.Created.Time, Added: time.Now(),
		Layers: []string{}, Settings: settingsOf(config),
	}
	for _, l := range src.layers {
		img.Layers = append(img.Layers, l.digest)
	}
	m.begin(src.layers)
	room := &room{maxBytes: s.config.Bytes, maxEntries: s.config.Entries}
	all, err := s.addLayers(ctx, src.layers, room, m)
	if err != nil {
		return Image{}, err
	}
	for _, c := range all {
		img.Bytes += c.Bytes
		img.Entries += c.Entries
		img.LeftOut.add(c.LeftOut)
	}
	if err := s.assemble(ctx, &img); err != nil {
		return Image{}, err
	}
	return img, s.name(ctx, called, &img)
}

// addLayers adds each layer once, some at a time, and gives what is in them. The
// first error ends the others.
func (s *Store) addLayers(ctx context.Context, layers []layer, room *room, m *meter) ([]contents, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		all  []contents
		seen = map[string]bool{}
		turn = make(chan struct{}, atOnce)
	)
	for _, l := range layers {
		if seen[l.digest] {
			m.skip(l.size)
			m.layerDone()
			continue
		}
		seen[l.digest] = true
		wg.Go(func() {
			select {
			case turn <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-turn }()
			c, err := s.addLayer(ctx, l, room, m)
			if err != nil {
				cancel(err)
				return
			}
			m.layerDone()
			mu.Lock()
			all = append(all, c)
			mu.Unlock()
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return all, nil
}

// assemble makes the image's tree, unless it is there.
func (s *Store) assemble(ctx context.Context, img *Image) error {
	there, err := s.image(img.ID)
	if err == nil {
		there.Digest, there.Names = img.Digest, nil
		*img = there
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := s.path(tempFolder, rand.Text())
	tree := filepath.Join(dir, treeFolder)
	defer os.RemoveAll(dir) // it is there after an error alone
	if err := os.MkdirAll(tree, 0o700); err != nil {
		return blob.Explain(err, "keeping an image")
	}
	if err := s.flatten(ctx, tree, img.Layers); err != nil {
		return err
	}
	kept := *img
	kept.Names = nil // they change
	if err := writeJSON(filepath.Join(dir, imageFile), kept); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, useFile), nil, 0o600); err != nil {
		return blob.Explain(err, "keeping an image")
	}
	if err := s.settle(dir, s.root(img.ID)); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // another process was faster
}

// name gives an image a name, which another one loses.
func (s *Store) name(ctx context.Context, called string, img *Image) error {
	err := s.rename(ctx, func(c *catalog) (bool, error) {
		c.Names[called] = named{ID: img.ID, Digest: img.Digest, At: time.Now()}
		return true, nil
	})
	if err != nil {
		return err
	}
	c, err := s.catalog()
	img.Names = c.of(img.ID)
	return err
}

// parseConfig reads an image's configuration, and refuses one that is for another
// machine.
func parseConfig(data []byte) (*v1.ConfigFile, error) {
	if len(data) > maxConfig {
		return nil, errImage("its configuration is too long")
	}
	c, err := v1.ParseConfigFile(bytes.NewReader(data))
	if err != nil {
		return nil, errImage("its configuration cannot be read").WithCause(err)
	}
	if c.OS != "" && c.OS != "linux" || c.Architecture != "" && c.Architecture != runtime.GOARCH {
		return nil, fault.New(fault.Unsupported, "the image is for %.50s/%.50s, and this machine is linux/%s", c.OS, c.Architecture, runtime.GOARCH).
			WithHint("use one that is made for this machine too")
	}
	return c, nil
}

// layerDigests are the digests of a configuration's layers, the lowest first.
func layerDigests(c *v1.ConfigFile) ([]string, error) {
	var all []string
	for _, d := range c.RootFS.DiffIDs {
		if !isDigest(d.String()) {
			return nil, errImage("it names a layer %.100q", d.String())
		}
		all = append(all, d.String())
	}
	if len(all) == 0 {
		return nil, errImage("it has no layers, so it is not an image of a system")
	}
	return all, nil
}

func settingsOf(c *v1.ConfigFile) Settings {
	return Settings{
		Env: c.Config.Env, User: c.Config.User, WorkingDir: c.Config.WorkingDir,
		Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, Labels: c.Config.Labels,
	}
}
