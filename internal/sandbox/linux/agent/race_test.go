//go:build race && linux

package agent_test

const raceEnabled = true
