package session

import "time"

const (
	// mostDrift is by how much the wall clock may go otherwise than time does.
	mostDrift = time.Minute
	// mistrust is how long a clock that jumped is not believed, as somebody may set
	// it right: nothing expires on disk meanwhile.
	mistrust = time.Hour
)

// clock reports whether the wall clock can be believed: what expires on disk does
// so by it, and is gone then. What is open here expires by the time that passes.
type clock struct {
	wall   time.Time     // when it was asked last
	passed time.Duration // by then
	until  time.Duration // it is not believed until so much has passed
}

// believable is asked again and again: what time it is, and how much has passed
// since this process began.
func (c *clock) believable(wall time.Time, passed time.Duration) bool {
	wall = wall.Round(0) // without the reading of the monotonic clock
	if drift := wall.Sub(c.wall) - (passed - c.passed); !c.wall.IsZero() && drift.Abs() > mostDrift {
		c.until = passed + mistrust
	}
	c.wall, c.passed = wall, passed
	return passed >= c.until
}
