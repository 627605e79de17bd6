//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"context"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/state"
)

// hostClock is the clock that the host's kernel takes the times of files from: it moves
// some hundred times a second. What the sentry notes as a file's time, and what the host
// does a moment later, is nearly always the same then, and never in another order.
type hostClock struct{ ktime.Clock }

// Now implements ktime.Clock.
func (c *hostClock) Now() ktime.Time {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t) != nil {
		return c.Clock.Now()
	}
	return ktime.FromNanoseconds(t.Nano())
}

func init() { state.Register((*hostClock)(nil)) }

// StateTypeName implements state.Type.
func (c *hostClock) StateTypeName() string { return "paddock.hostClock" }

// StateFields implements state.Type.
func (c *hostClock) StateFields() []string { return []string{"Clock"} }

// StateSave implements state.SaverLoader.
func (c *hostClock) StateSave(to state.Sink) { to.Save(0, &c.Clock) }

// StateLoad implements state.SaverLoader.
func (c *hostClock) StateLoad(_ context.Context, from state.Source) { from.Load(0, &c.Clock) }
