//go:build linux && (amd64 || arm64)

// With this file functions of the package may have no body; see foldercompare.go.
