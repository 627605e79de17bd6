package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// complete reports whether what was typed can be run: nothing more has to follow.
func complete(language, text string) bool {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" || strings.HasPrefix(trimmed, ":") {
		return true
	}
	if language == "python" {
		return completePython(text)
	}
	return completeScript(language, text)
}

// completeScript asks the parser whether it misses the end of something. Of a template it
// says what it says of other strings, which do not have several lines: a backquote ends one.
func completeScript(language, text string) bool {
	loader := api.LoaderJS
	if language == "typescript" {
		loader = api.LoaderTS
	}
	wrong := func(text, what string) bool {
		res := api.Transform(text, api.TransformOptions{Loader: loader, LogLevel: api.LogLevelSilent})
		return slices.ContainsFunc(res.Errors, func(m api.Message) bool { return strings.Contains(m.Text, what) })
	}
	const unclosed = "Unterminated string"
	switch {
	case wrong(text, unclosed):
		return wrong(text+"`", unclosed)
	case wrong(text, "end of file"), wrong(text, "Expected \"*/\""):
		return false
	}
	return true
}

// compound are the words with which statements begin that have a block: an empty line ends it.
var compound = regexp.MustCompile(`^(?:if|for|while|try|with|def|class|async|match|elif|else|except|finally|case)\b|^@`)

// completePython follows the rules of Python's own prompt: brackets and strings of several
// lines are closed, a line does not end with a backslash, and a statement with a block ends
// with an empty line.
func completePython(text string) bool {
	open, quoted, continued, block := scanPython(text)
	switch {
	case open > 0 || quoted || continued:
		return false
	case !block:
		return true
	}
	lines := strings.Split(text, "\n")
	return len(lines) > 1 && strings.TrimSpace(lines[len(lines)-1]) == ""
}

// scanPython finds out how a text ends: with so many brackets that are open, in a string of
// several lines, with a line that goes on; and whether a statement in it has a block.
func scanPython(text string) (open int, quoted, continued, block bool) {
	start := true // of a statement
	for i := 0; i < len(text); {
		rest := text[i:]
		if start && open == 0 {
			block = block || compound.MatchString(strings.TrimLeft(rest, " \t"))
			start = false
		}
		c := rest[0]
		switch {
		case c == '#':
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				return open, false, false, block
			}
			i += end
			continue
		case c == '\'' || c == '"':
			n, closed := pythonString(rest)
			if !closed {
				return open, n < 0, false, block
			}
			i += n
			continue
		case strings.ContainsRune("([{", rune(c)):
			open++
		case strings.ContainsRune(")]}", rune(c)):
			open = max(open-1, 0)
		case c == '\\' && strings.TrimRight(rest, " \n") == "\\":
			return open, false, true, block
		case c == '\n':
			start = true
		}
		i++
	}
	return open, false, false, block
}

// pythonString gives the length of the string at the beginning of a text. One that is not
// closed has -1 where it may have several lines, so that more has to follow.
func pythonString(text string) (n int, closed bool) {
	quote := text[:1]
	long := strings.HasPrefix(text, strings.Repeat(quote, 3))
	if long {
		quote = strings.Repeat(quote, 3)
	}
	for i := len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote), true
		case text[i] == '\n' && !long:
			return 0, false // a mistake, which the interpreter explains
		}
	}
	if long {
		return -1, false
	}
	return 0, false
}

var words = regexp.MustCompile(`[\pL_$][\pL\pN_$]*(?:\.[\pL_$][\pL\pN_$]*)*\.?$`)

// lastWord gives the name, with dots, at the end of a line; empty: there is none.
func lastWord(line string) string { return words.FindString(line) }

// lookUp is a program that prints what a word may become, as one list in JSON, and changes
// nothing; empty: it may become nothing.
func lookUp(language, word string) string {
	if word == "" {
		return ""
	}
	text, _ := json.Marshal(word) // a text can be
	if language == "python" {
		return fmt.Sprintf(`print((lambda c, w: __import__("json").dumps((c.attr_matches(w) if "." in w else c.global_matches(w))[:200]))(__import__("rlcompleter").Completer(globals()), %s))`, text)
	}
	object, before := "globalThis", ""
	if dot := strings.LastIndexByte(word, '.'); dot >= 0 {
		object, before = word[:dot], word[:dot+1]
	}
	prefix, _ := json.Marshal(before)
	return fmt.Sprintf(`console.log(JSON.stringify((o => { const r = []; for (let p = Object(o); p; p = Object.getPrototypeOf(p)) r.push(...Object.getOwnPropertyNames(p)); return r.filter(n => /^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(n)).map(n => %s + n).filter(n => n.startsWith(%s)).slice(0, 200) })(%s)))`, prefix, text, object)
}

// namesIn reads what a program of lookUp printed. A name begins with the word; what a guest
// says otherwise is left out.
func namesIn(printed, word string) (names []string) {
	var all []string
	if json.Unmarshal([]byte(printed), &all) != nil {
		return nil
	}
	for _, name := range all {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, word) && len(name) < 200 && plain(name) == name {
			names = append(names, name)
		}
	}
	return names
}
