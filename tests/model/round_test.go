package model

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/internal/blob/blobtest"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

var (
	modelSeed   = flag.Uint64("model.seed", 0, "the seed of the model test; 0: another one each time")
	modelLength = flag.Int("model.length", 100, "how many operations a round of the model test has")
	modelRounds = flag.Int("model.rounds", 0, "how many rounds the model test has; 0: five, or three where rounds are few")
)

// Sessions do what a simple model of them says, whatever is done to them in
// whatever order, and however processes end meanwhile.
func TestSessionsDoWhatTheModelSays(t *testing.T) {
	seed, rounds := *modelSeed, *modelRounds
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1e9)
	}
	if rounds == 0 {
		rounds = 5
		if few() {
			rounds = 3
		}
	}
	for k := range uint64(rounds) {
		t.Run(fmt.Sprint("seed ", seed+k), func(t *testing.T) {
			p := newRound(t, seed+k)
			for range *modelLength {
				p.act()
			}
			p.finale()
		})
	}
}

// round is one round: real sessions and their twins.
type round struct {
	t      *testing.T
	r      *rand.Rand
	forced sandbox.State

	dir   string
	disk  *blobtest.Disk
	m     *session.Manager
	twins []*twin
	step  int
	log   []string
}

// roundKeeps is how many checkpoints without a label there are.
const roundKeeps = 6

func newRound(t *testing.T, seed uint64) *round {
	p := &round{t: t, r: rand.New(rand.NewPCG(seed, 5)), forced: sandbox.Restored, dir: sandboxtest.Memory(t)}
	if p.r.IntN(4) == 0 {
		p.forced = sandbox.Fresh
	}
	p.open()
	return p
}

// open begins a process over the folder.
func (p *round) open() {
	disk, err := blobtest.New(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	p.disk = disk
	p.m = manager(p.t, session.Config{Dir: p.dir, Files: disk, Checkpoints: roundKeeps, MaxPerOwner: 3}, sandboxtest.FakeConfig{Forced: p.forced})
}

func (p *round) fail(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(p.log[max(0, len(p.log)-60):], "\n  "))
}

func (p *round) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%d: ", p.step)+fmt.Sprintf(format, args...))
}

// must fails the round where there is an error.
func (p *round) must(err error) {
	p.t.Helper()
	if err != nil {
		p.fail("%v (%v)", err, errors.Unwrap(fault.Of(err)))
	}
}

// refused fails the round unless the error is of this kind.
func (p *round) refused(err error, kind fault.Kind) {
	p.t.Helper()
	if fault.KindOf(err) != kind {
		p.fail("got %v (%s), want a fault.%s", err, fault.KindOf(err), kind)
	}
}

// deed is one operation on a session.
type deed struct {
	weight int
	do     func(*round, *twin)
}

var deeds = []deed{
	{40, (*round).run}, {14, (*round).writeFiles}, {8, (*round).checkpoint}, {14, (*round).undo}, {10, (*round).restore},
	{5, (*round).fork}, {8, (*round).sleep}, {3, (*round).reset}, {3, (*round).carry}, {2, (*round).destroy},
	{2, (*round).stranger}, {4, (*round).collect}, {3, (*round).reopen}, {3, (*round).kill}, {3, (*round).cutPower},
}

// act does one thing, and sees that the model knew.
func (p *round) act() {
	p.step++
	if len(p.twins) < 2 || p.r.IntN(25) == 0 && len(p.twins) < 6 {
		p.create()
		return
	}
	sum := 0
	for _, d := range deeds {
		sum += d.weight
	}
	n, w := p.r.IntN(sum), p.twins[p.r.IntN(len(p.twins))]
	for _, d := range deeds {
		if n -= d.weight; n < 0 {
			d.do(p, w)
			break
		}
	}
	if slices.Contains(p.twins, w) {
		p.check(w)
	}
	if p.r.IntN(10) == 0 {
		p.list()
	}
}

func (p *round) create() {
	owner := []session.Owner{alice, "bob"}[p.r.IntN(2)]
	i, err := p.m.Create(p.t.Context(), owner, "", session.Settings{})
	p.must(err)
	p.note("create %s of %s", i.ID, owner)
	p.twins = append(p.twins, begun(owner, i.ID, roundKeeps, "create", nothing()))
	p.check(p.twins[len(p.twins)-1])
}

