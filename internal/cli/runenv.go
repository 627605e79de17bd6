package cli

import (
	"bufio"
	"errors"
	"io/fs"
	"maps"
	"os"
	"strings"

	"paddock/internal/fault"
)

// environment adds to the variables of programs what a person gives by -e and --env-file;
// -e counts where both have a name.
func environment(has map[string]string, given, files []string) (map[string]string, error) {
	all := maps.Clone(has)
	if all == nil {
		all = map[string]string{}
	}
	for _, name := range files {
		if err := readVariables(name, all); err != nil {
			return nil, err
		}
	}
	for _, text := range given {
		if err := setVariable(all, text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// readVariables reads KEY=VALUE lines; # begins a line that does not count.
func readVariables(name string, to map[string]string) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "there is no file %q", name)
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the file %.200q cannot be read", name).WithCause(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := setVariable(to, line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fault.New(fault.Invalid, "%.200q is not a file of variables", name).WithCause(err)
	}
	return nil
}

// setVariable sets KEY=VALUE; KEY alone has the value that paddock's own variable has.
func setVariable(to map[string]string, text string) error {
	key, value, ok := strings.Cut(text, "=")
	if key == "" || strings.ContainsAny(key, " \t\x00") || strings.ContainsRune(value, 0) {
		return usage("%.100q is not a variable", text).WithHint("give KEY=VALUE, or KEY to pass paddock's own on")
	}
	if !ok {
		if value, ok = os.LookupEnv(key); !ok {
			return nil
		}
	}
	to[key] = value
	return nil
}
