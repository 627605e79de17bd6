package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/trust"
)

// doctorCommand is paddock doctor.
type doctorCommand struct{ *cli }

// finding is one thing that the doctor looked at.
type finding struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, weak or bad
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"` // what to change
	// fix changes it, and fixed says what that did; nil: a person has to.
	fix   func() error
	fixed string
}

// The statuses of a finding. Code can run unless something is bad.
const (
	good = "ok"
	weak = "weak"
	bad  = "bad"
)

// diagnosis is what the doctor found.
type diagnosis struct {
	OK         bool            `json:"ok"`
	Summary    []string        `json:"summary"` // what a user can do here
	Fixed      []string        `json:"fixed,omitempty"`
	Build      buildInfo       `json:"build"`
	ConfigFile string          `json:"config_file"`
	Ignored    string          `json:"ignored_config_file,omitempty"`
	StateDir   string          `json:"state_dir"`
	CacheDir   string          `json:"cache_dir"`
	Isolations []isolationJSON `json:"isolations"`
	Findings   []finding       `json:"findings"`
}

type isolationJSON struct {
	Name        string           `json:"name"`
	Available   bool             `json:"available"`
	Engine      string           `json:"engine"`
	Runtimes    []runtimeJSON    `json:"runtimes"`
	Protections []protectionJSON `json:"protections"`
}

type runtimeJSON struct {
	Name        string   `json:"name"`
	Languages   []string `json:"languages"`
	Version     string   `json:"version"`
	Description string   `json:"description"`
}

type protectionJSON struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
	Detail string `json:"detail"`
}

