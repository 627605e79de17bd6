package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// prepareCommand is paddock prepare.
type prepareCommand struct{ *cli }

func (cmd prepareCommand) command() *cobra.Command {
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
			if err := cmd.load(c); err != nil {
				return err
			}
			b, err := cmd.MakeBackends()
			if err != nil {
				return fmt.Errorf("making the backends: %w", err)
			}
			defer b.Close()
			began := time.Now()
			if err := cmd.prepare(c.Context(), b); err != nil {
				return err
			}
			for _, one := range b {
				one.Probe(c.Context()) // what it finds out is kept for those who come after
			}
			took := time.Since(began)
			if asJSON {
				return cmd.printJSON(map[string]any{"cache_dir": cmd.CacheDir, "seconds": took.Seconds()})
			}
			_, err = fmt.Fprintf(cmd.stdout, "the interpreters are prepared in %s (%.1f s)\n", cmd.CacheDir, took.Seconds())
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
