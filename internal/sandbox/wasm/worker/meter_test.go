package worker

import (
	"math/rand/v2"
	"testing"
)

func TestFuelIsCountedToTheLast(t *testing.T) {
	for name, limit := range map[string]uint64{
		"less than a portion": 1000, "one": 1, "exactly a portion": quantum, "one more than a portion": quantum + 1,
		"one less": quantum - 1, "many portions": 1_000_000, "none": 0,
	} {
		t.Run(name, func(t *testing.T) {
			m := meter{limit: limit}
			if m.empty() {
				t.Fatal("it is empty before anything has run")
			}
			for range 100 {
				left := m.portion()
				if left < 0 || left >= quantum {
					t.Fatalf("a portion of %d", left)
				}
				// The guest ticks when its counter falls below zero.
				before := m.used
				m.spend(-1)
				if m.used-before != uint64(left)+1 {
					t.Fatalf("%d were given and %d counted", left+1, m.used-before)
				}
				if m.empty() {
					break
				}
			}
			if limit == 0 && (m.empty() || m.used != 100*quantum) {
				t.Errorf("without a limit it is empty after %d", m.used)
			} else if limit > 0 && m.used != limit {
				t.Errorf("it is empty after %d of %d", m.used, limit)
			}
		})
	}
}

func TestAProgramThatIsOutOfFuelMayCleanUpInWholePortions(t *testing.T) {
	m := meter{limit: 10}
	m.portion()
	m.spend(-1)
	if left := m.portion(); left != quantum-1 || !m.empty() {
		t.Errorf("it gets %d", left)
	}
}

func TestAPortionThatIsNotUsedUpIsNotCounted(t *testing.T) {
	m := meter{limit: 100}
	m.portion()
	m.spend(m.portion())
	if m.used != 0 {
		t.Errorf("%d were counted of a portion that was not touched", m.used)
	}
	m.spend(-1) // the end after a tick, with nothing given in between
	if m.used != 0 {
		t.Errorf("%d were counted of no portion at all", m.used)
	}
	var done uint64
	for !m.empty() {
		left := m.portion()
		used := rand.Int32N(left + 2) // 0 … the whole portion
		m.spend(left - used)
		if done += uint64(used); m.used != done {
			t.Fatalf("%d were done and %d counted", done, m.used)
		}
	}
	if done != 100 {
		t.Errorf("it is empty after %d", done)
	}
}
