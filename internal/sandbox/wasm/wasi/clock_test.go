package wasi

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// clockAsk and fdAsk are subscriptions.
func clockAsk(user uint64, clock uint32, timeout uint64, absolute bool) []byte {
	b := make([]byte, subscriptionSize)
	binary.LittleEndian.PutUint64(b, user)
	b[8] = eventClock
	binary.LittleEndian.PutUint32(b[16:], clock)
	binary.LittleEndian.PutUint64(b[24:], timeout)
	if absolute {
		b[40] = 1
	}
	return b
}

func fdAsk(user uint64, kind uint8, fd int) []byte {
	b := make([]byte, subscriptionSize)
	binary.LittleEndian.PutUint64(b, user)
	b[8] = kind
	binary.LittleEndian.PutUint32(b[16:], uint32(fd))
	return b
}

type polled struct {
	user  uint64
	e     errno
	kind  uint8
	bytes uint64
}

func (g *guest) poll(asked ...[]byte) ([]polled, errno) {
	g.t.Helper()
	for i, b := range asked {
		copy(g.memory[buffer+i*subscriptionSize:], b)
	}
	const events = buffer + 64<<10
	if e := g.call("poll_oneoff", buffer, events, len(asked), out); e != success {
		return nil, e
	}
	found := make([]polled, g.u32at(out))
	for i := range found {
		b := g.memory[events+i*eventSize:]
		found[i] = polled{binary.LittleEndian.Uint64(b), errno(binary.LittleEndian.Uint16(b[8:])), b[10], binary.LittleEndian.Uint64(b[16:])}
	}
	return found, success
}

func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuest(t, Config{Monotonic: 5000})
		for clock, want := range []int64{time.Now().UnixNano(), 5000, 0, 0} {
			g.ok(g.call("clock_time_get", clock, 0, out))
			if got := g.u64at(out); got != uint64(want) {
				t.Errorf("clock %d shows %d, not %d", clock, got, want)
			}
			g.ok(g.call("clock_res_get", clock, out))
			if g.u64at(out) != 1 {
				t.Errorf("clock %d: resolution %d", clock, g.u64at(out))
			}
		}
		for _, clock := range []int{clocks, math.MaxUint32} {
			g.want(g.call("clock_time_get", clock, 0, out), einval)
			g.want(g.call("clock_res_get", clock, out), einval)
		}
		g = newGuest(t, Config{CPU: func() time.Duration { return 7 }})
		g.ok(g.call("clock_time_get", clockProcess, 0, out))
		if g.u64at(out) != 7 {
			t.Errorf("the processor time is %d", g.u64at(out))
		}
		still := time.Unix(5, 6)
		g = newGuest(t, Config{Now: func() time.Time { return still }, Monotonic: 9})
		time.Sleep(time.Hour)
		for clock, want := range []int64{still.UnixNano(), 9, 0, 0} {
			g.ok(g.call("clock_time_get", clock, 0, out))
			if got := g.u64at(out); got != uint64(want) {
				t.Errorf("of a time that stands still clock %d shows %d, not %d", clock, got, want)
			}
		}
	})
}

func TestPollWaitsForTheFirstClock(t *testing.T) {
	const second = uint64(time.Second)
	soon := uint64(time.Date(2000, 1, 1, 0, 0, 3, 0, time.UTC).UnixNano()) // 3 s after a bubble's beginning
	for _, x := range []struct {
		name  string
		asked [][]byte
		wait  time.Duration
		users []uint64
	}{
		{"one", [][]byte{clockAsk(1, clockMonotonic, 5*second, false)}, 5 * time.Second, []uint64{1}},
		{"the first of two", [][]byte{clockAsk(1, clockReal, 5*second, false), clockAsk(2, clockMonotonic, 2*second, false)}, 2 * time.Second, []uint64{2}},
		{"two at once", [][]byte{clockAsk(1, clockReal, second, false), clockAsk(2, clockMonotonic, second, false)}, time.Second, []uint64{1, 2}},
		{"an absolute real time", [][]byte{clockAsk(1, clockReal, soon, true)}, 3 * time.Second, []uint64{1}},
		{"an absolute monotonic time", [][]byte{clockAsk(1, clockMonotonic, 9*second, true)}, 4 * time.Second, []uint64{1}},
		{"times that are over", [][]byte{clockAsk(1, clockMonotonic, 1, true), clockAsk(2, clockReal, 0, false)}, 0, []uint64{1, 2}},
		{"not for a clock when a file is asked about", [][]byte{clockAsk(1, clockReal, second, false), fdAsk(2, eventWrite, 1)}, 0, []uint64{2}},
		{"a time that is over beside a file", [][]byte{clockAsk(1, clockMonotonic, 1, true), fdAsk(2, eventRead, 0)}, 0, []uint64{1, 2}},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuest(t, Config{Monotonic: int64(5 * time.Second)})
				before := time.Now()
				events, e := g.poll(x.asked...)
				g.ok(e)
				if waited := time.Since(before); waited != x.wait {
					t.Errorf("it waited for %v", waited)
				}
				var users []uint64
				for _, ev := range events {
					users = append(users, ev.user)
					if ev.e != success {
						t.Errorf("event %+v", ev)
					}
				}
				if len(users) != len(x.users) || users[0] != x.users[0] || users[len(users)-1] != x.users[len(x.users)-1] {
					t.Errorf("events of %v, not %v", users, x.users)
				}
			})
		})
	}
}

