package app

import (
	"fmt"
	"path/filepath"

	"paddock/internal/image"
	"paddock/internal/sandbox/linux"
)

// Images opens the store of images.
func (env *Env) Images() (*image.Store, error) {
	c := env.Config
	return image.Open(image.Config{
		Dir: filepath.Join(env.StateDir, "images"), Credentials: c.Registries.Credentials, Insecure: c.Registries.Insecure,
		Bytes: c.Sandbox.ImageBytes, Entries: c.Sandbox.ImageFiles,
	})
}

// ImageNames are what images are called in the configuration.
func (env *Env) ImageNames() image.Names {
	return image.Names{Default: env.Config.Sandbox.Image, Table: env.Config.Images}
}

// NeededImages are what sessions, asleep or not, call their images, names and ids, and
// those that saved machines go on in: an image that has lost its name is found by its
// id alone.
func (a *App) NeededImages() (map[string]bool, error) {
	owners, err := a.Sessions.Owners()
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{}
	for _, o := range owners {
		infos, err := a.Sessions.List(o)
		if err != nil {
			return nil, fmt.Errorf("listing the sessions: %w", err)
		}
		for _, i := range infos {
			called := "" // the default image
			if m := i.Settings.Machine; m != nil {
				called = m.Image
			}
			needed[called] = true
		}
	}
	err = a.Sessions.SavedMachines(func(state []byte) { needed[linux.SavedImage(state)] = true })
	return needed, err
}
