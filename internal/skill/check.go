package skill

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// Skill is a folder that was checked.
type Skill struct {
	FrontMatter
	Folder Folder
	// Instructions is SKILL.md without its front matter.
	Instructions string
	// Warnings are in the order of the files.
	Warnings []Warning

	fields *yaml.Node // of the front matter
}

// maxMain bounds SKILL.md: a model is to read it.
const maxMain = 1 << 20

// Check reads a skill's folder. Where it is called folder at its source, its name
// has to be that, or, if nobody chose that one (given is false), should. All that
// is wrong with SKILL.md is reported at once, as faults.
func Check(f Folder, folder string, given bool) (*Skill, error) {
	s, err := readSkill(f, folder, given)
	if err == nil {
		s.Warnings = append(append(s.Warnings, s.hiddenFields()...), hidden(f)...)
	}
	return s, err
}

// readSkill looks at all but what texts hide.
func readSkill(f Folder, folder string, given bool) (*Skill, error) {
	main, ok := f.Get(MainFile)
	if !ok {
		err := fault.New(fault.Invalid, "there is no %s", MainFile).WithHint("a skill is a folder with that file")
		for _, file := range f {
			if strings.EqualFold(file.Path, MainFile) {
				err = err.WithHint("%.100q has to be called that", file.Path)
			}
		}
		return nil, err
	}
	if len(main.Data) > maxMain {
		return nil, fault.New(fault.Exhausted, "%s has more than %d MiB", MainFile, maxMain>>20).WithHint("move texts into references/")
	}
	read, err := parseFrontMatter(main.Data)
	if err != nil {
		return nil, err
	}
	s := &Skill{FrontMatter: read.FrontMatter, Folder: f, Instructions: read.body, Warnings: read.warnings, fields: read.fields}
	switch {
	case folder == "" || folder == s.Name:
	case given:
		return nil, fault.New(fault.Invalid, "the skill is called %q, and its folder %.100q", s.Name, folder).WithHint("they have to be the same; its author can rename one")
	default:
		s.Warnings = append(s.Warnings, Warning{MainFile, 0, "it is called " + s.Name + ", and came from " + textsafe.Escape(folder)})
	}
	if s.Instructions == "" {
		s.Warnings = append(s.Warnings, Warning{MainFile, 0, "it has no instructions"})
	}
	if nested(s.Instructions) {
		s.Warnings = append(s.Warnings, Warning{MainFile, 0, "its lists or quotes are too deep: no code in it can be imported"})
	}
	for _, name := range slices.Sorted(maps.Keys(s.instead())) {
		s.Warnings = append(s.Warnings, Warning{name, 0, "programs see paddock's file in its place, without which the skill could not be imported"})
	}
	return s, nil
}

// hiddenFields finds what YAML's escapes hide from who looks at the file.
func (s *Skill) hiddenFields() (all []Warning) {
	texts := map[string]string{"description": s.Description, "license": s.License, "compatibility": s.Compatibility}
	for key, value := range s.Metadata {
		texts["metadata."+textsafe.Escape(key)] = key + value
	}
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		if found := hiddenIn(texts[field]); len(found) > 0 {
			all = append(all, Warning{MainFile, 0, field + " holds " + found[0].what})
		}
	}
	return all
}
