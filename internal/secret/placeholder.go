package secret

import (
	"crypto/rand"
	"strings"

	"paddock/internal/secret/redact"
)

// Marker begins every placeholder. Text that has it leaves a sandbox in no other way than
// as a placeholder in its place.
const Marker = "paddock-secret-"

const (
	// random are the characters that make a placeholder one that nobody guesses: each has
	// five bits.
	random         = 26
	maxPlaceholder = len(Marker) + maxName + 1 + random
)

// newPlaceholder makes one. It has no characters but letters, digits, - and _.
func newPlaceholder(name string) string { return Marker + name + "-" + rand.Text()[:random] }

// cutPlaceholder gives the placeholder that a text, which has the Marker, begins with; "":
// it only looks so.
func cutPlaceholder(text string) string {
	rest := text[len(Marker):]
	head := rest[:min(len(rest), maxName+1)]
	name := len(head) - len(strings.TrimLeft(head, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))
	if name == 0 || name > maxName || len(rest) < name+1+random || rest[name] != '-' {
		return ""
	}
	if strings.Trim(rest[name+1:name+1+random], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return ""
	}
	return text[:len(Marker)+name+1+random]
}

// marks notices placeholders in other forms than their own.
var marks = redact.NewDetector(Marker)
