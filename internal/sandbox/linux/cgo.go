//go:build cgo && !race && linux && (amd64 || arm64)

package linux

// withCgo tells that C's runtime starts this binary: a box of such a one does not come
// to life, and is given up after bootTime.
const withCgo = true