func (p *round) run(w *twin) {
	prog := write(p.r, w.now(), p.step)
	p.note("run in %s: %.300q", w.id, prog.lines)
	res, err := prog.run(p.t, p.m, w)
	if prog.ends == "vanish" {
		p.refused(err, fault.Unavailable)
		if w.now().vars[prog.language] == nil {
			w.may = "its interpreter failed in an earlier call"
		}
		return
	}
	p.must(err)
	left, notice := prog.leaves(w.now(), res.Exit, p.forced)
	if !strings.Contains(res.Notice, w.told) || !strings.Contains(res.Notice, notice) || w.told+w.may+notice == "" && res.Notice != "" {
		p.fail("the notice is %q, want %q and %q", res.Notice, w.told, notice)
	}
	if (res.Exit.Error == nil) != (prog.ends == "well" || prog.ends == "exit") {
		p.fail("it ended with %+v, error %+v", res.Exit, res.Exit.Error)
	}
	if got, want := changed(res.Changes), difference(w.now().under("workspace"), left.under("workspace")); !subset(want, got) {
		p.fail("the changes are %q, want %q", got, want)
	}
	if w.told = ""; w.may != "" && strings.Contains(res.Notice, w.may) {
		w.may = ""
	}
	w.runs++
	w.commit("execute", "", left)
}

// changed gives changes as difference does.
func changed(list []session.Change) (all []string) {
	for _, c := range list {
		all = append(all, c.Change+" "+c.Path)
	}
	slices.Sort(all)
	return all
}

// subset tells whether all of some are in others: a file that was written
// again as it was may be told of or not.
func subset(some, others []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(others, s) })
}

func (p *round) writeFiles(w *twin) {
	tree, done, err := p.m.Files(w.owner, w.id)
	p.must(err)
	defer done()
	at := w.now().clone()
	path, there := pick(p.r.IntN, at.under("workspace"))
	switch kind := p.r.IntN(4); {
	case kind == 0 && there:
		p.note("remove %s in %s", path, w.id)
		p.must(tree.RemoveFile(path, nil))
		delete(at.files, "workspace/"+path)
	case kind == 1 && there && at.files["workspace/"+path] != "":
		p.note("edit %s in %s", path, w.id)
		text := fmt.Sprint("edited ", p.step)
		_, err := tree.Edit(path, at.files["workspace/"+path], text, false)
		p.must(err)
		at.files["workspace/"+path] = text
	case kind == 2 && len(at.under("workspace/d")) > 0:
		p.note("remove d in %s", w.id)
		for name := range at.under("workspace/d") {
			p.must(tree.RemoveFile("d/"+name, nil))
			at = at.clone()
			delete(at.files, "workspace/d/"+name)
			w.commit("files", "", at) // of each there is a checkpoint
		}
		return
	default:
		path = []string{"f0", "g1", "d/a", "d/b"}[p.r.IntN(4)]
		p.note("write %s in %s", path, w.id)
		text := strings.Repeat(fmt.Sprint(p.step, " "), p.r.IntN(300))
		_, err := tree.Write(path, []byte(text))
		p.must(err)
		at.files["workspace/"+path] = text
	}
	w.commit("files", "", at)
}

func (p *round) checkpoint(w *twin) {
	label := []string{"", "one", "two", "three"}[p.r.IntN(4)]
	p.note("checkpoint %q of %s", label, w.id)
	c, err := p.m.Checkpoint(p.t.Context(), w.owner, w.id, label)
	p.must(err)
	w.commit("checkpoint", label, w.now())
	if c.ID != w.head().id() || !c.Current {
		p.fail("it is %+v", c)
	}
}

func (p *round) undo(w *twin) {
	p.note("undo in %s", w.id)
	got, err := p.m.Undo(p.t.Context(), w.owner, w.id)
	to, ok := w.undone()
	if !ok {
		p.refused(err, fault.Conflict)
		return
	}
	p.arrived(w, to, got, err)
}

func (p *round) restore(w *twin) {
	name := []string{"one", "two", "three", strconv.FormatInt(1+p.r.Int64N(w.last+1), 10)}[p.r.IntN(4)]
	p.note("restore %q in %s", name, w.id)
	got, err := p.m.Restore(p.t.Context(), w.owner, w.id, name)
	to, ok := w.find(name)
	if !ok {
		p.refused(err, fault.NotFound)
		return
	}
	p.arrived(w, to, got, err)
}

// arrived is went for a point that may not be whole.
func (p *round) arrived(w *twin, to point, got session.Restored, err error) {
	if err != nil && to.returned {
		p.refused(err, fault.Unavailable)
		return
	}
	p.must(err)
	p.went(w, to, got)
}

// went checks what going back says, and lets the model follow.
func (p *round) went(w *twin, to point, got session.Restored) {
	want := difference(w.now().under("workspace"), to.at.under("workspace"))
	if files := changed(got.Changes); !slices.Equal(files, want) {
		p.fail("the changes are %q, want %q", files, want)
	}
	var vars []string
	for _, v := range got.Variables {
		vars = append(vars, v.Change+" "+v.Name)
	}
	slices.Sort(vars)
	if want := difference(w.now().variables(), to.at.variables()); !slices.Equal(vars, want) {
		p.fail("the variables' changes are %q, want %q", vars, want)
	}
	if got.Checkpoint.ID != to.id() || got.Undone != strconv.FormatInt(w.head().of, 10) {
		p.fail("it says %+v", got)
	}
	w.back(to)
	if w.told != "" { // of a call that nobody is at any more
		w.told, w.may = "", w.told
	}
}

