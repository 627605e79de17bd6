package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"paddock/internal/fault"
)

// maxFile bounds what is read: a configuration is a page or two.
const maxFile = 64 << 10

// readFile finds the file, reads it, and takes every key in it.
func (c *Config) readFile(src Source) error {
	path, text, err := open(src)
	if err != nil || path == "" {
		return err
	}
	c.File = path
	var content map[string]any
	if _, err := toml.Decode(text, &content); err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			return fault.New(fault.Invalid, "%s:%d: %s", path, at.Position.Line, at.Message).WithHint("the file is not TOML from there on")
		}
		return fault.New(fault.Invalid, "%s: %v", path, err)
	}
	f := file{config: c, path: path, lines: lines(text)}
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

// open gives the path and the text of the file to read; an empty path: none.
func open(src Source) (path, text string, err error) {
	if src.File != "" {
		text, err = read(src.File)
		return src.File, text, err
	}
	for _, path := range src.Search {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		text, err = read(path)
		return path, text, err
	}
	return "", "", nil
}

func read(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "there is no configuration file %s", path)
	}
	if err != nil {
		return "", fault.New(fault.Unavailable, "%v", err).WithCause(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fault.New(fault.Unavailable, "%v", err).WithCause(err)
	}
	if len(b) > maxFile {
		return "", fault.New(fault.Invalid, "%s: it is larger than %s", path, sizeText(maxFile))
	}
	return string(b), nil
}

// file is a configuration file while its keys are taken.
type file struct {
	config   *Config
	path     string
	lines    map[string]int
	mistakes []located
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
