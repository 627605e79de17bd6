package mcpserver

import (
	"fmt"
	"slices"
	"strings"

	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// describe tells a model what it has here, the important first: some clients
// cut them off.
func (s *Server) describe(runtimes []session.Runtime, alone bool) string {
	var b strings.Builder
	without := "- Without session_id a call uses this connection's own session."
	if alone {
		without = "- Each call without session_id gets a NEW session: pass the session_id of an earlier result on to go on with its variables and files. Whoever connects to this URL with /s/NAME after it keeps one session."
	}
	if len(runtimes) == 0 {
		b.WriteString("No language can run on this host at present; list_runtimes and the server's log say more.\n")
	} else {
		fmt.Fprintf(&b, "execute_code runs %s in a sandbox that keeps its state.\n", strings.Join(languages(runtimes), ", "))
	}
	b.WriteString(`- Variables, functions and imports stay from call to call, one interpreter for each language runtime; files in /workspace (the working folder) are shared by all of them. A failed call loses nothing; a notice in the result says when something was lost.
` + without + ` create_session makes others, which share nothing.
- The value of the last expression comes back as result: there is no need to print it.
`)
	if shows := showing(languages(runtimes)); shows != "" {
		b.WriteString("- Pictures and documents are shown: " + shows + ".\n")
	}
	if slices.Contains(s.config.Tools, "history") {
		b.WriteString("- Each run and each change of files can be taken back: undo, or list_checkpoints and restore_session. fork_session copies a session to try something out.\n")
	}
	if s.config.Servers != nil {
		b.WriteString("- Other MCP servers are functions in programs: search_tools finds them" + imports(languages(runtimes)) + ". Their files are in /servers. Filter and combine results in code, and print what matters.\n")
	}
	if names := s.config.Secrets; len(names) > 0 {
		b.WriteString("- Secrets: the environment variables " + textsafe.Cut(strings.Join(names, ", "), maxHosts) + " hold placeholders. Use them as if they were the values: in requests to the hosts that each is for, the value is put in outside. Anywhere else a placeholder is refused.\n")
	}
	subprocess := "no subprocess, "
	if isos := isolations(runtimes); slices.Contains(isos, imaged) {
		subprocess = ""
		fmt.Fprintf(&b, "- Isolation %s is a whole Linux machine: bash, subprocesses, compiled packages, background processes (get_workspace_info lists them). Ask for it by isolation in the first call of a session, or in create_session. When its machine stops, or the session goes back, files stay and variables do not; a notice says so.\n", imaged)
	}
	fmt.Fprintf(&b, `- `+s.networkInSentences()+subprocess+`and nothing of the host but /workspace and /tmp. list_runtimes names the packages that are there; `+s.installingInWords()+`.
- A call is stopped after %d seconds unless timeout (up to %d) says otherwise; work, memory, output and disk are limited too, and stopped_by tells which limit was reached.
- Output beyond about 60 KB, long texts and large pictures become files below .paddock, and the result shows a part: go on with read_file (offset, limit) or search_files.
`, seconds(s.config.DefaultTimeout), seconds(s.config.MaxTimeout))
	for _, r := range runtimes {
		fmt.Fprintf(&b, "%s (%s): %s.\n", r.Name, r.Isolation, textsafe.Cut(strings.TrimSuffix(r.Description, "."), 200))
	}
	text := b.String()
	for len([]rune(text)) > maxInstructions { // many runtimes: the last lines go
		text = text[:strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1]
	}
	return strings.TrimSuffix(text, "\n")
}

// reaches are the rules that say what programs of a session reach; none: there is no
// network.
func (s *Server) reaches(network *[]string) []string {
	if s.config.Reaches == nil {
		return nil
	}
	return s.config.Reaches(network)
}

// networkInWords is what a tool's description says of the network.
func (s *Server) networkInWords() string {
	if len(s.reaches(nil)) == 0 {
		return "no network"
	}
	return "HTTP to allowed hosts"
}

// installingInWords is what the instructions say of other packages.
func (s *Server) installingInWords() string {
	if s.config.Packages.Serves() {
		return "install_package adds others"
	}
	return "others cannot be installed"
}

// maxHosts bounds the hosts that the instructions name, in bytes.
const maxHosts = 300

// networkInSentences is what the instructions say of it, with what there is not else.
func (s *Server) networkInSentences() string {
	rules := s.reaches(nil)
	if len(rules) == 0 {
		return "There is no network, "
	}
	named := strings.Join(rules, ", ")
	if len(named) > maxHosts {
		named = named[:strings.LastIndex(named[:maxHosts], ", ")+1] + " and more, which get_workspace_info lists"
	}
	return "HTTP and HTTPS reach these hosts alone: " + named + ". create_session's network narrows that. A notice tells what was refused. There is no other network, "
}

// showing says how a program shows something in the languages that there are.
func showing(langs []string) string {
	var ways []string
	for _, l := range langs {
		switch l {
		case "python":
			ways = append(ways, "in Python display(x), a last expression with _repr_png_, _repr_html_ or the like, and open matplotlib figures")
		case "javascript":
			ways = append(ways, "in JavaScript display({mime, data})")
		}
	}
	return strings.Join(ways, "; ")
}

// imports says how a program gets at another server's tools.
func imports(langs []string) string {
	var ways []string
	for _, l := range langs {
		switch l {
		case "python":
			ways = append(ways, "in Python from servers.<name> import <tool>; tool(a=1), or await tool.aio(a=1) with asyncio.gather")
		case "javascript":
			ways = append(ways, `in JavaScript import { tool } from "servers/<name>"; await tool({ a: 1 })`)
		}
	}
	if len(ways) == 0 {
		return ""
	}
	return " (" + strings.Join(ways, "; ") + ")"
}
