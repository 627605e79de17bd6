package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/fault"
	"paddock/internal/session"
)

// topCommand is paddock top.
type topCommand struct{ *cli }

// topEvery is how often the table is drawn again.
const topEvery = 2 * time.Second

type topFlags struct {
	principal       string
	all, once, json bool
}

func (cmd topCommand) command() *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use: "top", Short: "Show what the open sessions take, live",
		Long: `Shows the sessions that a paddock process of this state folder has open: the program
that runs, how many wait, processor, memory, and what was sent to the network and
received. At a terminal the table is drawn again every two seconds until Ctrl-C;
into a pipe, with --once and with --json it is printed once.

CPU is a percentage of one processor: since the table was drawn before, and in the first
one since the machine was booted. It is measured for Linux machines; the interpreters of
WebAssembly sessions share their process, and have a dash. Their memory is what counts
towards the limits.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.top(c, f) },
	}
	principalFlag(c, &f.principal)
	c.Flags().BoolVar(&f.all, "all", false, "those of all principals")
	c.Flags().BoolVar(&f.once, "once", false, "print one table and end")
	jsonFlag(c, &f.json)
	return c
}

func (cmd topCommand) top(c *cobra.Command, f topFlags) error {
	if f.all && f.principal != "" {
		return usage("--all and --principal are two things").WithHint("give one of them")
	}
	return cmd.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		meter := loadMeter{m: m, before: map[loadKey]loadReading{}}
		live := person(cmd.stdout) && !f.once && !f.json
		for {
			owners, err := cmd.owners(f.principal)
			if f.all {
				owners, err = m.Owners()
			}
			if err != nil {
				return err
			}
			list, err := meter.read(ctx, owners)
			if ctx.Err() != nil && live {
				return nil // the person has seen enough
			}
			if err != nil {
				return err
			}
			rows := loadRows(list, f.all || f.principal != "")
			if !live {
				return cmd.printList(f.json, "sessions", list, rows)
			}
			fmt.Fprint(cmd.stdout, clearScreen)
			if err := cmd.printTable(rows); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(topEvery):
			}
		}
	})
}

// clearScreen moves to the first line and removes what is shown.
const clearScreen = "\x1b[H\x1b[2J"

// loadJSON is what a session takes as results show it.
type loadJSON struct {
	ID        session.ID    `json:"session_id"`
	Principal session.Owner `json:"principal"`
	Name      string        `json:"name,omitempty"`
	Isolation string        `json:"isolation"`
	State     session.State `json:"state"`
	Process   int           `json:"process,omitempty"`
	Running   int           `json:"running"`
	Queued    int           `json:"queued"`
	// CPUPercent is of one processor; missing: it is not measured.
	CPUPercent    *float64 `json:"cpu_percent,omitempty"`
	MemoryBytes   int64    `json:"memory_bytes"`
	SentBytes     int64    `json:"sent_bytes"`
	ReceivedBytes int64    `json:"received_bytes"`
	// Unknown says that the process that has it open does not answer.
	Unknown bool `json:"unknown,omitempty"`
}

// loadMeter measures the sessions that are open, one time after the other.
type loadMeter struct {
	m      *session.Manager
	before map[loadKey]loadReading
}

type loadKey struct {
	owner session.Owner
	id    session.ID
}

// loadReading is what a machine had used when it was read.
type loadReading struct {
	at, booted time.Time
	cpu        time.Duration
}

func (l *loadMeter) read(ctx context.Context, owners []session.Owner) ([]loadJSON, error) {
	list := []loadJSON{}
	for _, o := range owners {
		infos, err := l.m.List(o)
		if err != nil {
			return nil, fmt.Errorf("listing the sessions: %w", err)
		}
		for _, i := range infos {
			if i.Process == 0 || i.Process == os.Getpid() {
				continue
			}
			load, err := l.m.Load(ctx, o, i.ID)
			if fault.KindOf(err) == fault.NotFound {
				continue // it ended just now
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			list = append(list, loadJSON{
				ID: i.ID, Principal: o, Name: i.Settings.Name, Isolation: i.Isolation, State: i.State, Process: i.Process,
				Running: load.Running, Queued: load.Queued, CPUPercent: l.percent(loadKey{o, i.ID}, load, time.Now()), MemoryBytes: load.Memory,
				SentBytes: load.Traffic.Sent, ReceivedBytes: load.Traffic.Received, Unknown: err != nil || !load.Open,
			})
		}
	}
	return list, nil
}

// percent is the share of one processor that a machine took since it was read before, or since
// it was booted; nil: there is no machine.
func (l *loadMeter) percent(of loadKey, load session.Load, now time.Time) *float64 {
	if load.Booted.IsZero() {
		return nil
	}
	since, used := load.Booted, load.CPU
	if before, ok := l.before[of]; ok && before.booted.Equal(load.Booted) {
		since, used = before.at, load.CPU-before.cpu
	}
	l.before[of] = loadReading{now, load.Booted, load.CPU}
	share := 0.0
	if wall := now.Sub(since); wall > 0 {
		share = max(100*float64(used)/float64(wall), 0)
	}
	return &share
}

// loadRows makes a table of what sessions take; withOwners: it says whose they are.
func loadRows(list []loadJSON, withOwners bool) [][]string {
	rows := [][]string{{"ID", "STATE", "CPU", "MEMORY", "SENT", "RECEIVED", "QUEUE", "PROCESS", "NAME"}}
	for _, one := range list {
		cpu, memory, queue := "-", "-", "-"
		if one.CPUPercent != nil {
			cpu = strconv.FormatFloat(*one.CPUPercent, 'f', 1, 64) + "%"
		}
		state := string(one.State)
		if !one.Unknown {
			memory, queue = amount(one.MemoryBytes), strconv.Itoa(one.Queued)
			if one.Running > 0 {
				state = string(session.Running)
			}
		}
		rows = append(rows, []string{
			string(one.ID), state, cpu, memory, amount(one.SentBytes), amount(one.ReceivedBytes), queue, strconv.Itoa(one.Process), plain(one.Name),
		})
	}
	if withOwners {
		rows[0] = slices.Insert(rows[0], 1, "PRINCIPAL")
		for i, one := range list {
			rows[i+1] = slices.Insert(rows[i+1], 1, plain(string(one.Principal)))
		}
	}
	return rows
}
