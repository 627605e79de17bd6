package config

import (
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
)

// suggest says which of the known names an unknown one may have meant.
func suggest(unknown string, known []string) string {
	best, least := "", len(unknown)+1
	for _, name := range known {
		d := levenshtein.ComputeDistance(unknown, name)
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

// Suggest says which of the known words an unknown one may have meant, or
// which there are.
func Suggest(unknown string, known []string) string { return suggest(unknown, known) }

// last is a key's name without its section.
func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
