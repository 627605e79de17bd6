package app

import (
	"path/filepath"

	"paddock/internal/image"
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
