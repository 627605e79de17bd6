package model

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/session"
)

// check compares a session with its twin: what it holds, and its checkpoints.
func (p *round) check(w *twin) {
	p.t.Helper()
	d, err := p.m.Details(p.t.Context(), w.owner, w.id)
	p.must(err)
	if d.Notice != "" {
		p.fail("of %s it says %q", w.id, d.Notice)
	}
	vars := map[string]string{}
	for _, v := range d.Variables {
		vars[v.Name] = v.Preview
	}
	if diff := difference(w.now().variables(), vars); diff != nil {
		p.fail("the variables of %s differ: %q", w.id, diff)
	}
	if d.Executions != w.runs {
		p.fail("%s had %d executions, want %d", w.id, d.Executions, w.runs)
	}
	p.checkFiles(w)
	p.checkLine(w)
}

// home is a session's folder on disk.
func (p *round) home(w *twin) string {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "owners", "*", string(w.id)))
	if err != nil || len(found) != 1 {
		p.fail("the folders of %s are %q, %v", w.id, found, err)
	}
	return found[0]
}

// onDisk gives the files of a session's folders.
func (p *round) onDisk(w *twin) map[string]string {
	home, files := p.home(w), map[string]string{}
	for _, folder := range []string{"workspace", "tmp"} {
		err := filepath.WalkDir(filepath.Join(home, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			rel, _ := filepath.Rel(home, path)
			files[filepath.ToSlash(rel)] = string(data)
			return err
		})
		p.must(err)
	}
	return files
}

func (p *round) checkFiles(w *twin) {
	p.t.Helper()
	if diff := difference(w.now().files, p.onDisk(w)); diff != nil {
		p.fail("the files of %s differ: %q", w.id, diff)
	}
}

func (p *round) checkLine(w *twin) {
	p.t.Helper()
	all, err := p.m.Checkpoints(w.owner, w.id)
	p.must(err)
	var got, want []string
	for _, c := range all {
		got = append(got, strings.Join([]string{c.ID, c.Cause, c.Label, c.Previous, strconv.FormatBool(c.Current)}, " "))
	}
	for _, o := range w.shown() {
		previous := ""
		if o.previous > 0 {
			previous = strconv.FormatInt(o.previous, 10)
		}
		want = append(want, strings.Join([]string{o.id(), o.cause, o.label, previous, strconv.FormatBool(o.number == w.head().of)}, " "))
	}
	if !slices.Equal(got, want) {
		p.fail("the checkpoints of %s are\n%s\nwant\n%s", w.id, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// list compares what owners have.
func (p *round) list() {
	for _, owner := range []session.Owner{alice, "bob", "mallory"} {
		all, err := p.m.List(owner)
		p.must(err)
		var got, want []string
		for _, i := range all {
			got = append(got, string(i.ID)+" "+strconv.FormatInt(i.Executions, 10))
		}
		for _, w := range p.twins {
			if w.owner == owner {
				want = append(want, string(w.id)+" "+strconv.FormatInt(w.runs, 10))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			p.fail("%s has %q, want %q", owner, got, want)
		}
	}
}
