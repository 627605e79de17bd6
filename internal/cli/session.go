package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
)

func (p *program) sessionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "session",
		Short: "List, inspect, undo, copy, move and remove sessions",
		Long: `Lists, inspects and changes the sessions that the user's own processes made:
those of paddock run --keep and of MCP clients over stdio; with --all or
--principal also those of the clients of paddock serve in this state folder. What
another process has open can be seen, and is changed by that process alone; what
works in its background can be listed, read and stopped (ps, logs, kill).`,
	}
	var listJSON, inspectJSON, removeJSON, all bool
	var principal string // of the command that runs
	ls := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the sessions",
		Long: "Lists the sessions of each principal, in the order of their making.\n\nExit codes: 0 done, 1 failed, 2 wrong usage.",
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return p.listSessions(c, principal, all, listJSON) },
	}
	inspect := &cobra.Command{
		Use: "inspect ID", Short: "Tell what a session holds",
		Long: "Tells what is known of a session, with its files.\n\nExit codes: 0 done, 1 failed or no such session, 2 wrong usage.",
		Args: count(1, 1, "the id of a session"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.inspectSession(c, principal, session.ID(args[0]), inspectJSON)
		},
	}
	rm := &cobra.Command{
		Use: "rm ID...", Aliases: []string{"remove"}, Short: "Remove sessions with their files",
		Long: "Removes sessions with their files, and prints their ids.\n\nExit codes: 0 all were removed, 1 not all, 2 wrong usage.",
		Args: count(1, -1, "the ids of sessions"),
		RunE: func(c *cobra.Command, args []string) error { return p.removeSessions(c, principal, args, removeJSON) },
	}
	jsonFlag(ls, &listJSON)
	jsonFlag(inspect, &inspectJSON)
	jsonFlag(rm, &removeJSON)
	for _, one := range []*cobra.Command{ls, inspect, rm} {
		principalFlag(one, &principal)
	}
	ls.Flags().BoolVar(&all, "all", false, "those of all principals")
	c.AddCommand(ls, inspect, rm, p.exportCommand(), p.importCommand(), p.collectCommand())
	c.AddCommand(p.processCommands()...)
	c.AddCommand(p.historyCommands()...)
	c.AddCommand(p.previewCommand())
	return c
}

// withSessions calls f with the sessions; no program runs.
func (p *program) withSessions(c *cobra.Command, f func(context.Context, *session.Manager) error) error {
	if err := p.load(c); err != nil {
		return err
	}
	a, err := p.Open(app.Options{})
	if err != nil {
		return err
	}
	defer a.Close()
	return f(c.Context(), a.Sessions)
}

// owners are whose sessions a command is about: the user's own, where no
// principal was named.
func (p *program) owners(principal string) ([]session.Owner, error) {
	if principal == "" {
		return []session.Owner{session.Local}, nil
	}
	ids, err := p.principals(principal)
	var all []session.Owner
	for _, id := range ids {
		all = append(all, session.Owner(id))
	}
	return all, err
}

// ofOne calls f with each owner until one of them has the session.
func ofOne(owners []session.Owner, f func(session.Owner) error) error {
	var err error
	for _, o := range owners {
		if err = f(o); fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return unknownSession(err)
}

// unknownSession gives a session that is not there a hint for people.
func unknownSession(err error) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.Of(err).WithHint("paddock session ls lists those that there are")
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

func (p *program) listSessions(c *cobra.Command, principal string, all, asJSON bool) error {
	if all && principal != "" {
		return usage("--all and --principal are two things").WithHint("give one of them")
	}
	return p.withSessions(c, func(_ context.Context, m *session.Manager) error {
		owners, err := p.owners(principal)
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
		if asJSON {
			return p.printJSON(map[string]any{"sessions": list})
		}
		return p.printTable(sessionRows(list, all || principal != ""))
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

func (p *program) inspectSession(c *cobra.Command, principal string, id session.ID, asJSON bool) error {
	return p.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owners, err := p.owners(principal)
		if err != nil {
			return err
		}
		var d session.Details
		err = ofOne(owners, func(o session.Owner) error {
			found, err := m.Info(o, id)
			if err != nil {
				return err
			}
			if d, err = m.Details(ctx, o, id); fault.KindOf(err) == fault.Conflict && found.Process != 0 {
				d, err = inspectElsewhere(ctx, m, found) // another process has it open
				return err
			}
			if err != nil {
				return err
			}
			d.State = found.State // looking wakes it
			past, err := m.Checkpoints(o, id)
			d.Checkpoints = len(past)
			return err
		})
		if err != nil {
			return fmt.Errorf("inspecting the session: %w", err)
		}
		if asJSON {
			files := d.Files
			if files == nil {
				files = []session.File{}
			}
			return p.printJSON(struct {
				sessionJSON
				Files     []session.File `json:"files"`
				DiskBytes int64          `json:"disk_bytes"`
				Processes []processJSON  `json:"processes,omitempty"`
				Notice    string         `json:"notice,omitempty"`
			}{sessionOf(d.Info), files, d.DiskBytes, processesOf(d.Processes), d.Notice})
		}
		return p.printSession(d)
	})
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
func (p *program) printSession(d session.Details) error {
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
	return p.printTable(rows)
}

// imageOf is the image that was asked for; empty: none, or the default.
func imageOf(s session.Settings) string {
	if s.Machine == nil {
		return ""
	}
	return s.Machine.Image
}

func (p *program) removeSessions(c *cobra.Command, principal string, ids []string, asJSON bool) error {
	return p.withSessions(c, func(ctx context.Context, m *session.Manager) error {
		owners, err := p.owners(principal)
		if err != nil {
			return err
		}
		if err := auth.CheckFolder(p.StateDir); err != nil {
			return err // what root records there its owner could not go on with
		}
		removed := []string{}
		var mistakes []error
		for _, id := range ids {
			if err := ofOne(owners, func(o session.Owner) error { return m.Destroy(ctx, o, session.ID(id)) }); err != nil {
				mistakes = append(mistakes, err)
				continue
			}
			removed = append(removed, id)
			if !asJSON {
				fmt.Fprintln(p.stdout, id)
			}
		}
		if asJSON {
			mistakes = append(mistakes, p.printJSON(map[string]any{"removed": removed}))
		}
		return errors.Join(mistakes...)
	})
}
