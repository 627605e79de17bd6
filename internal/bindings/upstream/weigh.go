package upstream

import (
	"context"
	"io"
	"runtime"

	"paddock/internal/membudget"
)

// lightBytes is how large an answer may be that is not counted: a thousand at once take
// as much as some large ones.
const lightBytes = 256 << 10

// scale reads a body, and has the call's scope (package membudget) hold what the largest
// message takes, read and decoded, before more than lightBytes of it are read.
type scale struct {
	ctx  context.Context
	body io.Reader
	read int
	most int64 // to be held
	held bool
}

// weighed gives a reader of a body with messages of at most limit bytes.
func weighed(ctx context.Context, body io.Reader, limit int) *scale {
	return &scale{ctx: ctx, body: body, most: 3 * int64(limit)}
}

// Read implements [io.Reader]; the error of what cannot be held is a problem.
func (s *scale) Read(p []byte) (int, error) {
	if s.read > lightBytes && !s.held {
		if err := membudget.Hold(s.ctx, s.most); err != nil {
			return 0, newProblem(TooLarge, true, err, "its answer is large, and there is no memory for it now")
		}
		s.held = true
	}
	if s.held {
		runtime.Gosched() // much is done with each part: others have waited
	}
	n, err := s.body.Read(p)
	s.read += n
	return n, err
}
