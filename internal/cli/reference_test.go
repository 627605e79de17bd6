package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"paddock/internal/app"
	"paddock/internal/config"
)

var update = flag.Bool("update", false, "write the reference's documents from the code")

// The reference is made of the code: `go test ./internal/cli -run Reference -update`
// writes it.
func TestReferenceIsTheCodes(t *testing.T) {
	for name, want := range map[string]string{"configuration.md": configurationReference(), "commands.md": commandsReference(), "http.md": httpReference()} {
		path := filepath.Join("..", "..", "docs", "reference", name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the code says: go test ./internal/cli -run Reference -update", path)
		}
	}
}

// madeFrom begins each document of the reference.
const madeFrom = "<!-- Generated from the code by `go test ./internal/cli -run Reference -update`. -->\n\n"

func configurationReference() string {
	var b strings.Builder
	b.WriteString("# Configuration keys\n\n" + madeFrom + "[configuration.md](../configuration.md) says which file is read. A flag overrides a variable,\n" +
		"a variable the file, and the file the default. `paddock config show` lists the values in force.\n")
	section := ""
	for _, k := range config.Keys() {
		in, name, found := strings.Cut(k.Name, ".")
		if !found {
			in, name = k.Name, "NAME"
		}
		if in != section {
			section = in
			fmt.Fprintf(&b, "\n## [%s]\n\n| key | default | what it decides | accepts | variable, flag |\n|---|---|---|---|---|\n", section)
		}
		set := make([]string, 0, 3)
		for _, v := range k.Vars() {
			set = append(set, "`"+v+"`")
		}
		if k.Flag != "" {
			set = append(set, "`--"+k.Flag+"`")
		}
		def := ""
		if k.Default != "" {
			def = "`" + cell(k.Default) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, def, cell(k.Doc), cell(k.Accepts), strings.Join(set, ", "))
	}
	return b.String()
}

func httpReference() string {
	var b strings.Builder
	b.WriteString("# HTTP paths\n\n" + madeFrom + "`paddock serve` answers these paths; [service.md](../service.md) explains them. A token is sent as\n" +
		"`Authorization: Bearer TOKEN`. Errors of paths below `/v1/` and `/api/v1/` are JSON: `{\"error\": {\"code\", \"message\", \"hint\"}}`.\n\n" +
		"| path | methods | who may ask | what it does |\n|---|---|---|---|\n")
	for _, p := range app.HTTPPaths("/mcp") {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Pattern, strings.Join(p.Methods, ", "), p.Access, p.Doc)
	}
	return b.String()
}

// cell is a text as it is in a table's cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`).Replace(text)
}

func commandsReference() string {
	var b strings.Builder
	b.WriteString("# Commands\n\n" + madeFrom)
	root := (&cli{}).root()
	root.InitDefaultHelpCmd()
	b.WriteString("Every command also takes:\n\n```text\n" + flagUsages(root.PersistentFlags()) + "```\n")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n", c.CommandPath(), c.UseLine())
		if text := strings.TrimSpace(c.Long); text != "" {
			b.WriteString("\n" + text + "\n")
		} else {
			b.WriteString("\n" + c.Short + ".\n")
		}
		if flags := flagUsages(c.LocalNonPersistentFlags()); flags != "" {
			b.WriteString("\n" + flags)
		}
		b.WriteString("```\n")
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	for _, c := range root.Commands() {
		walk(c)
	}
	return b.String()
}

// flagUsages are the usages of flags, but for help.
func flagUsages(flags *pflag.FlagSet) string {
	var b strings.Builder
	for line := range strings.Lines(flags.FlagUsagesWrapped(100)) {
		if !strings.Contains(line, "--help ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
