//go:build !race

package packages_test

const raceEnabled = false
