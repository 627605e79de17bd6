package cli

import (
	"testing"
	"time"

	"paddock/internal/session"
)

func TestTheShareOfAProcessorIsThatSinceTheReadingBefore(t *testing.T) {
	booted := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	m := loadMeter{before: map[loadKey]loadReading{}}
	one := loadKey{session.Local, "s-1"}
	if got := m.percent(one, session.Load{Open: true}, booted); got != nil {
		t.Errorf("without a machine: got %v, want none", *got)
	}
	for _, step := range []struct {
		name   string
		booted time.Time
		cpu    time.Duration
		now    time.Time
		want   float64
	}{
		{"at first it is since the boot", booted, time.Second, booted.Add(4 * time.Second), 25},
		{"then since the reading before", booted, 5 * time.Second, booted.Add(6 * time.Second), 200},
		{"a clock that stands gives zero", booted, 6 * time.Second, booted.Add(6 * time.Second), 0},
		{"a new machine begins again", booted.Add(8 * time.Second), time.Second, booted.Add(10 * time.Second), 50},
	} {
		got := m.percent(one, session.Load{Open: true, Booted: step.booted, CPU: step.cpu}, step.now)
		if got == nil || *got != step.want {
			t.Errorf("%s: got %v, want %v", step.name, got, step.want)
		}
	}
}