func (cmd doctorCommand) command() *cobra.Command {
	var asJSON, fix bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what works on this machine, what does not, and what to change",
		Long: `Looks at the configuration, the folders, the interpreters and the walls around
them, and runs a small program in each interpreter. Three lines say what a user can do
here; each line after them is ok, weak (code runs, with less around it) or bad. --fix
changes what paddock can change by itself, and looks again.

Exit codes: 0 code can run, 1 it cannot, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.doctor(c, asJSON, fix) },
	}
	c.Flags().BoolVar(&fix, "fix", false, "fix what can be fixed: rights of files and folders")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd doctorCommand) doctor(c *cobra.Command, asJSON, fix bool) error {
	err := cmd.load(c)
	if cmd.Config == nil {
		return err // there is no place to look at
	}
	d := cmd.look(c, err)
	if fix {
		if fixed := d.repair(); len(fixed) > 0 {
			d = cmd.look(c, err)
			d.Fixed = fixed
		}
	}
	if c.Context().Err() != nil {
		return context.Cause(c.Context())
	}
	d.OK = !slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Status == bad })
	d.summarize()
	if asJSON {
		err = cmd.printJSON(d)
	} else {
		err = cmd.printDiagnosis(d)
	}
	if err == nil && !d.OK {
		err = exit(exitFailed)
	}
	return err
}

// look looks at everything; err is what is wrong with the configuration.
func (cmd doctorCommand) look(c *cobra.Command, err error) *diagnosis {
	d := &diagnosis{Build: build(), ConfigFile: cmd.Config.File, Ignored: cmd.Config.Ignored, StateDir: cmd.StateDir, CacheDir: cmd.CacheDir, Isolations: []isolationJSON{}}
	if err == nil {
		d.add("configuration", good, cmd.aboutConfig(), "")
	} else {
		for _, e := range fault.Apart(err) {
			d.fail("configuration", e)
		}
	}
	if d.Ignored != "" {
		place, err := trust.Place(d.Ignored)
		if err != nil {
			place = d.Ignored
		}
		d.add("working folder", good, place+" is not read: "+cmd.whyIgnored(place), "paddock trust shows it and asks whether it may count")
	}
	cmd.examineRights(d)
	cmd.examine(c.Context(), d)
	return d
}

func (d *diagnosis) add(name, status, detail, hint string) {
	d.Findings = append(d.Findings, finding{Name: name, Status: status, Detail: detail, Hint: hint})
}

// fail adds what went wrong; here the operator reads the cause too.
func (d *diagnosis) fail(name string, err error) {
	detail, hint := err.Error(), ""
	var f *fault.Error
	if errors.As(err, &f) {
		hint = f.Hint
		if cause := errors.Unwrap(f); cause != nil {
			detail += ": " + cause.Error()
		}
	}
	d.add(name, bad, detail, hint)
}

// examine looks at everything that a program needs, in the order in which it
// is needed; what cannot be looked at because of an earlier thing is left out.
func (cmd doctorCommand) examine(ctx context.Context, d *diagnosis) {
	if err := app.Writable(cmd.StateDir); err != nil {
		hint := "make it writable, or name another one with --state-dir"
		if errors.Is(err, syscall.ENOSPC) {
			hint = "make room on its disk, or name another folder with --state-dir"
		}
		d.add("state folder", bad, fmt.Sprintf("%s cannot be written: %v", cmd.StateDir, err), hint)
		return
	}
	d.add("state folder", good, cmd.StateDir, "")
	cmd.examineServers(d)
	cmd.examineSkills(d)
	cmd.examineApprovals(d)
	cmd.examinePackages(d)
	a, err := cmd.Open(app.Options{})
	if err != nil {
		d.fail("sessions", err)
		return
	}
	defer a.Close()
	began := time.Now()
	if err := cmd.prepare(ctx, a.Backends); err != nil {
		d.fail("cache folder", err)
	} else {
		detail := cmd.CacheDir
		if took := time.Since(began); took > quietTime {
			detail += fmt.Sprintf(" (prepared just now, in %.1f s)", took.Seconds())
		}
		d.add("cache folder", good, detail, "")
	}
	for k, b := range a.Backends {
		cmd.examineBackend(ctx, d, a.Sessions, b, k == 0)
	}
}

// examineBackend looks at one isolation and tries what runs in it. Without the
// first, which programs have that name none, paddock is of no use.
func (cmd doctorCommand) examineBackend(ctx context.Context, d *diagnosis, m *session.Manager, b sandbox.Backend, first bool) {
	probe := probeAnew(ctx, b)
	d.isolation(b.Name(), probe)
	if !probe.Available {
		status := weak
		if first {
			status = bad
		}
		d.add("isolation "+b.Name(), status, probe.Reason, probe.Hint)
		return
	}
	d.add("isolation "+b.Name(), good, "engine "+probe.Engine, "")
	if probe.Reason != "" { // one of the interpreters is missing
		d.add("isolation "+b.Name(), weak, probe.Reason, probe.Hint)
	}
	if _, ok := b.(sandbox.Adopter); ok {
		d.add("ready machines", good, fmt.Sprintf("paddock mcp and paddock serve keep up to %d booted for sessions to come (sandbox.pool)", cmd.Config.Sandbox.Pool), "")
	}
	for _, r := range probe.Runtimes {
		d.runtime(ctx, m, b.Name(), r)
	}
	for _, w := range probe.Protections {
		if w.Active {
			d.add(w.Name, good, w.Detail, "")
			continue
		}
		d.add(w.Name, weak, w.Detail, "")
	}
}

// probeAnew looks at what works now, and not at what was found out earlier.
func probeAnew(ctx context.Context, b sandbox.Backend) sandbox.Probe {
	if anew, ok := b.(interface {
		ProbeAnew(context.Context) sandbox.Probe
	}); ok {
		return anew.ProbeAnew(ctx)
	}
	return b.Probe(ctx)
}

func (d *diagnosis) isolation(name string, probe sandbox.Probe) {
	i := isolationJSON{Name: name, Available: probe.Available, Engine: probe.Engine, Runtimes: []runtimeJSON{}, Protections: []protectionJSON{}}
	for _, r := range probe.Runtimes {
		i.Runtimes = append(i.Runtimes, runtimeJSON{Name: r.Name, Languages: r.Languages, Version: r.Version, Description: r.Description})
	}
	for _, w := range probe.Protections {
		i.Protections = append(i.Protections, protectionJSON(w))
	}
	d.Isolations = append(d.Isolations, i)
}

// trials are programs that print 42, by language.
var trials = map[string]string{"python": "print(6 * 7)", "javascript": "console.log(6 * 7)", "bash": "echo $((6 * 7))"}

// runtime runs a small program.
func (d *diagnosis) runtime(ctx context.Context, m *session.Manager, isolation string, r sandbox.Runtime) {
	language := r.Languages[0]
	trial, known := trials[language]
	if !known {
		d.add(r.Name, good, r.Version+" is there; it was not tried", "")
		return
	}
	info, err := m.Create(ctx, session.Local, "", session.Settings{Language: language, Isolation: isolation, Name: "paddock doctor", TTL: leftoverTTL})
	if err != nil {
		d.fail(r.Name, err)
		return
	}
	defer func() {
		if err := m.Destroy(context.WithoutCancel(ctx), session.Local, info.ID); err != nil {
			d.fail(r.Name, err)
		}
	}()
	var out bytes.Buffer
	began := time.Now()
	res, err := m.Execute(ctx, session.Local, info.ID, session.Request{Code: trial, Language: language, Stdout: &out})
	switch {
	case err != nil:
		d.fail(r.Name, err)
	case res.Exit.Cause != sandbox.Exited || res.Exit.Code != 0 || strings.TrimSpace(out.String()) != "42":
		d.add(r.Name, bad, fmt.Sprintf("a small program %s with exit code %d and printed %.40q", res.Exit.Cause, res.Exit.Code, out.String()), "this is a mistake of paddock's; please report it")
	default:
		d.add(r.Name, good, fmt.Sprintf("%s ran a small program in %.1f ms, its process included", r.Version, float64(time.Since(began).Microseconds())/1000), "")
	}
}

func (cmd doctorCommand) printDiagnosis(d *diagnosis) error {
	rows := [][]string{}
	for _, f := range d.Findings {
		rows = append(rows, []string{f.Status, f.Name, plain(f.Detail)})
		if f.Hint != "" {
			rows = append(rows, []string{"", "", "→ " + plain(f.Hint)})
		}
	}
	for _, line := range d.Summary {
		fmt.Fprintln(cmd.stdout, plain(line))
	}
	fmt.Fprintln(cmd.stdout)
	for _, line := range d.Fixed {
		fmt.Fprintln(cmd.stdout, "fixed: "+plain(line))
	}
	fmt.Fprintln(cmd.stdout, d.Build)
	statuses := map[string]colour{good: green, weak: yellow, bad: red}
	err := cmd.printPainted(rows, func(_ int, line string) string {
		status, _, _ := strings.Cut(line, " ")
		return paint(cmd.stdout, statuses[status], status) + line[len(status):]
	})
	if err != nil {
		return err
	}
	verdict := "code can run here"
	if !d.OK {
		verdict = "code cannot run here"
	}
	_, err = fmt.Fprintln(cmd.stdout, verdict)
	return err
}
