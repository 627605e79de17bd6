package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/session"
)

// processCommands are about what works in the background of sessions.
func (cmd sessionCommand) processCommands() []*cobra.Command {
	var asJSON, follow bool
	var principal, signal string // of the command that runs
	ps := &cobra.Command{
		Use: "ps ID", Short: "List what works in the background of a session",
		Long: `Lists the processes that programs of a Linux session left running, also where
another paddock has the session open. In one that is asleep nothing works.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.listProcesses(c, principal, args[0], asJSON)
		},
	}
	logs := &cobra.Command{
		Use: "logs ID", Short: "Print what was printed in the background of a session",
		Long: `Prints the end of what the processes of a Linux session printed while no call was
going on: 256 KiB of each interpreter are kept. With -f it goes on until nothing
works in the session any more, or Ctrl-C.

Exit codes: 0 done, 1 failed or no such session, 2 wrong usage.`,
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.printBackground(c, principal, args[0], follow)
		},
	}
	kill := &cobra.Command{
		Use: "kill ID PID...", Short: "Stop what works in the background of a session",
		Long: `Sends a signal to processes that paddock session ps lists.

Exit codes: 0 all were signalled, 1 failed or no such process, 2 wrong usage.`,
		Args: count(2, -1, "the id of a session and the numbers of processes"),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.signalProcesses(c, principal, args[0], args[1:], signal)
		},
	}
	jsonFlag(ps, &asJSON)
	logs.Flags().BoolVarP(&follow, "follow", "f", false, "print what comes as well")
	kill.Flags().StringVar(&signal, "signal", "TERM", "the `NAME` of the signal: TERM, KILL, INT, HUP, USR1, USR2, STOP or CONT")
	all := []*cobra.Command{ps, logs, kill}
	for _, one := range all {
		principalFlag(one, &principal)
	}
	return all
}

// ofSession calls f with the session that text names, and its owner.
func (cmd sessionCommand) ofSession(c *cobra.Command, principal, text string, f func(context.Context, *session.Manager, session.Owner, session.ID) error) error {
	return cmd.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owners, err := cmd.owners(principal)
		if err != nil {
			return err
		}
		o, id, err := chosen(m, owners, text)
		if err != nil {
			return err
		}
		return f(ctx, m, o, id)
	})
}

// processJSON is a process as results show it.
type processJSON struct {
	PID         int       `json:"pid"`
	Runtime     string    `json:"runtime,omitempty"`
	Command     string    `json:"command"`
	StartedAt   time.Time `json:"started_at"`
	CPUMS       int64     `json:"cpu_ms"`
	MemoryBytes int64     `json:"memory_bytes"`
}

func processesOf(all []session.Process) []processJSON {
	list := []processJSON{}
	for _, one := range all {
		list = append(list, processJSON{
			PID: one.PID, Runtime: one.Runtime, Command: one.Command, StartedAt: one.Started, CPUMS: one.CPU.Milliseconds(), MemoryBytes: one.Memory,
		})
	}
	return list
}

func (cmd sessionCommand) listProcesses(c *cobra.Command, principal, text string, asJSON bool) error {
	return cmd.ofSession(c, principal, text, func(ctx context.Context, m *session.Manager, o session.Owner, id session.ID) error {
		all, err := m.Processes(ctx, o, id)
		if err != nil {
			return err
		}
		list := processesOf(all)
		rows := [][]string{{"PID", "STARTED", "CPU", "MEMORY", "OF", "COMMAND"}}
		for _, one := range all {
			rows = append(rows, []string{
				strconv.Itoa(one.PID), moment(one.Started), one.CPU.Round(10 * time.Millisecond).String(), amount(one.Memory), orDash(one.Runtime), plain(one.Command),
			})
		}
		return cmd.printList(asJSON, "processes", list, rows)
	})
}

// lines is what a guest printed, as a terminal may show it, with an end of line.
func lines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(plain(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

func (cmd sessionCommand) signalProcesses(c *cobra.Command, principal, text string, pids []string, signal string) error {
	var numbers []int
	for _, text := range pids {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return usage("%q is not a process", text).WithHint("paddock session ps %s lists their numbers", text)
		}
		numbers = append(numbers, n)
	}
	return cmd.ofSession(c, principal, text, func(ctx context.Context, m *session.Manager, o session.Owner, id session.ID) error {
		for _, n := range numbers {
			if err := m.Signal(ctx, o, id, n, strings.TrimPrefix(strings.ToUpper(signal), "SIG")); err != nil {
				return fmt.Errorf("signalling process %d: %w", n, err)
			}
		}
		return nil
	})
}
