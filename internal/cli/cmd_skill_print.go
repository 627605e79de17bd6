package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"paddock/internal/skill"
)

// skillJSON is a skill as results show it.
type skillJSON struct {
	Name        string          `json:"name"`
	Package     string          `json:"package"`
	Path        string          `json:"path"`
	Description string          `json:"description"`
	License     string          `json:"license,omitempty"`
	Tags        []string        `json:"tags"`
	Kind        skill.Kind      `json:"kind"`
	Source      string          `json:"source"`
	Commit      string          `json:"commit,omitempty"`
	Installed   time.Time       `json:"installed_at,omitzero"`
	Digest      string          `json:"digest"`
	Manifest    skill.Manifest  `json:"manifest"`
	Files       []string        `json:"files"`
	Warnings    []skill.Warning `json:"warnings"`
	Uses        int64           `json:"uses"`
	Successes   int64           `json:"successes"`
	LastUsed    time.Time       `json:"last_used_at,omitzero"`
	// Of an installation.
	Status string      `json:"status,omitempty"` // installed, updated or unchanged
	Diff   *skill.Diff `json:"diff,omitempty"`
	// Of a skill that is shown.
	Instructions string `json:"instructions,omitempty"`
}

func skillOf(r skill.Record) skillJSON {
	out := skillJSON{
		Name: r.Name, Package: r.Module(), Path: skill.Mount(r.Name), Description: r.Description, License: r.License, Tags: []string{},
		Kind: r.Source.Kind, Source: r.Source.Text, Commit: r.Source.Commit, Installed: r.Source.At, Digest: r.Digest, Manifest: r.Manifest,
		Files: []string{}, Warnings: []skill.Warning{}, Uses: r.Counts.Used, Successes: r.Counts.Succeeded, LastUsed: r.Counts.Last,
	}
	out.Tags = append(out.Tags, r.Tags()...)
	out.Warnings = append(out.Warnings, r.Warnings...)
	for _, f := range r.Files {
		out.Files = append(out.Files, f.Path)
	}
	return out
}

func installedJSON(res *skill.Result) skillJSON {
	out := skillOf(res.Record)
	out.Status, out.Diff = statusOf(res), res.Diff
	return out
}

func statusOf(res *skill.Result) string {
	switch {
	case res.Diff == nil:
		return "installed"
	case res.Diff.Same():
		return "unchanged"
	}
	return "updated"
}

// printInstalled tells of one installation.
func (cmd skillCommand) printInstalled(res *skill.Result, asJSON bool) error {
	if asJSON {
		return cmd.printJSON(installedJSON(res))
	}
	cmd.tellInstalled(res)
	return nil
}

func (cmd skillCommand) tellInstalled(res *skill.Result) {
	fmt.Fprintf(cmd.stdout, "%s %s %s\n", res.Name, statusOf(res), res.Digest)
	if d := res.Diff; d != nil {
		for _, change := range []struct {
			sign  string
			files []string
		}{{"+", d.Added}, {"~", d.Changed}, {"-", d.Removed}} {
			for _, file := range change.files {
				fmt.Fprintf(cmd.stdout, "  %s %s\n", change.sign, plain(file))
			}
		}
	}
	cmd.tellManifest(res.Manifest)
	for _, w := range res.Warnings {
		cmd.say("warning", plain(w.String()))
	}
}

// tellManifest tells what a skill says that it uses.
func (cmd skillCommand) tellManifest(m skill.Manifest) {
	for _, part := range []struct {
		what  string
		names []string
	}{{"tools", m.Tools}, {"hosts", m.Hosts}, {"secrets", m.Secrets}} {
		if len(part.names) > 0 {
			cmd.say("notice", fmt.Sprintf("it says that it uses the %s %s", part.what, plain(strings.Join(part.names, ", "))))
		}
	}
}

func (cmd skillCommand) printChecked(found *skill.Skill, from skill.Provenance, asJSON bool) error {
	r := skill.Record{FrontMatter: found.FrontMatter, Digest: found.Folder.Digest(), Source: from, Warnings: found.Warnings}
	for _, f := range found.Folder {
		r.Files = append(r.Files, skill.FileInfo{Path: f.Path, Size: int64(len(f.Data)), Executable: f.Executable})
	}
	if asJSON {
		return cmd.printJSON(skillOf(r))
	}
	fmt.Fprintf(cmd.stdout, "%s %s\n", r.Name, r.Digest)
	cmd.tellManifest(r.Manifest)
	for _, w := range r.Warnings {
		cmd.say("warning", plain(w.String()))
	}
	return nil
}

// printSkills lists skills.
func (cmd skillCommand) printSkills(all []skill.Record, asJSON bool) error {
	if asJSON {
		list := []skillJSON{}
		for _, r := range all {
			list = append(list, skillOf(r))
		}
		return cmd.printJSON(map[string]any{"skills": list})
	}
	rows := [][]string{{"NAME", "FROM", "INSTALLED", "USES", "WELL", "DESCRIPTION"}}
	for _, r := range all {
		rows = append(rows, []string{r.Name, brief(r.Source.Text, 50), moment(r.Source.At), strconv.FormatInt(r.Counts.Used, 10), strconv.FormatInt(r.Counts.Succeeded, 10), brief(r.Description, 60)})
	}
	return cmd.printTable(rows)
}

// brief is the beginning of a text, on one line.
func brief(text string, most int) string {
	runes := []rune(plain(strings.Join(strings.Fields(text), " ")))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}

// printSkill shows one.
func (cmd skillCommand) printSkill(in *skill.Installed, asJSON bool) error {
	if asJSON {
		out := skillOf(in.Record)
		out.Instructions = in.Skill.Instructions
		return cmd.printJSON(out)
	}
	rows := [][]string{
		{"name", in.Name}, {"description", brief(in.Description, 1024)}, {"package", in.Module()}, {"path", skill.Mount(in.Name)},
		{"source", plain(in.Source.Text)}, {"installed", moment(in.Source.At)}, {"digest", in.Digest},
		{"uses", fmt.Sprintf("%d, %d well", in.Counts.Used, in.Counts.Succeeded)},
	}
	for _, more := range []struct {
		what string
		text string
	}{
		{"commit", in.Source.Commit}, {"license", in.License}, {"tags", strings.Join(in.Tags(), ", ")},
		{"tools", strings.Join(in.Manifest.Tools, ", ")}, {"hosts", strings.Join(in.Manifest.Hosts, ", ")}, {"secrets", strings.Join(in.Manifest.Secrets, ", ")},
	} {
		if more.text != "" {
			rows = append(rows, []string{more.what, plain(more.text)})
		}
	}
	if err := cmd.printTable(rows); err != nil {
		return err
	}
	fmt.Fprintln(cmd.stdout)
	files := [][]string{}
	for _, f := range in.Files {
		mark := ""
		if f.Executable {
			mark = "executable"
		}
		files = append(files, []string{plain(f.Path), amount(f.Size), mark})
	}
	if err := cmd.printTable(files); err != nil {
		return err
	}
	fmt.Fprintln(cmd.stdout)
	for line := range strings.Lines(in.Skill.Instructions) {
		fmt.Fprintln(cmd.stdout, plain(strings.TrimRight(line, "\n")))
	}
	for _, w := range in.Warnings {
		cmd.say("warning", plain(w.String()))
	}
	return nil
}
