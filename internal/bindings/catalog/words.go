package catalog

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"paddock/internal/bindings"
	"paddock/internal/textsafe"
)

// split takes a text apart into words in lower case, where the letters' case
// changes as well: getHTTPUrl, get-http-url and get_http_url are three words each.
// In scripts that have no spaces each character is a word.
func split(s string) []string {
	var words []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = word[:0]
		}
	}
	runes := []rune(s)
	for i, r := range runes {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
			end()
			words = append(words, string(r))
			continue
		case !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r):
			end()
			continue
		case len(word) > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end()
		case len(word) == 40:
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}

// maxRead is how much of a description is read, in bytes.
const maxRead = 400

// indexed gives what is indexed of a text: the words of its first bytes that were
// not said before, and no more of them than a number.
func indexed(s string, bytes, most int, said map[string]bool) string {
	words := []string{}
	for _, w := range split(textsafe.Shorten(s, bytes)) {
		if !said[w] {
			said[w] = true
			if words = append(words, w); len(words) == most {
				break
			}
		}
	}
	return strings.Join(words, " ")
}

// stuffed tells whether a tool's texts are made of repetitions: of twenty words or
// more not two in five are new. In texts that are written to be read about three in
// four are.
func stuffed(t bindings.Tool) bool {
	for _, text := range []string{t.Title, t.Description} {
		words := split(textsafe.Shorten(text, maxRead))
		if len(words) < 20 {
			continue
		}
		slices.Sort(words)
		if all := len(words); 5*len(slices.Compact(words)) < 2*all {
			return true
		}
	}
	return false
}

// idle are words that say nothing of what is looked for.
var idle = strings.Fields(`a an and any are as at be by can do for from how i in into is it its let like me my
	need of on or our please some so that the their them then there these this tool tools to use using want we what which will with you your`)

// queryWords gives the words of a query, each once. Idle ones count only where
// there is nothing else.
func queryWords(s string) []string {
	all, kept := []string{}, []string{}
	for _, w := range split(textsafe.Shorten(s, 1000)) {
		if slices.Contains(all, w) {
			continue
		}
		if all = append(all, w); !slices.Contains(idle, w) {
			kept = append(kept, w)
		}
		if len(kept) == 24 || len(all) == 60 {
			break
		}
	}
	if len(kept) == 0 {
		return all
	}
	return kept
}

// expression writes a query for the index: any of the words, the last one also as
// the beginning of a word. Nothing of the query is read as syntax: words are
// letters and digits in quotes. Not ok: no such server is there.
func (c *Catalog) expression(words []string, servers []string) (text string, ok bool) {
	parts := []string{}
	for _, w := range words {
		parts = append(parts, `"`+w+`"`)
	}
	if last := len(words) - 1; len([]rune(words[last])) >= 3 {
		parts[last] += "*"
	}
	text = `{name title description parameters} : (` + strings.Join(parts, " OR ") + `)`
	if servers == nil {
		return text, true
	}
	of := []string{}
	for _, name := range servers {
		if s := c.servers[name]; s != nil {
			of = append(of, serverWord(s.number))
		}
	}
	return text + ` AND server : (` + strings.Join(of, " OR ") + `)`, len(of) > 0
}

func serverWord(number int64) string { return "s" + strconv.FormatInt(number, 10) }

// fit is what a row's worth is multiplied with: more where the name is made of the
// query's words and of nothing else, less where the texts are stuffed.
func fit(words []string, r row) float64 {
	if r.stuffed {
		return 0.5
	}
	name := split(textsafe.Shorten(r.tool.Tool.Name, 64))
	if len(name) == 0 {
		return 1
	}
	common := 0
	for _, w := range name {
		if slices.ContainsFunc(words, func(q string) bool { return alike(q, w) }) {
			common++
		}
	}
	return 1 + 0.5*float64(common)/float64(max(len(name), len(words)))
}

// alike tells whether two words are the same but for their ends.
func alike(a, b string) bool {
	short, long := min(len(a), len(b)), max(len(a), len(b))
	return a == b || short >= 4 && long-short <= 3 && a[:short-1] == b[:short-1]
}

// whole gives a schema that may be handed on.
func whole(s json.RawMessage) json.RawMessage {
	if len(s) > 64<<10 || !json.Valid(s) {
		return nil
	}
	return s
}
