package cli

import (
	"context"
	"fmt"
	"time"

	"paddock/internal/app"
)

// quietTime is how long a person waits without being told why.
const quietTime = 300 * time.Millisecond

// prepare makes what the backends need on this machine. The first time that
// takes seconds, and a terminal is told so.
func (cl *cli) prepare(ctx context.Context, all app.Backends) error {
	if terminal(cl.stderr) && all.NeedPreparing() {
		notice := time.AfterFunc(quietTime, func() {
			fmt.Fprintln(cl.stderr, "paddock: compiling the interpreters for this machine, once; it takes some seconds")
		})
		defer notice.Stop()
	}
	return all.Prepare(ctx)
}
