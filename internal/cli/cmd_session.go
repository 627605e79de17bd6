package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/session"
)

// sessionCommand is paddock session and its subcommands.
type sessionCommand struct{ *cli }

func (cmd sessionCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "session",
		Short: "List, inspect, undo, copy, move and remove sessions",
		Long: `Lists, inspects and changes the sessions that the user's own processes made:
those of paddock run --keep and of MCP clients over stdio; with --all or
--principal also those of the clients of paddock serve in this state folder. What
another process has open can be seen, and is changed by that process alone; what
works in its background can be listed, read and stopped (ps, logs, kill).

An ID is a session's id, the beginning of one that is the only one to begin so, or a
session's name (rename).`,
	}
	var listJSON, inspectJSON, all bool
	var principal string // of the command that runs
	ls := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the sessions",
		Long: "Lists the sessions of each principal, in the order of their making.\n\nExit codes: 0 done, 1 failed, 2 wrong usage.",
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.listSessions(c, principal, all, listJSON) },
	}
	inspect := &cobra.Command{
		Use: "inspect ID", Short: "Tell what a session holds",
		Long: "Tells what is known of a session, with its files.\n\nExit codes: 0 done, 1 failed or no such session, 2 wrong usage.",
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			return cmd.inspectSession(c, principal, args[0], inspectJSON)
		},
	}
	jsonFlag(ls, &listJSON)
	jsonFlag(inspect, &inspectJSON)
	for _, one := range []*cobra.Command{ls, inspect} {
		principalFlag(one, &principal)
	}
	ls.Flags().BoolVar(&all, "all", false, "those of all principals")
	c.AddCommand(ls, inspect, cmd.removeCommand(), cmd.renameCommand(), cmd.exportCommand(), cmd.importCommand(), cmd.gcCommand())
	c.AddCommand(cmd.processCommands()...)
	c.AddCommand(cmd.checkpointCommands()...)
	c.AddCommand(cmd.previewCommand(), cmd.installCommand())
	return c
}

// sessionJSON is a session as results show it.
type sessionJSON struct {
	ID         session.ID    `json:"session_id"`
	Principal  session.Owner `json:"principal"`
	Name       string        `json:"name,omitempty"`
	Language   string        `json:"language"`
	Isolation  string        `json:"isolation"`
	State      session.State `json:"state"`
	CreatedAt  time.Time     `json:"created_at"`
	LastUsedAt time.Time     `json:"last_used_at"`
	ExpiresAt  time.Time     `json:"expires_at"`
	Executions int64         `json:"execution_count"`
	// Checkpoints is how many it can go back to; 0: not known, as it is not open.
	Checkpoints int `json:"checkpoint_count,omitempty"`
	Process     int `json:"process,omitempty"` // another one that has it open
	// Stopped tells that it was stopped by name, and runs nothing until it is started.
	Stopped bool      `json:"stopped,omitempty"`
	Image   string    `json:"image,omitempty"`
	Secrets *[]string `json:"secrets,omitempty"` // names
}

func sessionOf(i session.Info) sessionJSON {
	if i.Process == os.Getpid() {
		i.Process = 0
	}
	return sessionJSON{
		ID: i.ID, Principal: i.Owner, Name: i.Settings.Name, Language: i.Settings.Language, Isolation: i.Isolation, State: i.State,
		CreatedAt: i.CreatedAt, LastUsedAt: i.LastUsedAt, ExpiresAt: i.ExpiresAt, Executions: i.Executions, Checkpoints: i.Checkpoints, Process: i.Process,
		Stopped: i.Halted, Image: imageOf(i.Settings), Secrets: i.Settings.Secrets,
	}
}

func (cmd sessionCommand) listSessions(c *cobra.Command, principal string, all, asJSON bool) error {
	if all && principal != "" {
		return usage("--all and --principal are two things").WithHint("give one of them")
	}
	return cmd.withSessions(c, func(_ context.Context, m *session.Manager) error {
		owners, err := cmd.owners(principal)
		if all {
			owners, err = m.Owners()
		}
		if err != nil {
			return err
		}
		list := []sessionJSON{}
		for _, o := range owners {
			infos, err := m.List(o)
			if err != nil {
				return fmt.Errorf("listing the sessions: %w", err)
			}
			for _, i := range infos {
				list = append(list, sessionOf(i))
			}
		}
		return cmd.printList(asJSON, "sessions", list, sessionRows(list, all || principal != ""))
	})
}

// sessionRows makes a table of sessions; withOwners: it says whose they are.
func sessionRows(list []sessionJSON, withOwners bool) [][]string {
	rows := [][]string{{"ID", "LANGUAGE", "STATE", "RUNS", "LAST USED", "EXPIRES", "PROCESS", "NAME"}}
	for _, one := range list {
		process := "-"
		if one.Process != 0 {
			process = strconv.Itoa(one.Process)
		}
		rows = append(rows, []string{
			string(one.ID), orDash(one.Language), string(one.State), strconv.FormatInt(one.Executions, 10),
			moment(one.LastUsedAt), moment(one.ExpiresAt), process, plain(one.Name),
		})
	}
	if !withOwners {
		return rows
	}
	rows[0] = slices.Insert(rows[0], 1, "PRINCIPAL")
	for i, one := range list {
		rows[i+1] = slices.Insert(rows[i+1], 1, plain(string(one.Principal)))
	}
	return rows
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return plain(s)
}

