package session

import "strings"

// fences are the languages of Markdown's blocks of code, as people and models write them.
var fences = map[string]string{
	"python": "python", "py": "python", "python3": "python",
	"javascript": "javascript", "js": "javascript", "node": "javascript", "nodejs": "javascript",
	"typescript": "typescript", "ts": "typescript",
	"bash": "bash", "sh": "bash", "shell": "bash",
}

// Unfenced gives the program of a text that is one block of code in Markdown and nothing
// else, as models often write it, and the block's language; "": it says none, or one that
// is not known. The fence becomes an empty line, so that lines keep their numbers. Any
// other text is what it was.
func Unfenced(code string) (program, language string) {
	text := strings.TrimSpace(code)
	before := code[:strings.Index(code, text)] // of white space
	mark := text[:len(text)-len(strings.TrimLeft(text, "`~"))]
	if len(mark) < 3 || strings.Trim(mark, mark[:1]) != "" {
		return code, ""
	}
	info, rest, ok := strings.Cut(text, "\n")
	body, ended := strings.CutSuffix("\n"+rest, "\n"+mark)
	if !ok || !ended || strings.Contains(body, "\n"+mark) {
		return code, ""
	}
	words := strings.Fields(strings.ToLower(info[len(mark):]))
	if len(words) > 0 {
		language = fences[strings.Trim(words[0], "{}.")]
	}
	return strings.Repeat("\n", strings.Count(before, "\n")) + body, language
}
