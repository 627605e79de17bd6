//go:build race

package waiting

const raceEnabled = true