func (p *round) fork(w *twin) {
	if len(p.twins) > 6 {
		return
	}
	from, name := w.head(), ""
	if shown := w.shown(); p.r.IntN(2) == 0 {
		from = shown[p.r.IntN(len(shown))]
		name = from.id()
	}
	p.note("fork %s at %q", w.id, name)
	forks, err := p.m.Fork(p.t.Context(), w.owner, w.id, name, 1+p.r.IntN(2))
	if err != nil && from.returned {
		p.refused(err, fault.Unavailable)
		return
	}
	p.must(err)
	for _, i := range forks {
		f := begun(w.owner, i.ID, roundKeeps, "fork", from.at)
		p.twins = append(p.twins, f)
		p.check(f)
	}
}

func (p *round) sleep(w *twin) {
	p.note("sleep %s", w.id)
	p.must(p.m.Sleep(w.owner, w.id))
	if i, err := p.m.Info(w.owner, w.id); err != nil || i.State != session.Asleep {
		p.fail("it is %+v, %v", i, err)
	}
}

func (p *round) reset(w *twin) {
	p.note("reset %s", w.id)
	n, err := p.m.Reset(p.t.Context(), w.owner, w.id)
	p.must(err)
	if want := len(w.now().under("workspace")); n != want {
		p.fail("%d files were deleted, want %d", n, want)
	}
	w.commit("reset", "", nothing())
	w.told = "" // of what was before
}

// carry exports a session and imports it for somebody.
func (p *round) carry(w *twin) {
	owner := []session.Owner{alice, "bob"}[p.r.IntN(2)]
	p.note("export %s to %s", w.id, owner)
	var archive bytes.Buffer
	p.must(p.m.Export(p.t.Context(), w.owner, w.id, &archive))
	if len(p.twins) > 6 {
		return
	}
	i, notice, err := p.m.Import(p.t.Context(), owner, "", &archive)
	p.must(err)
	if notice != "" {
		p.fail("it says %q", notice)
	}
	made := begun(owner, i.ID, roundKeeps, "import", w.now())
	p.twins = append(p.twins, made)
	p.check(made)
}

func (p *round) destroy(w *twin) {
	p.note("destroy %s", w.id)
	p.must(p.m.Destroy(p.t.Context(), w.owner, w.id))
	p.twins = slices.DeleteFunc(p.twins, func(o *twin) bool { return o == w })
	_, err := p.m.Info(w.owner, w.id)
	p.refused(err, fault.NotFound)
}

func (p *round) stranger(w *twin) {
	p.note("a stranger at %s", w.id)
	_, err := p.m.Restore(p.t.Context(), "mallory", w.id, w.head().id())
	p.refused(err, fault.NotFound)
	_, err = p.m.Fork(p.t.Context(), "mallory", w.id, "", 1)
	p.refused(err, fault.NotFound)
}

func (p *round) collect(*twin) {
	p.note("collect")
	_, err := p.m.Collect(p.t.Context())
	p.must(err)
}

// reopen ends the process in peace and begins another.
func (p *round) reopen(*twin) {
	p.must(p.m.Close())
	if p.r.IntN(2) == 0 {
		p.note("reopen without the index")
		p.loseIndex()
	} else {
		p.note("reopen")
	}
	p.open()
}

func (p *round) loseIndex() {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(p.dir, "index.db"+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.fail("%v", err)
		}
	}
}

// finale restores whatever can be restored, and then removes everything.
func (p *round) finale() {
	p.must(p.m.Close())
	p.open()
	for _, w := range p.twins {
		for _, to := range w.shown() {
			p.step++
			if _, ok := w.find(to.id()); !ok {
				continue // given up meanwhile
			}
			p.note("restore %s of %s at the end", to.id(), w.id)
			got, err := p.m.Restore(p.t.Context(), w.owner, w.id, to.id())
			p.arrived(w, to, got, err)
			p.check(w)
		}
	}
	p.list()
	for _, w := range slices.Clone(p.twins) {
		p.destroy(w)
	}
	p.collect(nil)
	if got, err := p.m.Collect(p.t.Context()); err != nil || !reflect.DeepEqual(got, session.Collected{}) {
		p.fail("something was left: %+v, %v", got, err)
	}
	for _, kind := range []string{"owners", "checkpoints"} {
		if n := count(p.t, filepath.Join(p.dir, kind)); n != 0 {
			p.fail("%d files are left of %s", n, kind)
		}
	}
}
