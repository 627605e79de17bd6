package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/blob/blobtest"
	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// lasting is what is done while the disk does not work: nothing that would let
// go of the session.
var lasting = []step{counts(11), putsFile("f", "over it"), undoes, counts(12), labels, runs("j = 13", "javascript", func(m moment) { m.vars["javascript"]["j"] = 13 }), counts(14)}

func TestADiskThatWorksAgainHasLostNothing(t *testing.T) {
	whole := func(op blobtest.Op) error { return syscall.EIO }
	for name, f := range map[string]func(blobtest.Op) error{"a full disk": blobtest.FullFrom(0), "a disk that does nothing": whole} {
		for _, end := range []string{"goes on", "killed"} {
			for n := range lasting {
				t.Run(fmt.Sprintf("%s, %s after %d calls", name, end, n+1), func(t *testing.T) {
					r := newFaultySession(t)
					_ = r.begin()
					for _, s := range use[:6] {
						r.take(s)
					}
					maybe := []moment{r.now}
					r.disk.SetFault(f)
					for _, s := range lasting[:n+1] {
						if r.take(s) {
							r.fail("%s was acknowledged", s.name)
						}
						maybe = append(maybe, r.now)
					}
					if end == "killed" {
						r.killed(maybe)
					}
					r.disk.SetFault(nil)
					if !r.take(counts(15)) || !r.take(undoes) {
						r.fail("it does not go on")
					}
					r.is(r.now)
					r.reopened()
				})
			}
		}
	}
}

// killed goes on in a new process, with the state that is on the disk, which has
// to be one of some.
func (r *faultySession) killed(maybe []moment) {
	r.t.Helper()
	there := sandboxtest.Memory(r.t)
	if err := copyFolder(there, r.dir); err != nil {
		r.fail("%v", err)
	}
	if err := r.m.Close(); err != nil {
		r.log.add("close: %v", err)
	}
	disk, err := blobtest.New(there)
	if err != nil {
		r.fail("%v", err)
	}
	r.dir, r.disk = there, disk
	r.reborn(maybe)
}

// reborn opens the folder again: the session has to be one of some.
func (r *faultySession) reborn(maybe []moment) {
	r.t.Helper()
	if err := r.open(); err != nil {
		r.fail("%v", err)
	}
	r.now, r.loose = r.is(maybe...), false
	if !same(r.now, r.twin.now()) { // what was under way is there
		r.twin.commit("execute", "", r.now)
	}
}

// What was acknowledged is there after a power cut anywhere, and what was under
// way is there whole or not at all.
func TestAPowerCutLosesNothingThatWasAcknowledged(t *testing.T) {
	rounds := 10
	if few() {
		rounds = 4
	}
	seed := rand.Uint64N(1e9)
	if *modelSeed != 0 {
		seed = *modelSeed
	}
	for k := range uint64(rounds) {
		t.Run(fmt.Sprint("seed ", seed+k), func(t *testing.T) { powerCut(t, rand.New(rand.NewPCG(seed+k, 1))) })
	}
}

func powerCut(t *testing.T, random *rand.Rand) {
	r := newFaultySession(t)
	if err := r.begin(); err != nil {
		r.fail("%v", err)
	}
	for range 3 {
		r.disk.SetFault(blobtest.From(r.disk.Ops()+1+random.IntN(600), blobtest.ErrCut))
		r.blind = true
		ok := true
		for _, s := range use {
			if ok = r.take(s); !ok {
				break
			}
		}
		maybe := []moment{r.twin.now(), r.was, r.after}
		if ok {
			maybe = maybe[:1]
		}
		awake := false
		if i, err := r.m.Info(alice, r.id); err == nil {
			awake = i.State != session.Asleep
		}
		r.disk.SetFault(blobtest.From(0, blobtest.ErrCut))
		if err := r.m.Close(); err != nil {
			r.log.add("close: %v", err)
		}
		if err := cutPower(r.disk, r.dir, random); err != nil {
			r.fail("%v", err)
		}
		r.log.add("CUT (awake %v)", awake)
		if awake && !r.released() {
			r.ruin(random)
		}
		r.blind = false
		r.reborn(maybe)
		if !r.take(counts(int64(random.IntN(1000)))) {
			r.fail("it does not go on")
		}
	}
	r.reopened()
	r.others()
}

