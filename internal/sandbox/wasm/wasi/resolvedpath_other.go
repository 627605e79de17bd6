//go:build !linux

package wasi

import "os"

// content is an open file of the host.
type content = os.File

// rootDir is the folder itself, where the host has a way to use it.
type rootDir struct{}

func (*rootDir) close() {}

// resolvedPath is a name in a Dir, on which several things are done.
type resolvedPath struct{ rootPath }

func (d *Dir) at(name string) resolvedPath { return resolvedPath{rootPath{d.root, name}} }

// sibling is another name in the same Dir.
func (s resolvedPath) sibling(name string) resolvedPath { return resolvedPath{rootPath{s.root, name}} }

func (resolvedPath) close() {}

func (s resolvedPath) rename(to resolvedPath) error { return s.rootPath.rename(to.rootPath) }
