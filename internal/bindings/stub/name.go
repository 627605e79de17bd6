package stub

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"paddock/internal/bindings"
)

// Named is a tool with the names that programs call it by.
type Named struct {
	Tool bindings.Tool
	// Python and JavaScript are identifiers, and the files' names without their
	// ends. They differ where one language has a keyword and the other has not.
	Python, JavaScript string
	// Camel is a second name in JavaScript, getSum for get_sum; empty where it
	// would be the same or another tool's.
	Camel string
	// types begins the names of the tool's types: GetSum.
	types string
}

const (
	// maxName bounds a tool's name, in bytes; MCP recommends 128. A tool with a
	// longer one is left out: its name alone would fill its file.
	maxName = 8 << 10
	// maxTools bounds a server's tools.
	maxTools = 10_000
	// longest is how long an identifier gets before it is cut.
	longest = 48
)

// Names gives each tool its names, ordered by the tools' own. They depend on
// nothing but the set of the tools' names. Of tools with the same name one is
// there, whatever their order: calls could not tell them apart. Names that come to the same
// identifier, also where upper and lower case are one, get a suffix made of the
// tool's name, unless one of them is that identifier: adding a tool may so take a
// short name away, and gives nobody another tool under an old name.
func Names(tools []bindings.Tool) []Named {
	tools = slices.Clone(tools)
	slices.SortFunc(tools, func(a, b bindings.Tool) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Description, b.Description), bytes.Compare(a.Input, b.Input), bytes.Compare(a.Output, b.Output))
	})
	all := make([]Named, 0, len(tools))
	for i, t := range tools {
		if (i == 0 || t.Name != tools[i-1].Name) && len(t.Name) <= maxName && len(all) < maxTools {
			all = append(all, Named{Tool: t})
		}
	}
	bases := distinct(all)
	camels := map[string]int{}
	types := map[string]int{}
	values := map[string]bool{}
	for i, base := range bases {
		n := &all[i]
		n.Python, n.JavaScript = base, base
		if reservedPython[base] || reservedFiles[strings.ToLower(base)] {
			n.Python += "_"
		}
		if reservedJavaScript[base] || reservedFiles[strings.ToLower(base)] {
			n.JavaScript += "_"
		}
		camels[n.JavaScript] += 2 // a camel case name never takes it
		n.Camel, n.types = camel(base), pascal(base)
		camels[n.Camel]++
		types[strings.ToLower(n.types)]++
		values[n.JavaScript], values[n.Camel] = true, true
	}
	for i := range all {
		n := &all[i]
		if camels[n.Camel] > 1 || n.Camel == n.JavaScript || reservedJavaScript[n.Camel] || reservedFiles[strings.ToLower(n.Camel)] {
			n.Camel = ""
		}
		if types[strings.ToLower(n.types)] > 1 || values[n.types+"Args"] || values[n.types+"Result"] {
			n.types += "_" + hash(n.Tool.Name)[:8]
		}
	}
	return all
}

// distinct gives each tool an identifier that no other one has, whatever the case.
func distinct(all []Named) []string {
	bases := make([]string, len(all))
	groups := map[string][]int{}
	for i, n := range all {
		bases[i] = identifier(n.Tool.Name, "tool_")
		key := strings.ToLower(bases[i])
		groups[key] = append(groups[key], i)
	}
	used, keepers := map[string]bool{}, map[string]int{}
	for key, group := range groups {
		used[key] = true // whoever loses this name does not take that of another group
		if len(group) > 1 {
			keepers[key] = keeper(all, group) // once: a server may give all its tools one identifier
		}
	}
	for i, n := range all {
		key := strings.ToLower(bases[i])
		if len(groups[key]) == 1 || keepers[key] == i {
			continue
		}
		digest := hash(n.Tool.Name)
		for length := 8; ; length *= 2 {
			candidate := bases[i] + "_" + digest[:min(length, len(digest))]
			if !used[strings.ToLower(candidate)] || length > len(digest) {
				bases[i] = candidate
				used[strings.ToLower(candidate)] = true
				break
			}
		}
	}
	return bases
}

