package crash

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fought is the session that two processes fight over, and what was answered.
type fought struct {
	*place
	mu        sync.Mutex // guards what follows
	pids      []int      // of all processes so far
	answered  []int      // the counts that were, in the order of their answers
	lost      int        // calls without an answer: each may have counted
	conflicts int
}

func (f *fought) highest() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answered) == 0 {
		return 0
	}
	return slices.Max(f.answered)
}

// fight counts in Python and in forty files, which have to agree at first.
const fight = `
import os
if 'n' not in globals(): n = 0
os.makedirs('/workspace/w', exist_ok=True)
there = sorted(os.listdir('/workspace/w'))
held = {open('/workspace/w/' + name).read() for name in there}
agree = held == ({str(n)} if n else set()) and len(there) in (0, 40)
was = n
n += 1
for i in range(40):
    with open(f'/workspace/w/{i}', 'w') as f: f.write(str(n))
print(n, agree, was, sorted(held), len(there))
`

var owner = regexp.MustCompile(`is open in another process \(pid (\d+)\)|is being opened or removed by another process|has ended, but not all that it started has`)

// rival calls until it is told to stop, or its process ends.
func (f *fought) rival(c *process, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-c.dead:
			return
		default:
		}
		before := f.highest()
		got, err := c.call("execute_code", execution("fought", "python", fight))
		if errors.Is(err, errDead) {
			f.mu.Lock()
			f.lost++
			f.mu.Unlock()
			return
		}
		if err != nil {
			f.t.Errorf("a call: %v\n%s", err, last(c.said()))
			return
		}
		if p := got.failed(); p != nil {
			f.refused(c, p)
			continue
		}
		f.count(before, got)
	}
}

// count takes an answer.
func (f *fought) count(before int, got *answer) {
	words := strings.Fields(got.Stdout)
	n := 0
	if len(words) > 1 {
		n, _ = strconv.Atoi(words[0]) // 0 is not a count
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case n == 0:
		f.t.Errorf("the answer is %+v", got)
	case words[1] != "True":
		f.t.Errorf("variables and files are not of one moment: %s; notice %q", got.Stdout, got.Notice)
	case n <= before || slices.Contains(f.answered, n):
		f.t.Errorf("%d was answered when %d had been", n, before)
	}
	f.answered = append(f.answered, n)
}

// refused checks that a call was refused as the session is another process's.
func (f *fought) refused(c *process, p *problem) {
	m := owner.FindStringSubmatch(p.Message)
	pid := -1
	if len(m) > 1 && m[1] != "" {
		pid, _ = strconv.Atoi(m[1])
	}
	f.mu.Lock()
	f.conflicts++
	known := pid < 0 || pid != c.cmd.Process.Pid && slices.Contains(f.pids, pid)
	f.mu.Unlock()
	switch {
	case p.Code != "conflict":
		f.t.Errorf(`it was refused: p.Code = %q, want "conflict"`, p.Code)
	case m == nil:
		f.t.Errorf("it was refused: m is nil, want a value: %+v", *p)
	case !known:
		f.t.Errorf("it was refused: known = false, want true: %+v", *p)
	case p.Hint == "":
		f.t.Errorf("it was refused: p.Hint is empty, want a text: %+v", *p)
	}
	time.Sleep(time.Millisecond)
}

// some waits until so many more calls were answered and refused.
func (f *fought) some(answered, refused int) {
	f.mu.Lock()
	answered, refused = answered+len(f.answered), refused+f.conflicts
	f.mu.Unlock()
	for late := time.Now().Add(mostWait); time.Now().Before(late); time.Sleep(time.Millisecond) {
		f.mu.Lock()
		enough := len(f.answered) >= answered && f.conflicts >= refused
		f.mu.Unlock()
		if enough {
			return
		}
	}
	f.t.Error("nobody gets an answer")
}

// begin starts a process and its rival; end stops the rival and waits.
func (f *fought) begin() (c *process, end func()) {
	c = f.start()
	f.mu.Lock()
	f.pids = append(f.pids, c.cmd.Process.Pid)
	f.mu.Unlock()
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		select {
		case <-c.ready:
			f.rival(c, stop)
		case <-c.dead:
		}
	})
	return c, sync.OnceFunc(func() { close(stop); done.Wait() })
}

// Attack 64: two processes want one session all the time. One of them has it
// until it ends, in whatever way; the other goes on from there at once.
func TestTwoProcessesFightOverASession(t *testing.T) {
	t.Parallel()
	f := &fought{place: newPlace(t, "")}
	first := f.start()
	first.must(t, "create_session", map[string]any{"session_id": "fought"})
	first.hangUp()
	var rivals [2]*process
	var ends [2]func()
	for k := range rivals {
		rivals[k], ends[k] = f.begin()
	}
	n := 40
	if testing.Short() {
		n = 8
	}
	for range n {
		if t.Failed() {
			break
		}
		f.some(1+rand.IntN(4), rand.IntN(3))
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		k := rand.IntN(2)
		if rand.IntN(3) > 0 {
			rivals[k].kill()
			ends[k]()
		} else {
			ends[k]() // what runs is done first: all of it was answered
			rivals[k].hangUp()
		}
		rivals[k], ends[k] = f.begin()
	}
	for k := range rivals {
		ends[k]()
		rivals[k].hangUp()
	}
	end := f.start()
	defer end.kill()
	got := end.must(t, "execute_code", execution("fought", "python", "print(n)"))
	final, err := strconv.Atoi(strings.TrimSpace(got.Stdout))
	switch most := len(f.answered) + f.lost; {
	case err != nil:
		t.Errorf("in the end it is %q; the highest answer: %v", got.Stdout, err)
	case final < f.highest():
		t.Errorf("in the end it is %q; the highest answer: final = %v, want at least %v: %d",
			got.Stdout, final, f.highest(), most)
	case final > most:
		t.Errorf("in the end it is %q; the highest answer: final = %v, want at most %v: %d",
			got.Stdout, final, most, f.highest())
	}
	t.Logf("%d calls were answered, %d refused, %d without an answer, and the count is %d", len(f.answered), f.conflicts, f.lost, final)
}
