package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"paddock/internal/config"
	"paddock/internal/setup"
)

// clientJSON is one client in the list of paddock setup.
type clientJSON struct {
	Client    string `json:"client"`
	Title     string `json:"title"`
	Installed bool   `json:"installed"`
	File      string `json:"file,omitempty"` // a client that is set up by hand has none
	HasEntry  bool   `json:"has_entry"`      // whether paddock is in it
}

// choose is paddock setup without a client: it looks which are there and asks a person;
// where none can answer it lists them.
func (cmd setupCommand) choose(c *cobra.Command, f setupFlags) error {
	all := listClients(here(), f)
	if f.asJSON {
		return cmd.printJSON(map[string]any{"clients": all})
	}
	installed := slices.DeleteFunc(slices.Clone(all), func(one clientJSON) bool { return !one.Installed })
	if !person(cmd.stdin) || !terminal(cmd.stdout) {
		return cmd.listClients(all)
	}
	if len(installed) == 0 {
		cmd.say("hint", "no client is found on this machine; paddock setup CLIENT knows "+strings.Join(setup.Names(), ", "))
		return nil
	}
	chosen, err := cmd.askClients(installed)
	if err != nil {
		return err
	}
	var failed error
	for _, name := range chosen {
		failed = errors.Join(failed, cmd.setupClient(c, setup.Find(name), f))
	}
	return failed
}

// listClients looks for every client at a place.
func listClients(at setup.Place, f setupFlags) []clientJSON {
	var all []clientJSON
	for _, name := range setup.Names() {
		client := setup.Find(name)
		one := clientJSON{Client: name, Title: client.Title}
		one.Installed, _ = client.Installed(at)
		if file, err := client.File(at, setup.Scope(f.scope)); err == nil {
			one.File = file
			one.HasEntry = client.Holds(at.Read(file), f.name)
		}
		all = append(all, one)
	}
	return all
}

func (cmd setupCommand) listClients(all []clientJSON) error {
	rows := [][]string{{"CLIENT", "HERE", "PADDOCK", "FILE"}}
	for _, one := range all {
		row := []string{one.Client, "no", "no", one.File}
		if one.Installed {
			row[1] = "yes"
		}
		if one.HasEntry {
			row[2] = "yes"
		}
		if one.File == "" {
			row[2], row[3] = "-", "none: what to enter is printed"
		}
		rows = append(rows, row)
	}
	if err := cmd.printTable(rows); err != nil {
		return err
	}
	cmd.say("hint", "paddock setup CLIENT puts paddock into one of them")
	return nil
}

// askClients asks a person which of the clients get paddock, until the answer can be read.
func (cmd setupCommand) askClients(installed []clientJSON) ([]string, error) {
	fmt.Fprintln(cmd.stdout, "These clients are on this machine:")
	for i, one := range installed {
		has := ""
		if one.HasEntry {
			has = " (has paddock)"
		}
		fmt.Fprintf(cmd.stdout, "  %d  %s%s\n", i+1, one.Title, has)
	}
	lines := bufio.NewReader(cmd.stdin)
	for {
		fmt.Fprint(cmd.stdout, "Put paddock into which? Numbers or names with commas, all, or nothing for none: ")
		line, err := lines.ReadString('\n')
		if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
			fmt.Fprintln(cmd.stdout)
			return nil, nil // the person ended it
		}
		chosen, bad := chosenClients(line, installed)
		if bad == "" {
			return chosen, nil
		}
		cmd.say("error", fmt.Sprintf("%q is not one of them", bad))
		cmd.say("hint", config.Suggest(bad, setup.Names()))
	}
}

