//go:build race

package packages_test

const raceEnabled = true
