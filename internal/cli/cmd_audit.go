package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/audit"
	"paddock/internal/fault"
)

// auditCommand is paddock audit.
type auditCommand struct{ *cli }

func (cmd auditCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Read and check the record of who ran what",
		Long: `Reads and checks the audit log: who ran what where, one JSON object on a line,
a file for each day (UTC) in the folder audit of the state folder. Each record
holds the digest of the one before it by the same process.`,
	}
	var since string
	var filter audit.Filter
	var listJSON, verifyJSON bool
	ls := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List what was done",
		Long: `Lists what was done, in the order of the records. An execution is one line
here, two records with --json: when it began and when it ended.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Example: "  paddock audit ls --since 24h\n  paddock audit ls --since 2026-07-01 --session s-… --json",
		Args:    count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if filter.Since, err = sinceTime(since, time.Now()); err != nil {
				return err
			}
			return cmd.listAudit(c, filter, listJSON)
		},
	}
	ls.Flags().StringVar(&since, "since", "", "only from `TIME` on: 2h, 2026-07-01, or 2026-07-01T12:00:00Z")
	ls.Flags().StringVar(&filter.Session, "session", "", "only in the session `ID`")
	ls.Flags().StringVar(&filter.Principal, "principal", "", "only by the principal `ID`, or by the tokens of that name")
	verify := &cobra.Command{
		Use: "verify", Short: "Check that no record was changed or taken out",
		Long: `Checks every chain of records. Records that were cut short by a crash or a full
disk are told, and are no fault; neither are executions whose end is missing.
The digests at the chains' ends are in what --json prints: who keeps them in
another place finds out about a log that was rewritten.

Exit codes: 0 nothing was changed, 1 something was, or there is no log to read,
2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.verifyAudit(c, verifyJSON) },
	}
	jsonFlag(ls, &listJSON)
	jsonFlag(verify, &verifyJSON)
	c.AddCommand(ls, verify)
	return c
}

// sinceTime reads a time, or how long ago it was; "" is the zero time.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return t, nil
	}
	return time.Time{}, usage("%q is neither a time nor how long ago", text).WithHint("write 2h, 2026-07-01 or 2026-07-01T12:00:00Z")
}

func (cmd auditCommand) listAudit(c *cobra.Command, f audit.Filter, asJSON bool) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	var by []string // nil: of all principals
	if f.Principal != "" {
		var err error
		if by, err = cmd.principals(f.Principal); err != nil {
			return err
		}
		f.Principal = ""
	}
	records := []audit.Record{}
	at := map[string]int{} // where an execution's begin stands
	for r, err := range audit.Read(cmd.AuditFolder(), f) {
		if err != nil {
			return err
		}
		if by != nil && !slices.Contains(by, r.Principal) {
			continue
		}
		if i, begun := at[r.Execution]; begun && !asJSON && r.Phase == audit.End {
			r.Time = records[i].Time
			records[i] = r
			continue
		}
		if r.Phase == audit.Begin {
			at[r.Execution] = len(records)
		}
		records = append(records, r)
	}
	rows := [][]string{{"TIME", "ACTION", "OUTCOME", "PRINCIPAL", "OVER", "SESSION", "EXECUTION", "LANGUAGE", "CODE", "ABOUT"}}
	for _, r := range records {
		rows = append(rows, []string{
			moment(r.Time), plain(r.Action), ending(r), orDash(r.Principal), orDash(r.Transport), orDash(r.Session), orDash(r.Execution),
			orDash(r.Language), orDash(r.CodeSHA256[:min(12, len(r.CodeSHA256))]), orDash(about(r)),
		})
	}
	return cmd.printList(asJSON, "records", records, rows)
}

// about is what a record is about, besides who and where.
func about(r audit.Record) string {
	text := strings.TrimSpace(r.Target + " " + r.Reason)
	if r.Count > 1 {
		text = strings.TrimSpace(fmt.Sprintf("%s (%d times)", text, r.Count))
	}
	return text
}

// ending says in a few words how an action ended.
func ending(r audit.Record) string {
	switch {
	case r.Phase == audit.Begin:
		return "no end"
	case r.StoppedBy != "":
		return plain(r.StoppedBy)
	case r.Outcome != audit.Success && r.ErrorType != "":
		return plain(r.ErrorType)
	}
	return orDash(r.Outcome)
}

func (cmd auditCommand) verifyAudit(c *cobra.Command, asJSON bool) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	if _, err := os.Stat(cmd.AuditFolder()); errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "there is no audit log at %s", cmd.AuditFolder()).
			WithHint("nothing was recorded yet, or the state folder is another one: --state-dir says which")
	}
	report, err := audit.Verify(cmd.AuditFolder())
	if err != nil {
		return err
	}
	if asJSON {
		err = cmd.printJSON(report)
	} else {
		cmd.explainAudit(report)
	}
	if len(report.Problems) > 0 && err == nil {
		err = exit(exitFailed)
	}
	return err
}

func (cmd auditCommand) explainAudit(r audit.Report) {
	for _, list := range [][]audit.Problem{r.Problems, r.Torn} {
		for _, one := range list {
			fmt.Fprintf(cmd.stdout, "%s:%d: %s\n", plain(one.File), one.Line, plain(one.What))
		}
	}
	for _, execution := range r.Unfinished {
		fmt.Fprintf(cmd.stdout, "%s: it began, and its end is not recorded\n", plain(execution))
	}
	verdict := "nothing was changed"
	if n := len(r.Problems); n > 0 {
		verdict = fmt.Sprintf("%d are not as they were written", n)
	}
	fmt.Fprintf(cmd.stdout, "%d records by %d processes: %s\n", r.Records, len(r.Heads), verdict)
}
