package model

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/internal/blob/blobtest"
	"paddock/internal/commitlog"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// kill goes on with a copy of the state folder as it is, as after a SIGKILL
// between two calls: nobody let go of anything.
func (p *round) kill(*twin) {
	open := p.awake()
	there := sandboxtest.Memory(p.t)
	p.must(copyFolder(there, p.dir))
	p.must(p.m.Close())
	p.dir = there
	damaged := p.r.IntN(2) == 0
	p.note("kill, %d were open, files damaged: %v", len(open), damaged)
	for _, w := range open {
		w.crashed(damaged && p.damage(w))
	}
	p.open()
	p.checkAll()
}

// checkAll opens every session once.
func (p *round) checkAll() {
	for _, w := range p.twins {
		p.check(w)
	}
}

// awake are the twins of the sessions that are open.
func (p *round) awake() (open []*twin) {
	for _, w := range p.twins {
		i, err := p.m.Info(w.owner, w.id)
		p.must(err)
		if i.State != session.Asleep {
			open = append(open, w)
		}
	}
	return open
}

// damage changes a session's files as a program does that is cut short, or a
// disk that loses power, and tells whether it did.
func (p *round) damage(w *twin) (did bool) {
	home := p.home(w)
	for path, text := range w.now().files {
		name := filepath.Join(home, filepath.FromSlash(path))
		switch p.r.IntN(4) {
		case 0:
			p.must(os.Remove(name))
			did = true
		case 1:
			p.must(os.WriteFile(name, make([]byte, len(text)), 0o600))
			did = did || text != ""
		}
	}
	if p.r.IntN(2) == 0 {
		p.must(os.WriteFile(filepath.Join(home, "workspace", "half"), []byte("x"), 0o600))
		did = true
	}
	return did
}

// cutPower loses what was not synced, and begins a new process.
func (p *round) cutPower(*twin) {
	open := p.awake()
	p.disk.SetFault(blobtest.From(0, blobtest.ErrCut))
	p.must(p.m.Close())
	p.must(cutPower(p.disk, p.dir, p.r))
	p.note("cut power, %d were open", len(open))
	p.must(recovered(p.disk, p.dir))
	for _, w := range p.twins {
		w.may = unexpected // that it was told is not synced
		p.returned(w)
	}
	for _, w := range open {
		w.crashed(p.damage(w))
	}
	p.open()
	for _, w := range p.twins { // counts are not synced with every call
		i, err := p.m.Info(w.owner, w.id)
		p.must(err)
		if i.Executions > w.runs {
			p.fail("%s had %d executions, want %d at most", w.id, i.Executions, w.runs)
		}
		w.runs = i.Executions
	}
	p.checkAll()
}

// recovered recovers what was committed, as opening the folder does.
func recovered(disk *blobtest.Disk, dir string) error {
	log, err := commitlog.Open(commitlog.Options{Dir: dir, Files: disk, Boot: disk.Boot()})
	if err != nil {
		return err
	}
	return log.Close()
}

// cutPower loses power of a disk under a state folder, of which the sessions'
// own files survive: they are written past the disk.
func cutPower(disk *blobtest.Disk, dir string, r *rand.Rand) error {
	away, err := os.MkdirTemp(filepath.Dir(dir), "cut")
	if err != nil {
		return err
	}
	defer os.RemoveAll(away)
	trees, err := filepath.Glob(filepath.Join(dir, "owners", "*", "*", "*"))
	if err != nil {
		return err
	}
	saved := map[string]string{}
	for _, tree := range trees {
		if base := filepath.Base(tree); base != "workspace" && base != "tmp" {
			continue
		}
		to := filepath.Join(away, filepath.Base(filepath.Dir(tree))+"."+filepath.Base(tree))
		if err := os.Rename(tree, to); err != nil {
			return err
		}
		saved[tree] = to
	}
	if err := disk.Cut(r); err != nil {
		return err
	}
	for tree, from := range saved {
		if err := os.RemoveAll(tree); err != nil {
			return err
		}
		if err := os.Rename(from, tree); err != nil && !errors.Is(err, fs.ErrNotExist) { // its session is gone
			return err
		}
	}
	return nil
}

// copyFolder copies a state folder into an empty one, with times and modes, and
// without the index, which is written all the time and can be lost. The log goes first: what
// it holds no longer is at its place by then.
func copyFolder(to, from string) error {
	blobtest.SameBoot(to, from)
	log := filepath.Join(from, "log")
	err := os.MkdirAll(to, 0o700)
	if err == nil {
		err = copyTree(to, from, log, func(string) bool { return false })
	}
	return errors.Join(err, copyTree(to, from, from, func(path string) bool { return path == log }))
}

// copyTree copies what is below a folder of from, but for what is left out.
func copyTree(to, from, below string, out func(string) bool) error {
	var folders []string
	err := filepath.WalkDir(below, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(filepath.Base(path), "index.db") {
			return nil
		}
		if err == nil && out(path) {
			return fs.SkipDir
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			folders = append(folders, path)
			return os.MkdirAll(counterpart(to, from, path), 0o700)
		}
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(counterpart(to, from, path), data, 0o600)
		}
		if err == nil {
			err = copyInfo(to, from, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was collected just now
		}
		return err
	})
	for _, path := range slices.Backward(folders) {
		err = errors.Join(err, copyInfo(to, from, path))
	}
	return err
}

func copyInfo(to, from, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return errors.Join(os.Chmod(counterpart(to, from, path), info.Mode().Perm()), os.Chtimes(counterpart(to, from, path), time.Time{}, info.ModTime()))
}

// counterpart is where a path below one folder is below another.
func counterpart(to, from, path string) string {
	return to + strings.TrimPrefix(path, from)
}

// returned sees that all of a session's checkpoints are there after a power
// cut. Some that were given up may be there again.
func (p *round) returned(w *twin) {
	found, err := filepath.Glob(filepath.Join(p.dir, "checkpoints", "*", string(w.id), "*"))
	p.must(err)
	numbers := map[int64]bool{}
	for _, path := range found {
		if n, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(path), ".kept"), 10, 64); err == nil {
			numbers[n] = true
		}
	}
	for _, o := range w.line {
		if !numbers[o.number] {
			p.fail("the checkpoint %d of %s is lost", o.number, w.id)
		}
		delete(numbers, o.number)
	}
	for n := range numbers {
		if n > w.last || !w.returns(n) {
			p.fail("a checkpoint %d of %s is there", n, w.id)
		}
	}
}
