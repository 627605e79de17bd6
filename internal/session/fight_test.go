package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// bout is one of many that use sessions at the same time.
type bout struct {
	t *testing.T
	m *session.Manager
	r *rand.Rand
}

// together has n of them at work at the same time.
func together(t *testing.T, n int, work func(int)) {
	t.Helper()
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() { work(k) })
	}
	all.Wait()
}

// passing tells whether an error is one that others may cause, who use the same
// sessions.
func passing(err error, kinds ...fault.Kind) bool {
	for _, k := range append(kinds, fault.Exhausted) {
		if fault.KindOf(err) == k {
			return true
		}
	}
	return false
}

// stubborn calls until it is not refused because of others.
func stubborn(ctx context.Context, call func() error) error {
	for {
		err := call()
		if !passing(err, fault.Conflict) || ctx.Err() != nil {
			return err
		}
	}
}

func (b bout) run(owner session.Owner, id session.ID, code string) (string, error) {
	res, err := b.m.Execute(b.t.Context(), owner, id, session.Request{Code: code, Language: "python"})
	switch {
	case err != nil:
		return "", err
	case res.Exit.Cause == sandbox.Cancelled, strings.Contains(res.Notice, "then taken back"): // by others, meanwhile or right after
		return "", fault.New(fault.Cancelled, "it was cancelled")
	case res.Exit.Error != nil:
		return "", fmt.Errorf("%s: %+v", code, res.Exit.Error)
	case res.Notice != "":
		return "", errors.New(res.Notice)
	}
	return strings.TrimSpace(res.Stdout), nil
}

// A thousand calls come to one session that is asleep: as many as may wait are
// answered, and the others are told to come again.
func TestAWakeStormIsAnsweredAsFarAsTheQueueGoes(t *testing.T) {
	m := manager(t, session.Config{}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "n = 0")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	b := bout{t: t, m: m}
	var answered, refused atomic.Int64
	together(t, 1000, func(int) {
		switch _, err := b.run(alice, id, "n = n + 1"); {
		case err == nil:
			answered.Add(1)
		case fault.KindOf(err) == fault.Exhausted && fault.Of(err).RetryAfter > 0:
			refused.Add(1)
		default:
			t.Error(err)
		}
	})
	if n := answered.Load(); n < 65 {
		t.Errorf("answered.Load(): got %v, want at least 65", n)
	} else if n+refused.Load() != 1000 {
		t.Errorf("n+refused.Load(): got %v, want 1000", n+refused.Load())
	}
	prints(t, m, id, "print(n)", fmt.Sprint(answered.Load()))
}