func (cmd sessionCommand) inspectSession(c *cobra.Command, principal, text string, asJSON bool) error {
	return cmd.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owners, err := cmd.owners(principal)
		if err != nil {
			return err
		}
		o, id, err := chosen(m, owners, text)
		if err != nil {
			return err
		}
		d, err := details(ctx, m, o, id)
		if err != nil {
			return fmt.Errorf("inspecting the session: %w", err)
		}
		if asJSON {
			files := d.Files
			if files == nil {
				files = []session.File{}
			}
			return cmd.printJSON(struct {
				sessionJSON
				Files     []session.File `json:"files"`
				DiskBytes int64          `json:"disk_bytes"`
				Processes []processJSON  `json:"processes,omitempty"`
				Notice    string         `json:"notice,omitempty"`
			}{sessionOf(d.Info), files, d.DiskBytes, processesOf(d.Processes), d.Notice})
		}
		return cmd.printSession(d)
	})
}

// details tells what is known of a session, wherever it is open.
func details(ctx context.Context, m *session.Manager, o session.Owner, id session.ID) (d session.Details, err error) {
	found, err := m.Info(o, id)
	if err != nil {
		return d, err
	}
	if d, err = m.Details(ctx, o, id); fault.KindOf(err) == fault.Conflict && found.Process != 0 {
		return inspectElsewhere(ctx, m, found)
	}
	if err != nil {
		return d, err
	}
	d.State = found.State // looking wakes it
	past, err := m.Checkpoints(o, id)
	d.Checkpoints = len(past)
	return d, err
}

// inspectElsewhere tells what can be known of a session that another process has
// open.
func inspectElsewhere(ctx context.Context, m *session.Manager, found session.Info) (d session.Details, err error) {
	d = session.Details{Info: found, DiskBytes: found.DiskBytes, Notice: fmt.Sprintf("another process (pid %d) has the session open", found.Process)}
	past, err := m.Checkpoints(found.Owner, found.ID)
	if err != nil {
		return d, err
	}
	d.Checkpoints = len(past)
	d.Processes, err = m.Processes(ctx, found.Owner, found.ID)
	return d, err
}

// printSession tells a person about a session that no other process has open:
// no interpreter lives that could be asked for variables.
func (cmd sessionCommand) printSession(d session.Details) error {
	rows := [][]string{
		{"id", string(d.ID)},
		{"principal", plain(string(d.Owner))},
		{"name", orDash(d.Settings.Name)},
		{"language", orDash(d.Settings.Language)},
		{"isolation", d.Isolation},
		{"image", orDash(imageOf(d.Settings))},
		{"made", moment(d.CreatedAt)},
		{"last used", moment(d.LastUsedAt)},
		{"expires", moment(d.ExpiresAt)},
		{"state", string(d.State)},
		{"runs", strconv.FormatInt(d.Executions, 10)},
		{"checkpoints", strconv.Itoa(d.Checkpoints)},
		{"disk", amount(d.DiskBytes)},
		{"files", strconv.Itoa(len(d.Files))},
	}
	if names := d.Settings.Secrets; names != nil {
		rows = slices.Insert(rows, 6, []string{"secrets", strings.Join(*names, ", ")})
	}
	if d.Notice != "" {
		rows[len(rows)-1] = []string{"files", "not known: " + d.Notice}
	}
	for _, p := range d.Processes {
		rows = append(rows, []string{"process", strconv.Itoa(p.PID) + " " + plain(p.Command)})
	}
	for _, f := range d.Files {
		rows = append(rows, []string{"", plain(f.Path), amount(f.Size), moment(f.Modified)})
	}
	return cmd.printTable(rows)
}

// imageOf is the image that was asked for; empty: none, or the default.
func imageOf(s session.Settings) string {
	if s.Machine == nil {
		return ""
	}
	return s.Machine.Image
}

// target is the session that a command is about, and how its result is printed.
type target struct {
	principal string
	id        session.ID
	json      bool
}

// flags adds those that all commands about one session have.
func (t *target) flags(c *cobra.Command) *cobra.Command {
	jsonFlag(c, &t.json)
	principalFlag(c, &t.principal)
	return c
}

// withSession calls f with a session's owner, once it is known whose it is. What
// f changes, the state folder's user can go on with.
func (cmd sessionCommand) withSession(c *cobra.Command, t *target, f func(context.Context, *session.Manager, session.Owner) error) error {
	return cmd.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owners, err := cmd.owners(t.principal)
		if err != nil {
			return err
		}
		if err := privatefile.CheckFolder(cmd.StateDir); err != nil {
			return err
		}
		owner, id, err := chosen(m, owners, string(t.id))
		if err != nil {
			return err
		}
		t.id = id
		return f(ctx, m, owner)
	})
}
