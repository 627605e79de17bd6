package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// maxFile bounds what is read: a configuration is a page or two.
const maxFile = 64 << 10

// readFile finds the file, reads it, and takes every key in it.
func (c *Config) readFile(src Source) error {
	path, text, ofProject, err := c.open(src)
	if err != nil || path == "" {
		return err
	}
	return c.take(path, text, ofProject)
}

// Project reads the text of a working folder's file, of which path is the name, as it
// would count once it is trusted. The rest is defaults.
func Project(path string, text []byte) (*Config, error) {
	c := defaults()
	return c, c.take(path, string(text), true)
}

// take takes every key of a file.
func (c *Config) take(path, text string, ofProject bool) error {
	c.File, c.OfProject = path, ofProject
	content, text, err := c.decode(path, text)
	if err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			return fault.New(fault.Invalid, "%s:%d: %s", path, at.Position.Line, at.Message).WithHint("the file is not TOML from there on")
		}
		return fault.New(fault.Invalid, "%s: %v", path, err)
	}
	f := file{config: c, path: path, ofProject: ofProject, lines: lines(text)}
	f.adopt(content)
	for section, v := range content {
		f.section(section, v)
	}
	slices.SortStableFunc(f.mistakes, func(a, b located) int { return a.line - b.line })
	var all []error
	for _, m := range f.mistakes {
		all = append(all, m.error)
	}
	return errors.Join(all...)
}

// open gives the path and the text of the file to read; an empty path: none. What the
// working folder has is read once: what was trusted is what counts.
func (c *Config) open(src Source) (path, text string, ofProject bool, err error) {
	if src.File != "" {
		b, err := read(src.File, false) // a pipe too
		return src.File, string(b), false, err
	}
	if src.Project != "" && !src.sameAsOwn() {
		b, trusted := src.project()
		if trusted {
			return src.Project, string(b), true, nil
		}
		if isFile(src.Project) {
			c.Ignored = src.Project
		}
	}
	for _, path := range src.Search {
		if !isFile(path) {
			continue
		}
		b, err := read(path, false)
		return path, string(b), false, err
	}
	return "", "", false, nil
}

// sameAsOwn tells whether the working folder's file is one of the user's own.
func (src Source) sameAsOwn() bool {
	here, err := os.Stat(src.Project)
	return err == nil && slices.ContainsFunc(src.Search, func(path string) bool {
		own, err := os.Stat(path)
		return err == nil && os.SameFile(here, own)
	})
}

// project gives what the working folder's file has, where that is trusted.
func (src Source) project() ([]byte, bool) {
	if src.Trusted == nil {
		return nil, false
	}
	b, err := ReadProject(src.Project)
	return b, err == nil && src.Trusted(src.Project, b)
}

// isFile tells whether there is an ordinary file, or one of which that cannot be told.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// ReadProject gives what the file of a working folder has. Nothing but an ordinary file is
// read: whoever made the folder may have made a pipe.
func ReadProject(path string) ([]byte, error) { return read(path, true) }

func read(path string, ordinary bool) ([]byte, error) {
	flags := os.O_RDONLY
	if ordinary {
		flags |= nonblock
	}
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "there is no configuration file %s", path)
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "%v", err).WithCause(err)
	}
	defer f.Close()
	if info, err := f.Stat(); ordinary && (err != nil || !info.Mode().IsRegular()) {
		return nil, fault.New(fault.Invalid, "%s is not an ordinary file", path)
	}
	tooLarge := fault.New(fault.Invalid, "%s: it is larger than %s", path, sizeText(maxFile))
	b, err := iolimit.ReadAll(f, maxFile, tooLarge)
	if err != nil && !errors.Is(err, tooLarge) {
		return nil, fault.New(fault.Unavailable, "%v", err).WithCause(err)
	}
	return b, err
}

// file is a configuration file while its keys are taken.
type file struct {
	config    *Config
	path      string
	ofProject bool // it came with the working folder
	lines     map[string]int
	mistakes  []located
}

type located struct {
	line  int
	error error
}

func (f *file) at(name string) string { return fmt.Sprintf("%s:%d", f.path, f.line(name)) }

// line is where a key stands, or what it stands in.
func (f *file) line(name string) int {
	for f.lines[name] == 0 && strings.Contains(name, ".") {
		name = name[:strings.LastIndexByte(name, '.')]
	}
	return f.lines[name]
}

func (f *file) mistake(name string, err error) {
	f.mistakes = append(f.mistakes, located{f.line(name), err})
}

func (f *file) section(section string, v any) {
	table, isTable := v.(map[string]any)
	known := slices.Contains(fileSections(), section)
	var err *fault.Error
	_, whole := find(section)
	switch {
	case section == serversSection && isTable:
		f.servers(table)
		return
	case whole && isTable:
		f.key(section, v)
		return
	case known && isTable:
		for name, v := range table {
			f.key(section+"."+name, v)
		}
		return
	case known:
		err = fault.New(fault.Invalid, "%s: %s is a section, not a key", f.at(section), section).
			WithHint("write [%s] on a line, and its keys below", section)
	case isTable:
		err = fault.New(fault.Invalid, "%s: unknown section [%s]", f.at(section), section).
			WithHint("%s", suggest(section, fileSections()))
	default:
		err = fault.New(fault.Invalid, "%s: unknown key %q outside of a section", f.at(section), section).
			WithHint("%s", suggest(section, names()))
	}
	f.mistake(section, err)
}

func (f *file) key(name string, v any) {
	k, known := find(name)
	inner, isTable := v.(map[string]any)
	if isTable && slices.ContainsFunc(names(), func(other string) bool { return strings.HasPrefix(other, name+".") }) {
		for inside, v := range inner {
			f.key(name+"."+inside, v)
		}
		return
	}
	if !known {
		f.mistake(name, fault.New(fault.Invalid, "%s: unknown key %q", f.at(name), name).
			WithHint("%s", suggest(name, names())))
		return
	}
	if f.ofProject && k.usersOwn {
		f.mistake(name, fault.New(fault.Denied, "%s: %s: a project's file cannot set it", f.at(name), name).
			WithHint("set it in the user's own file, or with %s", k.Vars()[0]))
		return
	}
	if err := k.fromFile(f.config, v); err != nil {
		f.mistake(name, mistake(f.at(name), k, err))
		return
	}
	f.config.origins[name] = f.at(name)
}

// lines tells in which line of a correct TOML text each key stands. It goes
// through the text piece by piece: a piece is as many lines as it takes to be
// correct by themselves, which is a header or a key with its value.
func lines(text string) map[string]int {
	at := map[string]int{}
	var header toml.Key
	piece, begin := "", 1
	for i, line := range strings.Split(text, "\n") {
		piece += line + "\n"
		var content map[string]any
		meta, err := toml.Decode(piece, &content)
		if err != nil {
			continue // the value goes on in the next line
		}
		isHeader := strings.HasPrefix(strings.TrimSpace(piece), "[")
		for _, k := range meta.Keys() {
			full := slices.Concat(header, k)
			if isHeader {
				full, header = k, k
			}
			for n := 1; n <= len(full); n++ { // a.b = 1 begins a as well
				if name := strings.Join(full[:n], "."); at[name] == 0 {
					at[name] = begin
				}
			}
		}
		piece, begin = "", i+2
	}
	return at
}
