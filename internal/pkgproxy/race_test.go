//go:build race

package pkgproxy_test

const raceEnabled = true
