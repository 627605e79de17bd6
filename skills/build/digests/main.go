// Command digests writes down the digests of the ready skills, so that paddock need not
// compute them each time it starts: digests FILE. What files they have is what was
// embedded when it was built.
package main

import (
	"fmt"
	"os"
	"strings"

	"paddock/internal/skill"
	"paddock/skills"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: digests FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "paddock: skills:", err)
		os.Exit(1)
	}
}

// write makes the file, as a whole.
func write(file string) error {
	var lines strings.Builder
	for _, name := range skills.Available() {
		folder, err := skills.Open(name)
		if err != nil {
			return err
		}
		in, err := skill.ReadBuiltin(name, folder, "")
		if err != nil {
			return err
		}
		fmt.Fprintln(&lines, in.Digest, name)
	}
	temp := file + ".tmp"
	if err := os.WriteFile(temp, []byte(lines.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, file)
}
