//go:build !linux && !darwin

package workspace

func bootID() string { return "" }
