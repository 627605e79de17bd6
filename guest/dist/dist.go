// Package dist is the folder of the guests that make has built. The command imports it, so
// that Go does not build one without guests, and says why.
package dist

import _ "embed"

// Python describes Python's guest. The pattern is the name python.json, with a sentence in
// its first letter's place: where there is no such file, it is what Go's error shows.
//
//go:embed "[the guests are not built: run make in paddock's source folder]ython.json"
var Python string
