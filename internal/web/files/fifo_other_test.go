//go:build !unix

package files

func makeFIFO(string) bool { return false }
