//go:build (!cgo || race) && linux && (amd64 || arm64)

package linux

const withCgo = false