// keeper gives which of the tools that come to one identifier has it as its name:
// the only one, or of several the one in lower case; -1: none.
func keeper(all []Named, group []int) int {
	exact, lower := []int{}, -1
	for _, i := range group {
		if name := all[i].Tool.Name; name == identifier(name, "tool_") {
			exact = append(exact, i)
			if name == strings.ToLower(name) {
				lower = i
			}
		}
	}
	if len(exact) == 1 {
		return exact[0]
	}
	return lower
}

// identifier makes an ASCII identifier of a name: what cannot be in one becomes
// an underscore, none are left at the ends, so that no name is private, a dunder
// or one of ours that ends in one. What begins with a digit, and what is nothing
// then, begins with prefix.
func identifier(name, prefix string) string {
	var b strings.Builder
	gap := false
	for _, r := range name {
		if r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
			gap = false
		} else if !gap {
			b.WriteByte('_')
			gap = true
		}
		if b.Len() > longest {
			break
		}
	}
	s := strings.Trim(b.String(), "_")
	switch {
	case s == "":
		return prefix + hash(name)[:8]
	case s[0] >= '0' && s[0] <= '9':
		s = prefix + s
	}
	if len(s) > longest || b.Len() > longest {
		s = s[:min(len(s), longest-9)] + "_" + hash(name)[:8]
	}
	return s
}

func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// camel writes get_sum as getSum.
func camel(base string) string {
	p := pascal(base)
	if first := base[:1]; first == strings.ToLower(first) {
		return strings.ToLower(p[:1]) + p[1:]
	}
	return p
}

// pascal writes get_sum as GetSum.
func pascal(base string) string {
	var b strings.Builder
	for _, word := range strings.Split(base, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// Package gives the name of a server's package: that of the server with
// underscores for hyphens, where that can be one.
func Package(server string) string {
	s := strings.ReplaceAll(server, "-", "_")
	if len(s) > 40 || !plain(s) {
		s = identifier(server, "server_")
	}
	if reservedPython[s] || s == "lazy" {
		s += "_"
	}
	return s
}

// plain tells whether s is an ASCII identifier that is not a dunder.
func plain(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != "" && !strings.HasPrefix(s, "__")
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

var (
	// keywordsPython are those of Python 3.9 to 3.14, and what cannot be assigned.
	keywordsPython = set(`False None True and as assert async await break class continue def del
		elif else except finally for from global if import in is lambda nonlocal not or pass raise
		return try while with yield __debug__`)
	// usedPython are names that a tool's file uses.
	usedPython = set(`Any Literal Optional Required TypedDict TypeAlias TYPE_CHECKING annotations
		bool dict float int list object str tool`)
	reservedPython = union(keywordsPython, usedPython)
	// reservedJavaScript are its keywords, what strict code may not declare, what a
	// file uses, and names that mean something on every object: a module that has a
	// then is taken for a promise by import().
	reservedJavaScript = set(`abstract any arguments as async await boolean break case catch class const
		constructor continue debugger declare default delete do else enum eval export extends false
		finally for from function get globalThis hasOwnProperty if implements import in instanceof
		interface isPrototypeOf let new null number object of package private prototype protected
		propertyIsEnumerable public return set static string super switch symbol this throw
		toLocaleString toString tool true try type typeof undefined unknown valueOf var void while
		with yield Infinity NaN Object Promise Array Record then catch finally module require exports`)
	// reservedFiles are modules and files of the tree that are not a tool's, and names
	// that Windows has for devices, whatever end they have.
	reservedFiles = set(`tools index schemas con prn aux nul com1 com2 com3 com4 com5 com6 com7 com8
		com9 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9`)
)

func union(sets ...map[string]bool) map[string]bool {
	all := map[string]bool{}
	for _, s := range sets {
		for w := range s {
			all[w] = true
		}
	}
	return all
}
