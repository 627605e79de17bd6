package workspace

import (
	"io/fs"
	"os"
)

// mostWeight is what a sum of sizes is at most: what files with holes say of themselves
// never becomes a negative sum, here or where the sums of sessions are added up.
const mostWeight = 1 << 50

// add adds up what counts towards the disk limit.
func add(sum, weight int64) int64 { return min(sum+min(weight, mostWeight), mostWeight) }

// weighIn is what everything in a folder counts towards the disk limit, however deep
// folders lie in each other: a program with relative paths makes them as deep as it has
// room. What vanishes meanwhile counts nothing. It holds a few descriptors, whatever the
// depth, and no path. Where the folder itself cannot be read there is an error.
func weighIn(root *os.Root) (int64, error) {
	w := weigher{levels: []level{{root: root, done: func() {}}}}
	defer w.close()
	if err := w.read(&w.levels[0]); err != nil {
		return 0, err
	}
	for len(w.levels) > 0 {
		n := len(w.levels) - 1
		l := &w.levels[n]
		if len(l.folders) == 0 {
			w.leave()
			continue
		}
		next := l.folders[len(l.folders)-1]
		l.folders = l.folders[:len(l.folders)-1]
		if w.open(n) {
			w.enter(w.levels[n].root, next)
		}
	}
	return w.sum, nil
}

// weigher walks through folders. It keeps open the few above it, and of those further
// up ever fewer: the others are opened again when it comes back to them.
type weigher struct {
	levels []level // from the top to where it is
	sum    int64
}

// level is a folder on the way to where a weigher is.
type level struct {
	info    fs.FileInfo // of the folder, with its name
	folders []string    // in it, that were not entered yet
	root    *os.Root    // nil: it is not open now
	done    func()      // gives back what was taken to open it
}

// near is how many levels are kept open of those above; of every second one twice as
// many, and so on.
const near = 8

// keeps tells whether a level stays open while the deepest one is n.
func keeps(k, n int) bool { return k == 0 || n-k < near*(k&-k) }

// read counts what is in a folder, and notes the folders.
func (w *weigher) read(l *level) error {
	dir, err := l.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			info, err := l.root.Lstat(name)
			if err != nil {
				continue
			}
			if w.sum = add(w.sum, weight(info)); info.IsDir() {
				l.folders = append(l.folders, name)
			}
		}
		if len(names) == 0 || err != nil {
			return nil // what was read counts
		}
	}
}

// enter goes down into a folder.
func (w *weigher) enter(in *os.Root, name string) {
	info, err := in.Lstat(name)
	if err != nil || !info.IsDir() {
		return // it has gone meanwhile
	}
	sub, done, err := openFolder(in, name, info, 0o500)
	if err != nil {
		return // likewise, or it is not ours
	}
	w.levels = append(w.levels, level{info: info, root: sub, done: done})
	n := len(w.levels) - 1
	_ = w.read(&w.levels[n]) // what cannot be read counts nothing
	w.trim(n)
}

// trim closes the levels that need not be open while the deepest one is n.
func (w *weigher) trim(n int) {
	// Only those can be too far up now that are so many levels above.
	for far := near; far <= n; far *= 2 {
		if k := n - far; !keeps(k, n) {
			w.shut(k)
		}
	}
}

func (w *weigher) shut(k int) {
	if l := &w.levels[k]; l.root != nil {
		l.done()
		l.root, l.done = nil, nil
	}
}

// leave goes back up.
func (w *weigher) leave() {
	n := len(w.levels) - 1
	w.shut(n)
	w.levels = w.levels[:n]
}

// open makes sure that level n is open, and tells whether it could be: a folder that
// was moved meanwhile is not found again.
func (w *weigher) open(n int) bool {
	k := n
	for w.levels[k].root == nil {
		k--
	}
	for ; k < n; k++ {
		above, l := &w.levels[k], &w.levels[k+1]
		var err error
		if l.root, l.done, err = openFolder(above.root, l.info.Name(), l.info, 0o500); err != nil {
			l.root, l.done = nil, nil
			l.folders = nil
			return false
		}
		if k > 0 && !keeps(k, n) {
			w.shut(k)
		}
	}
	return true
}

func (w *weigher) close() {
	for k := range w.levels {
		w.shut(k)
	}
}
