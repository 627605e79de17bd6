//go:build native && nofsgsbase

package native

// As on a processor without the instructions of FSGSBASE, for the tests.

// #cgo CFLAGS: -DPD_NO_FSGSBASE
import "C"