// chosenClients reads an answer: what it names, or the first part that names none.
func chosenClients(answer string, installed []clientJSON) (chosen []string, bad string) {
	for part := range strings.FieldsFuncSeq(answer, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\r' || r == '\n' }) {
		if strings.EqualFold(part, "all") {
			for _, one := range installed {
				chosen = append(chosen, one.Client)
			}
			continue
		}
		if n, err := strconv.Atoi(part); err == nil && n >= 1 && n <= len(installed) {
			chosen = append(chosen, installed[n-1].Client)
			continue
		}
		if setup.Find(strings.ToLower(part)) == nil {
			return nil, part
		}
		chosen = append(chosen, strings.ToLower(part))
	}
	var once []string
	for _, name := range chosen {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once, ""
}

// lookFor says when the client that gets an entry does not seem to be installed. An entry for a
// project may be for other people's clients.
func (cmd setupCommand) lookFor(client *setup.Client, f setupFlags) bool {
	found, looked := client.Installed(here())
	if !found && !f.print && !f.remove && f.scope == string(setup.User) {
		cmd.say("warning", fmt.Sprintf("%s does not seem to be installed here: there is no %s", client.Title, strings.Join(looked, ", no ")))
		cmd.say("hint", "paddock is put into its configuration all the same, for when it comes; --remove takes it out")
	}
	return found
}

// byHand says what a person enters in a client that has no file.
func (cmd setupCommand) byHand(c *cobra.Command, client *setup.Client, f setupFlags) error {
	if _, ok := client.Next[setup.Scope(f.scope)]; !ok {
		_, err := client.File(here(), setup.Scope(f.scope))
		return err
	}
	did := setupJSON{Client: client.Name, Name: f.name, Next: client.Next[setup.User]}
	did.Installed, _ = client.Installed(here())
	if f.remove {
		did.Entry = fmt.Sprintf("%s keeps its servers in its own database: take %s out there\n", client.Title, f.name)
		did.Next = ""
		return cmd.printByHand(did, f)
	}
	server, err := cmd.serverFor(c, client, f)
	if err != nil {
		return err
	}
	if err := cmd.tokenFor(&server, f); err != nil {
		return err
	}
	if did.Entry, err = client.Steps(server); err != nil {
		return err
	}
	if server.URL != "" && !f.asJSON {
		did.Entry += "\nnext: paddock serve has to run at " + server.URL
	}
	if err := cmd.printByHand(did, f); err != nil {
		return err
	}
	if server.Token == hiddenToken {
		cmd.say("hint", "--show-token prints the token too")
	}
	return nil
}

func (cmd setupCommand) printByHand(did setupJSON, f setupFlags) error {
	if f.asJSON {
		return cmd.printJSON(did)
	}
	text := did.Entry
	if did.Next != "" {
		text = strings.TrimRight(text, "\n") + "\nnext: " + did.Next + "\n"
	}
	_, err := io.WriteString(cmd.stdout, text)
	return err
}

// here is this machine, with the current folder as the project's.
func here() setup.Place {
	folder, _ := os.Getwd() // without one a project's file is named relative to it
	return setup.Place{
		GOOS: runtime.GOOS, Home: homeFolder(), Folder: folder, Getenv: os.Getenv,
		Glob: func(pattern string) []string {
			found, _ := filepath.Glob(pattern) // a pattern that cannot be right finds nothing
			return found
		},
		Exists: func(path string) bool {
			_, err := os.Stat(path)
			return err == nil
		},
		Read: readSmall,
		Has: func(command string) bool {
			_, err := exec.LookPath(command)
			return err == nil
		},
	}
}

// readSmall reads a file of a client; one that is not there, or that is too large to be one, is
// nothing.
func readSmall(path string) []byte {
	const most = 32 << 20
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > most {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return text
}

// wrapped lists names with commas, in lines of at most so many characters.
func wrapped(names []string, width int) string {
	var lines []string
	line := ""
	for i, name := range names {
		if i < len(names)-1 {
			name += ","
		}
		switch {
		case line == "":
			line = name
		case len(line)+1+len(name) > width:
			lines = append(lines, line)
			line = name
		default:
			line += " " + name
		}
	}
	return strings.Join(append(lines, line), "\n")
}
