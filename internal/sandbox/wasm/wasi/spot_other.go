//go:build !linux

package wasi

import "os"

// content is an open file of the host.
type content = os.File

// top is the folder itself, where the host has a way to use it.
type top struct{}

func (*top) close() {}

// spot is a name in a Dir, on which several things are done.
type spot struct{ rooted }

func (d *Dir) at(name string) spot { return spot{rooted{d.root, name}} }

// beside is another name in the same Dir.
func (s spot) beside(name string) spot { return spot{rooted{s.root, name}} }

func (spot) close() {}

func (s spot) rename(to spot) error { return s.rooted.rename(to.rooted) }
