package skill

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"paddock/internal/fault"
)

// maxCode bounds a program that is saved, in bytes, and maxTags how many tags.
const maxCode, maxTags = 256 << 10, 20

var tagOf = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// Languages are those in which skills are saved.
var Languages = []string{"python", "javascript", "typescript"}

// written makes the folder of a skill of a program: its code is Python where language says
// nothing else. It declares nothing: its code may use what
// whoever runs it may.
func written(name, language, code, description string, tags []string) (Folder, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	switch language {
	case "":
		language = "python"
	default:
		if !slices.Contains(Languages, language) {
			return nil, fault.New(fault.Invalid, "skills are not written in %.50q", language).WithHint("language is %s", strings.Join(Languages, ", "))
		}
	}
	if strings.TrimSpace(code) == "" || len(code) > maxCode || !utf8.ValidString(code) || strings.ContainsRune(code, 0) {
		return nil, fault.New(fault.Invalid, "the code of a skill is text of 1 to %d bytes", maxCode)
	}
	if n := utf8.RuneCountInString(description); n > maxDescription {
		return nil, fault.New(fault.Invalid, "the description has %d characters, and may have %d", n, maxDescription).WithHint("shorten it")
	}
	if description = strings.TrimSpace(description); description == "" {
		return nil, fault.New(fault.Invalid, "the skill has no description").WithHint("say what it does and when to use it: later sessions find it by that")
	}
	if len(tags) > maxTags {
		return nil, fault.New(fault.Invalid, "there are more than %d tags", maxTags)
	}
	for _, tag := range tags {
		if !tagOf.MatchString(tag) {
			return nil, fault.New(fault.Invalid, "%.50q is not a tag", tag).WithHint("a tag has at most 32 of a-z, 0-9, - and _")
		}
	}
	matter := struct {
		Name        string            `yaml:"name"`
		Description string            `yaml:"description"`
		Metadata    map[string]string `yaml:"metadata,omitempty"`
	}{name, description, nil}
	if len(tags) > 0 {
		matter.Metadata = map[string]string{manifestKey + ".tags": strings.Join(tags, " ")}
	}
	head, err := yaml.Marshal(matter)
	if err != nil {
		return nil, fmt.Errorf("writing a skill: %w", err)
	}
	marks := strings.Repeat("`", max(3, longestRun(code, '`')+1))
	text := fmt.Sprintf("---\n%s---\n\n# %s\n\n%s%s\n%s\n%s\n", head, name, marks, language+" "+wholeModule, strings.TrimRight(code, "\n"), marks)
	return newFolder([]File{{Path: MainFile, Data: []byte(text)}})
}

// longestRun is how often a byte stands in a row, at most.
func longestRun(text string, of byte) (most int) {
	run := 0
	for _, c := range []byte(text) {
		if c != of {
			run = 0
			continue
		}
		run++
		most = max(most, run)
	}
	return most
}
