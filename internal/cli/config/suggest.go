package config

import (
	"fmt"
	"strings"
)

// suggest says which of the known names an unknown one may have meant.
func suggest(unknown string, known []string) string {
	best, least := "", len(unknown)+1
	for _, name := range known {
		d := distance(unknown, name)
		// A name under the wrong section, or under none, is a mistake of its own.
		if own := last(name); own != name && own == last(unknown) {
			d = min(d, 1)
		}
		if d < least {
			best, least = name, d
		}
	}
	if best != "" && least <= max(2, len(unknown)/3) {
		return fmt.Sprintf("did you mean %s?", best)
	}
	if section, _, ok := strings.Cut(unknown, "."); ok {
		var siblings []string
		for _, name := range known {
			if strings.HasPrefix(name, section+".") {
				siblings = append(siblings, last(name))
			}
		}
		return fmt.Sprintf("[%s] has %s", section, strings.Join(siblings, ", "))
	}
	return "known are " + strings.Join(known, ", ")
}

// last is a key's name without its section.
func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// distance is how many letters have to be put in, left out or replaced to
// make one word of the other.
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1) // from[:i] against to[:j]
	for j := range row {
		row[j] = j
	}
	for i, r := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range to {
			replaced := diagonal
			if r != s {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(to)]
}
