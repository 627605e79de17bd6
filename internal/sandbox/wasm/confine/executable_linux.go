//go:build !native

package confine

// neverExecutable are the bits of its protection that memory cannot get.
const neverExecutable = 0
