package session

import (
	"testing"
	"time"
)

func TestAClockThatJumpsIsNotBelievedForAWhile(t *testing.T) {
	began := time.Date(2026, 10, 25, 1, 59, 0, 0, time.UTC)
	for name, jump := range map[string]time.Duration{"forward": 48 * time.Hour, "back": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			var c clock
			for passed := time.Duration(0); passed < 10*time.Minute; passed += time.Minute {
				if !c.believable(began.Add(passed), passed) {
					t.Fatalf("a steady clock is not believed after %v", passed)
				}
			}
			for passed := 10 * time.Minute; passed < 3*time.Hour; passed += 10 * time.Minute {
				want := passed >= 10*time.Minute+mistrust
				if got := c.believable(began.Add(passed+jump), passed); got != want {
					t.Errorf("after %v it is believed: %v", passed, got)
				}
			}
		})
	}
}

func TestAnotherTimeZoneIsTheSameTime(t *testing.T) {
	var c clock
	now := time.Date(2026, 10, 25, 0, 59, 0, 0, time.UTC)
	if !c.believable(now, 0) {
		t.Error("the same moment: got a jump, want none")
	}
	if !c.believable(now.Add(time.Minute).In(time.FixedZone("east", 7200)), time.Minute) {
		t.Error("summer time: got a jump, want none")
	}
}
