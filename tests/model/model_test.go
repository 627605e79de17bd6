package model

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"paddock/internal/session"
)

// moment is what the model says that a session holds.
type moment struct {
	vars  map[string]map[string]int64 // of each runtime that ever ran
	files map[string]string           // "workspace/f" and "tmp/f"
}

func (m moment) clone() moment {
	c := moment{vars: map[string]map[string]int64{}, files: maps.Clone(m.files)}
	for runtime, vars := range m.vars {
		c.vars[runtime] = maps.Clone(vars)
	}
	return c
}

func nothing() moment { return moment{vars: map[string]map[string]int64{}, files: map[string]string{}} }

// point is a checkpoint as the model has it.
type point struct {
	number, of, previous int64
	label, cause         string
	at                   moment // nobody changes it
	returned             bool   // it had been given up, and a power cut brought it back, maybe not whole
}

func (p point) id() string { return strconv.FormatInt(p.number, 10) }

// twin is the model of one session: a line of points, the last of which is
// where it is.
type twin struct {
	owner session.Owner
	id    session.ID
	most  int // points without a label
	line  []point
	gone  []point // given up
	last  int64
	runs  int64
	told  string // what the next result's notice has to say
	may   string // what it may say
}

// begun is a new session's twin.
func begun(o session.Owner, id session.ID, most int, cause string, at moment) *twin {
	w := &twin{owner: o, id: id, most: most}
	w.commit(cause, "", at)
	return w
}

func (w *twin) head() point { return w.line[len(w.line)-1] }

func (w *twin) now() moment { return w.head().at }

func (w *twin) commit(cause, label string, at moment) {
	p := point{number: w.last + 1, of: w.last + 1, label: label, cause: cause, at: at.clone()}
	if len(w.line) > 0 {
		p.previous = w.head().of
	}
	w.add(p)
}

// back makes an earlier point the session's state again.
func (w *twin) back(to point) {
	w.add(point{number: w.last + 1, of: to.of, previous: to.previous, at: to.at})
}

func (w *twin) add(p point) {
	if n := len(w.line); n > 0 && w.line[n-1].of != w.line[n-1].number {
		w.give(n - 1) // it only repeated another, and nobody goes back to it
	}
	w.line = append(w.line, p)
	w.last = p.number
	most := w.most
	if p.of != p.number {
		most++ // it only repeats another
	}
	for w.unlabelled() > most {
		k := slices.IndexFunc(w.line, func(o point) bool {
			return o.label == "" && o.number != p.number && o.number != p.of && o.number != p.previous
		})
		if k < 0 {
			return
		}
		w.give(k)
	}
}

// give gives one up.
func (w *twin) give(k int) {
	w.gone = append(w.gone, w.line[k])
	w.line = slices.Delete(w.line, k, k+1)
}

// returns takes one back that was given up, after a power cut, and tells
// whether it knew it.
func (w *twin) returns(number int64) bool {
	k := slices.IndexFunc(w.gone, func(p point) bool { return p.number == number })
	if k < 0 {
		return false
	}
	p := w.gone[k]
	p.returned = true
	w.gone = slices.Delete(w.gone, k, k+1)
	at, _ := slices.BinarySearchFunc(w.line, number, func(o point, n int64) int { return cmp.Compare(o.number, n) })
	w.line = slices.Insert(w.line, at, p)
	return true
}

func (w *twin) unlabelled() (n int) {
	for _, p := range w.line {
		if p.label == "" {
			n++
		}
	}
	return n
}

// unexpected is what results say after a crash that damaged files.
const unexpected = "The server ended unexpectedly"

// crashed is what opening does after a process that did not let go: the last
// point is begun from once more.
func (w *twin) crashed(damaged bool) {
	if damaged {
		w.told = unexpected
	}
	if damaged || len(w.now().vars) > 0 {
		w.back(w.head())
	}
}

// shown are the points that can be gone back to.
func (w *twin) shown() []point {
	return slices.DeleteFunc(slices.Clone(w.line), func(p point) bool { return p.of != p.number })
}

// find gives the point that a call means by a name.
func (w *twin) find(name string) (point, bool) {
	for _, p := range slices.Backward(w.shown()) {
		if p.id() == name || p.label == name && name != "" {
			return p, true
		}
	}
	return point{}, false
}

// undone gives the point that undo leads to.
func (w *twin) undone() (point, bool) {
	k := slices.IndexFunc(w.line, func(p point) bool { return p.number == w.head().previous })
	if k < 0 {
		return point{}, false
	}
	return w.line[k], true
}

// variables are all of a moment's, by name: runtimes use different ones.
func (m moment) variables() map[string]string {
	all := map[string]string{}
	for _, vars := range m.vars {
		for name, v := range vars {
			all[name] = strconv.FormatInt(v, 10)
		}
	}
	return all
}

// difference lists what differs between two maps, sorted, as "added x".
func difference[V comparable](before, after map[string]V) (all []string) {
	for name, v := range after {
		switch old, there := before[name]; {
		case !there:
			all = append(all, "added "+name)
		case old != v:
			all = append(all, "modified "+name)
		}
	}
	for name := range before {
		if _, there := after[name]; !there {
			all = append(all, "removed "+name)
		}
	}
	slices.Sort(all)
	return all
}

// under gives the files of one folder, by their paths in it.
func (m moment) under(folder string) map[string]string {
	files := map[string]string{}
	for path, text := range m.files {
		if path, ok := cutFolder(path, folder); ok {
			files[path] = text
		}
	}
	return files
}

func cutFolder(path, folder string) (string, bool) {
	n := len(folder) + 1
	if len(path) > n && path[:n] == folder+"/" {
		return path[n:], true
	}
	return "", false
}

// pick gives one key of a map, the same for the same random numbers.
func pick[K cmp.Ordered, V any](intn func(int) int, m map[K]V) (k K, ok bool) {
	if len(m) == 0 {
		return k, false
	}
	return slices.Sorted(maps.Keys(m))[intn(len(m))], true
}
