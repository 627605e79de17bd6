package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/session"
)

// lookEvery is how often paddock looks for what is new, where a person watches.
const lookEvery = 500 * time.Millisecond

func (cmd sessionCommand) printBackground(c *cobra.Command, principal, text string, follow bool) error {
	return cmd.ofSession(c, principal, text, func(ctx context.Context, m *session.Manager, o session.Owner, id session.ID) error {
		printed := &following{to: cmd.stdout, seen: map[string]int64{}}
		for {
			all, err := m.Printed(ctx, o, id)
			if err == nil {
				err = printed.print(all)
			}
			if err != nil || !follow {
				return err
			}
			working, err := m.Processes(ctx, o, id)
			if err != nil || len(working) == 0 {
				return err
			}
			select {
			case <-ctx.Done():
				return nil // the person has seen enough
			case <-time.After(lookEvery):
			}
		}
	})
}

// following prints of each interpreter what it has not printed yet.
type following struct {
	to   io.Writer
	seen map[string]int64 // by interpreter: the offset of what comes next
	last string           // whose text was printed last
}

func (f *following) print(all []session.Printed) error {
	for _, one := range all {
		end := one.From + int64(len(one.Data))
		fresh := min(max(end-f.seen[one.Runtime], 0), int64(len(one.Data)))
		f.seen[one.Runtime] = end
		if fresh == 0 {
			continue
		}
		text := lines(strings.ToValidUTF8(string(one.Data[int64(len(one.Data))-fresh:]), "\uFFFD"))
		if len(all) > 1 && f.last != one.Runtime {
			text = one.Runtime + ":\n" + text
		}
		f.last = one.Runtime
		if _, err := io.WriteString(f.to, text); err != nil {
			return err
		}
	}
	return nil
}
