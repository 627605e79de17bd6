//go:build race && linux && (amd64 || arm64)

package linux

const raceEnabled = true