func TestPollAboutDescriptors(t *testing.T) {
	g := newWorld(t, noSpaceLimit).guest
	g.create("/workspace/f", "content")
	fd := g.mustOpen("/workspace/f", 0, both)
	_, e := g.read(fd, 2)
	g.ok(e)
	events, e := g.poll(fdAsk(1, eventRead, fd), fdAsk(2, eventWrite, fd), fdAsk(3, eventRead, 99), fdAsk(4, eventRead, 0), clockAsk(5, 99, 0, false))
	g.ok(e)
	want := []polled{{1, success, eventRead, 5}, {2, success, eventWrite, 1}, {3, ebadf, eventRead, 0}, {4, success, eventRead, 1}, {5, einval, eventClock, 0}}
	if len(events) != len(want) {
		t.Fatalf("%+v", events)
	}
	for i := range want {
		if events[i] != want[i] {
			t.Errorf("%+v, not %+v", events[i], want[i])
		}
	}
}

func TestPollRefuses(t *testing.T) {
	g := newGuest(t, Config{})
	for _, n := range []int{0, maxEvents + 1, 1 << 28, math.MaxUint32} {
		g.want(g.call("poll_oneoff", 0, 0, n, out), einval)
	}
	if _, e := g.poll(fdAsk(1, 7, 0)); e != einval {
		t.Errorf("an unknown kind: errno %d", e)
	}
}

func TestWaitingIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupted := make(chan struct{})
		g := newGuest(t, Config{Interrupted: func() <-chan struct{} { return interrupted }})
		time.AfterFunc(time.Second, func() { close(interrupted) })
		before := time.Now()
		if _, e := g.poll(clockAsk(1, clockMonotonic, math.MaxUint64, false)); e != success {
			t.Errorf("errno %d", e)
		}
		if waited := time.Since(before); waited != time.Second {
			t.Errorf("it waited for %v", waited)
		}
		if _, e := g.poll(clockAsk(1, clockMonotonic, 1<<40, false)); e != success || time.Since(before) != time.Second {
			t.Errorf("waiting again: errno %d", e)
		}
		if _, e := g.poll(clockAsk(1, clockMonotonic, 0, false)); e != success {
			t.Errorf("without waiting: errno %d", e)
		}
		g.memory = make([]byte, 8<<20)
		g.want(g.call("random_get", 0, 8<<20), eintr)
		g.ok(g.call("random_get", 0, 100))
	})
}

func TestRandomBytes(t *testing.T) {
	g := newGuest(t, Config{Random: strings.NewReader("0123456789")})
	g.ok(g.call("random_get", buffer, 4))
	if got := string(g.memory[buffer : buffer+5]); got != "0123\x00" {
		t.Errorf("%q", got)
	}
	g.ok(g.call("random_get", buffer, 0))
	g.want(g.call("random_get", buffer, 100), eio)
	g = newGuest(t, Config{})
	g.memory = make([]byte, 5<<20)
	g.ok(g.call("random_get", 0, len(g.memory)))
	if tail := g.memory[len(g.memory)-64:]; strings.Count(string(tail), "\x00") > 32 {
		t.Error("the last bytes are not random")
	}
}
