package cli

import (
	"context"
	"fmt"
	"paddock/internal/app"
	"time"

	"github.com/spf13/cobra"
)

func (p *program) prepareCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "prepare",
		Short: "Compile the interpreters for this machine, so that no program waits for it",
		Long: `Compiles the interpreters for this machine, starts each once and keeps a picture
of its memory in the cache folder. The first program does the same; here it is
done ahead. When it has been done already this takes no time.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.load(c); err != nil {
				return err
			}
			b, err := p.MakeBackends()
			if err != nil {
				return fmt.Errorf("making the backends: %w", err)
			}
			defer b.Close()
			began := time.Now()
			if err := p.prepare(c.Context(), b); err != nil {
				return err
			}
			for _, one := range b {
				one.Probe(c.Context()) // what it finds out is kept for those who come after
			}
			took := time.Since(began)
			if asJSON {
				return p.printJSON(map[string]any{"cache_dir": p.CacheDir, "seconds": took.Seconds()})
			}
			_, err = fmt.Fprintf(p.stdout, "the interpreters are prepared in %s (%.1f s)\n", p.CacheDir, took.Seconds())
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// quietTime is how long a person waits without being told why.
const quietTime = 300 * time.Millisecond

// prepare makes what the backends need on this machine. The first time that
// takes seconds, and a terminal is told so.
func (p *program) prepare(ctx context.Context, all app.Backends) error {
	if terminal(p.stderr) && all.NeedPreparing() {
		notice := time.AfterFunc(quietTime, func() {
			fmt.Fprintln(p.stderr, "paddock: compiling the interpreters for this machine, once; it takes some seconds")
		})
		defer notice.Stop()
	}
	return all.Prepare(ctx)
}