// released reports whether what is on the disk says that the session is asleep: that it was
// refused to sleep is no promise that it is not, after a power cut. Its files are as they
// were then, in truth: who was cut off has no other programs.
func (r *faultySession) released() bool {
	r.t.Helper()
	err := recovered(r.disk, r.dir)
	var record struct {
		Process int `json:"process"`
	}
	var data []byte
	if err == nil {
		p := round{t: r.t, dir: r.dir}
		data, err = os.ReadFile(filepath.Join(p.home(&twin{id: r.id}), "session.json"))
	}
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	if err != nil {
		r.fail("%v", err)
	}
	return record.Process == 0
}

// ruin makes files what a power cut may leave of what nobody synced.
func (r *faultySession) ruin(random *rand.Rand) {
	p := round{t: r.t, r: random, dir: r.dir}
	p.damage(&twin{id: r.id, line: []point{{at: moment{files: p.onDisk(&twin{id: r.id})}}}})
}

// others sees that every session there is can be used.
func (r *faultySession) others() {
	r.t.Helper()
	all, err := r.m.List(alice)
	if err != nil {
		r.fail("%v", err)
	}
	for _, i := range all {
		if _, err := r.m.Execute(r.t.Context(), alice, i.ID, session.Request{Code: "p = 1", Language: "python"}); err != nil {
			r.fail("%s cannot be used: %v", i.ID, err)
		}
	}
}

// While a session is opened after a crash any operation may fail: the call says
// so, and the next one opens it.
func TestAFaultWhileASessionIsOpenedIsOverWithTheNextCall(t *testing.T) {
	stride := 6
	if few() {
		stride = 20
	}
	for n := 1 + rand.IntN(stride); n < 120; n += stride {
		t.Run(fmt.Sprint("at ", n), func(t *testing.T) {
			r := newFaultySession(t)
			_ = r.begin()
			for _, s := range use[:5] {
				r.take(s)
			}
			there := sandboxtest.Memory(t)
			if err := copyFolder(there, r.dir); err != nil {
				t.Fatal(err)
			}
			if err := r.m.Close(); err != nil {
				t.Fatal(err)
			}
			disk, err := blobtest.New(there)
			if err != nil {
				t.Fatal(err)
			}
			r.dir, r.disk = there, disk
			r.ruin(rand.New(rand.NewPCG(uint64(n), 2)))
			hit := ""
			r.disk.SetFault(func(op blobtest.Op) error {
				if op.N == n {
					hit = op.Kind + " " + op.Name
					return blobtest.Torn{Err: syscall.EIO}
				}
				return nil
			})
			if err := r.open(); err != nil {
				r.clearFault(err)
				if err := r.open(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.holds(); err != nil {
				r.clearFault(err)
			}
			r.disk.SetFault(nil)
			r.log.add("FAULT at %s", hit)
			r.is(r.now)
			if !r.take(counts(9)) {
				r.fail("it does not go on")
			}
			r.reopened()
		})
	}
}

// Whatever is damaged on disk, what a session holds is what it held, or somebody
// is told.
func TestDamageIsToldOf(t *testing.T) {
	r := newFaultySession(t)
	_ = r.begin()
	for _, s := range []step{counts(1), labels, putsFile("g", strings.Repeat("text ", 50)), counts(2), undoes, counts(3)} {
		r.take(s)
	}
	all, err := r.m.Checkpoints(alice, r.id)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]moment{}
	for _, c := range all {
		k := slices.IndexFunc(r.twin.line, func(p point) bool { return p.id() == c.ID })
		held[c.ID] = r.twin.line[k].at
	}
	if err := r.m.Close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, glob := range []string{"blobs/*/*/*", "checkpoints/*/*/*"} {
		found, err := filepath.Glob(filepath.Join(r.dir, filepath.FromSlash(glob)))
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		names = append(names, found...)
	}
	stride := cmp.Or(*faultStride, 3)
	turn := rand.IntN(stride)
	for k, name := range names {
		rel, _ := filepath.Rel(r.dir, name)
		for _, kind := range slices.Sorted(maps.Keys(damages)) {
			for _, died := range []bool{false, true} {
				blobs := strings.HasPrefix(rel, "blobs")
				if turn++; blobs && died == (k%2 == 0) || turn%stride != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s %s, its process died: %v", kind, rel, died), func(t *testing.T) {
					d := newFaultySession(t)
					d.id, d.twin, d.now = r.id, r.twin, r.now
					if err := copyFolder(d.dir, r.dir); err != nil {
						t.Fatal(err)
					}
					damages[kind](t, filepath.Join(d.dir, rel))
					if died {
						d.signed()
					}
					d.damaged(held)
				})
			}
		}
	}
}

