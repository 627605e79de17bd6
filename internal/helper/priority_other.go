//go:build !unix

package helper

func stepBack() {}