// Whoever puts sessions to sleep all the time loses no call and no state.
func TestSleepAndCallsDoNotMissEachOther(t *testing.T) {
	m := manager(t, session.Config{MaxPerOwner: 2}, sandboxtest.FakeConfig{})
	ids := []session.ID{create(t, m, alice, ""), create(t, m, alice, ""), create(t, m, alice, "")}
	for _, id := range ids {
		for k := range 8 {
			execute(t, m, id, fmt.Sprintf("n%d = 0", k))
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var sleepers sync.WaitGroup
	for k := range 2 {
		sleepers.Go(func() {
			for n := k; ctx.Err() == nil; n++ {
				if err := m.Sleep(alice, ids[n%len(ids)]); err != nil && !passing(err, fault.Conflict) {
					t.Error(err)
				}
			}
		})
	}
	const each = 12
	b := bout{t: t, m: m}
	together(t, 8, func(k int) {
		for n := range each {
			id := ids[(k+n)%len(ids)]
			if err := stubborn(ctx, func() error { _, err := b.run(alice, id, fmt.Sprintf("n%d = n%d + 1", k, k)); return err }); err != nil {
				t.Error(err)
			}
			if err := stubborn(ctx, func() error { return b.put(alice, id, fmt.Sprint("f", k), fmt.Sprint(n)) }); err != nil {
				t.Error(err)
			}
		}
	})
	stop()
	sleepers.Wait()
	for k := range 8 {
		sum := 0
		for _, id := range ids {
			n := 0
			fmt.Sscan(execute(t, m, id, fmt.Sprintf("print(n%d)", k)).Stdout, &n)
			sum += n
		}
		if sum != each {
			t.Errorf("of %d calls %d are there", each, sum)
		}
	}
}

func (b bout) put(owner session.Owner, id session.ID, name, text string) error {
	tree, done, err := b.m.Files(owner, id)
	if err != nil {
		return err
	}
	defer done()
	_, err = tree.Write(name, []byte(text))
	return err
}

// Fifty use a few sessions for everything there is. In each, variables and files
// are of the same moment, whenever anybody looks.
func TestInAMeleeVariablesAndFilesNeverDisagree(t *testing.T) {
	m := manager(t, session.Config{MaxPerOwner: 3, Checkpoints: 5}, sandboxtest.FakeConfig{})
	var ids [4]session.ID
	owners := [4]session.Owner{alice, alice, "bob", "bob"}
	for k := range ids {
		ids[k] = create(t, m, owners[k], "")
		b := bout{t: t, m: m}
		for n := range 8 { // so many that no one can go back to when there was nothing
			if err := b.set(owners[k], ids[k], fmt.Sprint("begun", n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	together(t, 50, func(k int) {
		b := bout{t: t, m: m, r: rand.New(rand.NewPCG(uint64(k), 3))}
		for n := range rounds {
			one := b.r.IntN(len(ids))
			b.blow(owners[one], ids[one], fmt.Sprint(k, ".", n))
		}
	})
	if _, err := m.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	b := bout{t: t, m: m}
	for k := range ids {
		b.agree(owners[k], ids[k], "at the end")
		all, err := m.Checkpoints(owners[k], ids[k])
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			t.Error("len(all): got 0, want more")
		}
		for _, c := range all {
			_, err := m.Restore(t.Context(), owners[k], ids[k], c.ID)
			if err != nil && fault.KindOf(err) != fault.NotFound { // it was given up for these
				t.Error(c, err)
			}
			b.agree(owners[k], ids[k], c.ID)
		}
	}
}

// set changes variable and file at once: no interrupt falls between the two.
func (b bout) set(owner session.Owner, id session.ID, name string) error {
	_, err := b.run(owner, id, fmt.Sprintf("v = ['%s', write('v', '%s')]", name, name))
	return err
}

// agree looks whether variables and files of a session are of the same moment.
func (b bout) agree(owner session.Owner, id session.ID, name string) {
	out, err := b.run(owner, id, "print(v)\nprint(read('v'))")
	v, file, _ := strings.Cut(out, "\n")
	switch {
	case passing(err, fault.Cancelled, fault.Conflict):
	case err != nil || v != fmt.Sprintf("['%s', None]", file):
		b.t.Errorf("%s: it holds %q, %v", name, out, err)
	}
}

// blow does one thing to a session.
func (b bout) blow(owner session.Owner, id session.ID, name string) {
	ctx, err := b.t.Context(), error(nil)
	switch b.r.IntN(12) {
	case 0:
		_, err = b.m.Undo(ctx, owner, id)
	case 1:
		err = b.m.Sleep(owner, id)
	case 2:
		var forks []session.Info
		if forks, err = b.m.Fork(ctx, owner, id, "", 1); err == nil {
			b.agree(owner, forks[0].ID, "a fork")
			err = b.m.Destroy(ctx, owner, forks[0].ID)
		}
	case 3:
		_, err = b.m.Collect(ctx)
	case 4:
		_, err = b.m.List(owner)
	case 5:
		err = b.put(owner, id, "by "+name, name)
	case 6:
		_, err = b.m.Checkpoints(owner, id)
	case 7:
		_, err = b.m.Checkpoint(ctx, owner, id, "here")
	case 8:
		_, err = b.m.Restore(ctx, owner, id, "here")
	case 9:
		b.agree(owner, id, name)
	default:
		err = b.set(owner, id, name)
	}
	if err != nil && !passing(err, fault.Cancelled, fault.Conflict, fault.NotFound) {
		b.t.Errorf("%s: %v (%v)", name, err, errors.Unwrap(fault.Of(err)))
	}
}

// Two processes want the same session all the time. It is one's at a time, and
// every call that was answered has happened once.
func TestTwoProcessesFightOverASession(t *testing.T) {
	dir := t.TempDir()
	var both [2]bout
	for k := range both {
		both[k] = bout{t: t, m: manager(t, session.Config{Dir: dir}, sandboxtest.FakeConfig{})}
	}
	id := create(t, both[0].m, alice, "")
	execute(t, both[0].m, id, "n = 0\nwrite('n', '0')")
	const each = 30
	together(t, 2, func(k int) {
		for range each {
			err := stubborn(t.Context(), func() error {
				_, err := both[k].run(alice, id, "n = n + 1\nwrite('n', str(n))")
				if err == nil {
					err = both[k].m.Sleep(alice, id)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	if i, err := both[0].m.Info(alice, id); err != nil {
		t.Error(err)
	} else if i.Executions < 2*each {
		t.Errorf("i.Executions: got %v, want at least %v", i.Executions, 2*each)
	}
	prints(t, both[1].m, id, "print(n, read('n'))", fmt.Sprintf("%d %d", 2*each, 2*each))
}

// With room for two interpreters and two open sessions, six who each use their
// own all get their turns, and lose nothing.
func TestNobodyStarvesWhereRoomIsShort(t *testing.T) {
	m := manager(t, session.Config{MaxPerOwner: 2, MemoryBytes: 10 * mib, OwnerMemoryBytes: 20 * mib, TotalMemoryBytes: 20 * mib}, sandboxtest.FakeConfig{})
	b := bout{t: t, m: m}
	const each = 15
	together(t, 6, func(k int) {
		var id session.ID
		err := stubborn(t.Context(), func() error {
			i, err := m.Create(t.Context(), alice, "", session.Settings{})
			id = i.ID
			return err
		})
		if err != nil {
			t.Error(err)
			return
		}
		code := "n = 1"
		for n := range each {
			var out string
			err := stubborn(t.Context(), func() (err error) { out, err = b.run(alice, id, code+"\nprint(n)"); return err })
			if err != nil {
				t.Errorf("got error %v, want none: %s", err, out)
				return
			}
			if out != fmt.Sprint(n+1) {
				t.Errorf("out: got %q, want %q", out, fmt.Sprint(n+1))
				return
			}
			code = "n = n + 1"
		}
	})
}
