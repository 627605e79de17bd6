//go:build !unix

package workspace

const nonblock = 0 // there are no FIFOs in folders here