var damages = map[string]func(*testing.T, string){
	"without": func(t *testing.T, name string) {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	},
	"half of":      changedFile(func(b []byte) []byte { return b[:len(b)/2] }),
	"nothing of":   changedFile(func([]byte) []byte { return nil }),
	"another bit":  changedFile(func(b []byte) []byte { b[len(b)/2] ^= 4; return b }),
	"another head": changedFile(func(b []byte) []byte { b[0] ^= 1; return b }),
	"more of":      changedFile(func(b []byte) []byte { return append(b, 0) }),
}

func changedFile(change func([]byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, name string) {
		data, err := os.ReadFile(name)
		if err == nil && len(data) > 0 {
			data = change(data)
		}
		if err == nil {
			err = os.WriteFile(name, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// signed makes the session look as if its process had died.
func (r *faultySession) signed() {
	p := round{t: r.t, dir: r.dir}
	name := filepath.Join(p.home(&twin{id: r.id}), "session.json")
	record, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, []byte(strings.Replace(string(record), `"session_id"`, `"process": 4000000, "session_id"`, 1)), 0o600)
	}
	if err != nil {
		r.fail("%v", err)
	}
}

// damaged looks at a session of which something is damaged, and at all its
// checkpoints.
func (r *faultySession) damaged(held map[string]moment) {
	r.t.Helper()
	if err := r.open(); err != nil {
		r.fail("%v", err)
	}
	r.told("it was opened", r.now)
	for _, id := range []string{"1", "2", "3", "4", "6"} {
		_, err := r.m.Restore(r.t.Context(), alice, r.id, id)
		switch fault.KindOf(err) {
		case "":
			r.told("restoring "+id, held[id])
		case fault.Unavailable, fault.NotFound:
		default:
			r.fail("restoring %s: %v (%s)", id, err, fault.KindOf(err))
		}
	}
	if _, err := r.m.Collect(r.t.Context()); err != nil {
		r.fail("%v", err)
	}
}

// told sees that the session holds what it should, or says that it does not.
func (r *faultySession) told(after string, want moment) {
	r.t.Helper()
	res, err := r.m.Execute(r.t.Context(), alice, r.id, session.Request{Code: "print(p)\nprint(read('f'))", Language: "python"})
	if err != nil {
		if k := fault.KindOf(err); k != fault.Unavailable && k != fault.NotFound {
			r.fail("after %s: %v (%s)", after, err, k)
		}
		return
	}
	if res.Notice != "" {
		return
	}
	wanted := ""
	if p, ok := want.vars["python"]["p"]; ok {
		wanted = fmt.Sprintf("%d\n%s\n", p, want.files["workspace/f"])
	}
	if res.Stdout != wanted {
		r.fail("after %s it prints %q, want %q, and says nothing", after, res.Stdout, wanted)
	}
}

// What was destroyed does not come back without what belongs to it.
func TestAPowerCutBringsNoDestroyedSessionBack(t *testing.T) {
	for seed := range uint64(12) {
		r := newFaultySession(t)
		if err := r.begin(); err != nil {
			r.fail("%v", err)
		}
		if !r.take(counts(1)) {
			r.fail("it was not kept")
		}
		if err := r.m.Destroy(t.Context(), alice, r.id); err != nil {
			r.fail("%v", err)
		}
		r.disk.SetFault(blobtest.From(0, blobtest.ErrCut))
		if err := r.m.Close(); err != nil {
			r.log.add("close: %v", err)
		}
		if err := cutPower(r.disk, r.dir, rand.New(rand.NewPCG(seed, 3))); err != nil {
			r.fail("%v", err)
		}
		if err := r.open(); err != nil {
			r.fail("%v", err)
		}
		if _, err := r.m.Info(alice, r.id); fault.KindOf(err) != fault.NotFound {
			t.Errorf("seed %d: it is there again: %v", seed, err)
		}
	}
}
