package approval_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/approval"
	"paddock/internal/blob/blobtest"
	"paddock/internal/fault"
)

// asked is a request for the first call of a run.
func asked() approval.Request {
	return approval.Request{
		Key:         approval.Key{Owner: "local", Session: "s-1", Execution: "x-1", Number: 1},
		Call:        approval.Call{Server: "github", Definition: "d1", Tool: "delete_repo", Arguments: json.RawMessage(`{"name": "a<b",  "n": 9007199254740993}`)},
		Description: "Deletes a repository",
	}
}

func request(t *testing.T, s *approval.Store, r approval.Request) approval.Approval {
	t.Helper()
	a, err := s.Request(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func decide(t *testing.T, s *approval.Store, a approval.Approval, grant bool) approval.Approval {
	t.Helper()
	a, err := s.Decide(t.Context(), a.Owner, a.ID, approval.Decision{By: "boss", Grant: grant, Reason: "so"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnApprovalIsAskedForDecidedAndUsedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "approvals")
	s, r := approval.Open(dir, approval.Options{}), asked()
	a := request(t, s, r)
	switch {
	case a.State != approval.Pending:
		t.Errorf("a.State = %v, want %v: %+v", a.State, approval.Pending, a)
	case string(a.Arguments) != string(r.Arguments):
		t.Errorf("a.Arguments = %q, want %q", string(a.Arguments), string(r.Arguments))
	case a.Expires.Sub(a.Created) != 24*time.Hour:
		t.Errorf("a.Expires.Sub(a.Created) = %v, want %v: %+v",
			a.Expires.Sub(a.Created), 24*time.Hour, a)
	}
	s = approval.Open(dir, approval.Options{}) // after a restart
	if again := request(t, s, r); again.ID != a.ID || string(again.Arguments) != string(r.Arguments) {
		t.Errorf("asking again gives %+v", again)
	}
	if err := s.Use(t.Context(), a.ID, r); fault.KindOf(err) != fault.Denied {
		t.Errorf("before it is decided it gives %v", err)
	}
	switch got := decide(t, s, a, true); {
	case got.State != approval.Granted:
		t.Errorf("it is decided as: got.State = %v, want %v: %+v", got.State, approval.Granted, got)
	case got.By != "boss":
		t.Errorf(`it is decided as: got.By = %q, want "boss"`, got.By)
	case got.Reason != "so":
		t.Errorf(`it is decided as: got.Reason = %q, want "so"`, got.Reason)
	}
	if _, err := s.Decide(t.Context(), "local", a.ID, approval.Decision{By: "late"}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a second decision gives %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Use(gone, a.ID, r); !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up uses it: %v", err)
	}
	if err := s.Use(t.Context(), a.ID, r); err != nil {
		t.Error(err)
	}
	if err := s.Use(t.Context(), a.ID, r); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "not known") {
		t.Errorf("a second use gives %v", err)
	}
	if again := request(t, s, r); again.State != approval.Used || again.ID != a.ID {
		t.Errorf("a used one is asked for anew: %+v", again)
	}
}

// Attack 81: what was granted lets nothing else through.
func TestAGrantIsForOneCallAlone(t *testing.T) {
	type change func(*approval.Request)
	for name, test := range map[string]struct {
		change change
		kind   fault.Kind // of Use with the grant's id
		same   bool       // Request finds the grant's place
	}{
		"another tool of the server":         {func(r *approval.Request) { r.Tool = "delete_all" }, fault.Denied, true},
		"the tool under another name":        {func(r *approval.Request) { r.Tool = "Delete_repo" }, fault.Denied, true},
		"the same tool of another server":    {func(r *approval.Request) { r.Server = "gitlab" }, fault.Denied, true},
		"another server under the same name": {func(r *approval.Request) { r.Definition = "d2" }, fault.Denied, true},
		"other arguments":                    {func(r *approval.Request) { r.Arguments = json.RawMessage(`{"name":"c"}`) }, fault.Denied, true},
		"arguments that look alike":          {func(r *approval.Request) { r.Arguments = json.RawMessage(`{"name":"a<b","n":9007199254740993}`) }, fault.Denied, true},
		"a key that stands twice": {func(r *approval.Request) {
			r.Arguments = json.RawMessage(`{"name":"a<b","n":9007199254740993,"name":"z"}`)
		}, fault.Denied, true},
		"the next call of the run":             {func(r *approval.Request) { r.Number = 2 }, fault.Denied, false},
		"the same call of a later run":         {func(r *approval.Request) { r.Execution = "x-2" }, fault.Denied, false},
		"a fork of the session":                {func(r *approval.Request) { r.Session = "s-2" }, fault.Denied, false},
		"another owner's session of that name": {func(r *approval.Request) { r.Owner = "token:t" }, fault.NotFound, false},
		"a session whose name ends otherwise":  {func(r *approval.Request) { r.Session, r.Execution = "s-1x-", "1" }, fault.Denied, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := approval.Open(t.TempDir(), approval.Options{})
			a := request(t, s, asked())
			decide(t, s, a, true)
			r := asked()
			test.change(&r)
			if err := s.Use(t.Context(), a.ID, r); fault.KindOf(err) != test.kind {
				t.Errorf("it uses the grant: %v", err)
			}
			switch other, err := s.Request(t.Context(), r); {
			case test.same && fault.KindOf(err) != fault.Denied:
				t.Errorf("it is asked for as %+v, %v", other, err)
			case !test.same && (err != nil || other.State != approval.Pending || other.ID == a.ID):
				t.Errorf("it is asked for as %+v, %v", other, err)
			}
			if err := s.Use(t.Context(), a.ID, asked()); err != nil {
				t.Errorf("the grant is gone: %v", err)
			}
		})
	}
}

func TestWhatIsAnothersDoesNotExist(t *testing.T) {
	s := approval.Open(t.TempDir(), approval.Options{})
	a := request(t, s, asked())
	other := asked()
	other.Owner = "token:t"
	request(t, s, other)
	for name, err := range map[string]error{
		"get":      second(s.Get("token:t", a.ID)),
		"decide":   second(s.Decide(t.Context(), "token:t", a.ID, approval.Decision{Grant: true})),
		"a guess":  second(s.Get("local", "ap-aaaaaaaaaaaaaaaaaaaaaaaaaa")),
		"a path":   second(s.Get("local", "../"+a.ID)),
		"an owner": second(s.Get("../local", a.ID)),
		"nobody":   second(s.Find("")),
	} {
		if fault.KindOf(err) != fault.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := s.Find(a.ID); err != nil || got.Owner != "local" {
		t.Errorf("an operator finds %+v, %v", got, err)
	}
	mine, err := s.List("local")
	all, err2 := s.All()
	switch {
	case err != nil:
		t.Error(err)
	case len(mine) != 1:
		t.Errorf("len(mine) = %d, want 1: %+v", len(mine), mine)
	case len(all) != 2:
		t.Errorf("len(all) = %d, want 2: %+v", len(all), all)
	case err2 != nil:
		t.Errorf("err2 = %v, want nil", err2)
	}
}

func second[T any](_ T, err error) error { return err }

func TestTheFirstDecisionCounts(t *testing.T) {
	dir := t.TempDir()
	a := request(t, approval.Open(dir, approval.Options{}), asked())
	var granted, denied atomic.Int64
	var all sync.WaitGroup
	for k := range 16 {
		all.Go(func() {
			s := approval.Open(dir, approval.Options{}) // as another process
			d, err := s.Decide(t.Context(), "local", a.ID, approval.Decision{By: fmt.Sprint(k), Grant: k%2 == 0})
			switch {
			case fault.KindOf(err) == fault.Conflict:
			case err != nil:
				t.Error(err)
			case d.State == approval.Granted:
				granted.Add(1)
			default:
				denied.Add(1)
			}
		})
	}
	all.Wait()
	got, err := approval.Open(dir, approval.Options{}).Get("local", a.ID)
	switch {
	case err != nil:
		t.Error(err)
	case granted.Load()+denied.Load() != 1:
		t.Errorf("granted.Load() + denied.Load() = %v, want 1; %d granted, %d denied; it is %v, %v",
			granted.Load()+denied.Load(), granted.Load(), denied.Load(), got.State, err)
	case (got.State == approval.Granted) != (granted.Load() == 1):
		t.Errorf("got.State == approval.Granted = %v, want %v; %d granted, %d denied; it is %v, %v",
			got.State == approval.Granted, (granted.Load() == 1), granted.Load(), denied.Load(), got.State, err)
	}
	var used atomic.Int64
	if granted.Load() == 1 {
		for range 16 {
			all.Go(func() {
				if approval.Open(dir, approval.Options{}).Use(t.Context(), a.ID, asked()) == nil {
					used.Add(1)
				}
			})
		}
		if all.Wait(); used.Load() != 1 {
			t.Errorf("it is used %d times", used.Load())
		}
	}
}

func TestAskingAtOnceMakesOne(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 16)
	var all sync.WaitGroup
	for k := range ids {
		all.Go(func() {
			a, err := approval.Open(dir, approval.Options{}).Request(t.Context(), asked())
			if ids[k] = a.ID; err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("they are %v", ids)
		}
	}
}

func TestWaitersHearOfDecisions(t *testing.T) {
	dir := t.TempDir()
	here, there := approval.Open(dir, approval.Options{}), approval.Open(dir, approval.Options{})
	for _, way := range []struct {
		name string
		by   *approval.Store
	}{{"in this process", here}, {"in another", there}} {
		t.Run(way.name, func(t *testing.T) {
			r := asked()
			r.Execution = way.name
			a := request(t, here, r)
			done := make(chan approval.Approval, 1)
			go func() {
				got, err := here.Wait(t.Context(), "local", a.ID)
				if err != nil {
					t.Error(err)
				}
				done <- got
			}()
			decide(t, way.by, a, true)
			if got := <-done; got.State != approval.Granted {
				t.Errorf("it is %v", got.State)
			}
		})
	}
	r := asked()
	r.Number = 2
	b := request(t, here, r)
	waiting := make(chan error, 1)
	go func() {
		_, err := here.Wait(t.Context(), "local", b.ID)
		waiting <- err
	}()
	decide(t, there, b, false) // seen by looking
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(fs.ErrClosed)
	r.Number = 3
	if _, err := here.Wait(gone, "local", request(t, here, r).ID); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("who gives up gets %v", err)
	}
}

func TestTimeIsUp(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, r := approval.Open(dir, approval.Options{TTL: time.Hour}), asked()
		a := request(t, s, r)
		began := time.Now()
		got, err := s.Wait(t.Context(), "local", a.ID)
		switch {
		case err != nil:
			t.Error(err)
		case got.State != approval.Expired:
			t.Errorf("got.State = %v, want %v", got.State, approval.Expired)
		case time.Since(began) > time.Hour+3*time.Second:
			t.Errorf("time.Since(began) = %v, want at most %v: %v",
				time.Since(began), time.Hour+3*time.Second, got.State)
		}
		if _, err := s.Decide(t.Context(), "local", a.ID, approval.Decision{Grant: true}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("too late gives %v", err)
		}
		if err := got.Refusal(); fault.KindOf(err) != fault.Denied {
			t.Errorf("the program is told %v", err)
		}
		r.Number = 2
		b := request(t, s, r)
		time.Sleep(59 * time.Minute)
		decide(t, s, b, true)
		time.Sleep(59 * time.Minute) // a grant counts as long again
		if err := s.Use(t.Context(), b.ID, r); err != nil {
			t.Error(err)
		}
		r.Number = 3
		c := request(t, s, r)
		decide(t, s, c, true)
		time.Sleep(time.Hour)
		if err := s.Use(t.Context(), c.ID, r); fault.KindOf(err) != fault.Denied {
			t.Errorf("an old grant gives %v", err)
		}
	})
}

func TestWhatNobodyWaitsForIsWithdrawn(t *testing.T) {
	s := approval.Open(t.TempDir(), approval.Options{})
	var all []approval.Approval
	for _, k := range []approval.Key{
		{Owner: "local", Session: "s-1", Execution: "x-1", Number: 1}, {Owner: "local", Session: "s-1", Execution: "x-1", Number: 2},
		{Owner: "local", Session: "s-1", Execution: "x-2", Number: 1}, {Owner: "local", Session: "s-2", Execution: "x-3", Number: 1},
	} {
		r := asked()
		r.Key = k
		all = append(all, request(t, s, r))
	}
	decide(t, s, all[0], false)
	decide(t, s, all[1], true)
	if n, err := s.Withdraw(t.Context(), "local", "s-1", "x-1"); n != 1 || err != nil {
		t.Errorf("%d are withdrawn, %v", n, err)
	}
	if n, err := s.Withdraw(t.Context(), "local", "s-1", ""); n != 1 || err != nil {
		t.Errorf("%d are withdrawn of the session, %v", n, err)
	}
	if n, err := s.Withdraw(t.Context(), "nobody", "s-1", ""); n != 0 || err != nil {
		t.Errorf("%d are withdrawn of nobody, %v", n, err)
	}
	want := []approval.State{approval.Denied, approval.Withdrawn, approval.Withdrawn, approval.Pending}
	for k, a := range all {
		if got, err := s.Get("local", a.ID); err != nil || got.State != want[k] {
			t.Errorf("%d is %v, %v", k, got.State, err)
		}
	}
	if _, err := s.Decide(t.Context(), "local", all[2].ID, approval.Decision{Grant: true}); fault.KindOf(err) != fault.Conflict {
		t.Errorf("deciding then gives %v", err)
	}
}

func TestAnOwnersApprovalsAreBounded(t *testing.T) {
	now := time.Now()
	s := approval.Open(t.TempDir(), approval.Options{Pending: 3, Kept: 2, Keep: time.Hour, Now: func() time.Time { return now }})
	var all []approval.Approval
	ask := func() error {
		r := asked()
		r.Number, now = len(all)+1, now.Add(time.Second)
		a, err := s.Request(t.Context(), r)
		if all = append(all, a); err != nil {
			all = all[:len(all)-1]
		}
		return err
	}
	for range 3 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one more gives %v", err)
	}
	big := asked()
	big.Arguments = json.RawMessage(`"` + strings.Repeat("a", approval.MaxArguments) + `"`)
	big.Session = "s-2"
	if _, err := s.Request(t.Context(), big); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("what nobody can read gives %v", err)
	}
	for _, a := range all {
		decide(t, s, a, false)
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	switch left, err := s.List("local"); {
	case err != nil:
		t.Error(err)
	case len(left) != 3:
		t.Errorf("len(left) = %d, want 3: %+v", len(left), left)
	case left[0].ID != all[1].ID:
		t.Errorf("left[0].ID = %v, want %v", left[0].ID, all[1].ID)
	}
	now = now.Add(26 * time.Hour)
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if left, err := s.List("local"); err != nil || len(left) != 0 {
		t.Errorf("there are %d, %v", len(left), err)
	}
}

func TestWhatCannotBeRecordedIsNotDecided(t *testing.T) {
	no := errors.New("the disk is full")
	var told []approval.State
	var fail bool
	s := approval.Open(t.TempDir(), approval.Options{Record: func(_ context.Context, a approval.Approval) error {
		if told = append(told, a.State); fail {
			return no
		}
		return nil
	}})
	a := request(t, s, asked())
	fail = true
	if _, err := s.Decide(t.Context(), "local", a.ID, approval.Decision{Grant: true}); !errors.Is(err, no) {
		t.Errorf("it gives %v", err)
	}
	if got, err := s.Get("local", a.ID); err != nil || got.State != approval.Pending {
		t.Errorf("it is %v, %v", got.State, err)
	}
	fail = false
	decide(t, s, a, true)
	if err := s.Use(t.Context(), a.ID, asked()); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(told) != "[pending granted granted used]" {
		t.Errorf("told are %v", told)
	}
}

// asker is told of what a program waits for.
type asker func(approval.Approval)

func (f asker) Ask(a approval.Approval) { f(a) }

// Nobody is left with a question whose program does not wait for the answer.
func TestWhatNobodyWaitsForAnyMoreIsTakenBack(t *testing.T) {
	suspended, failed := errors.New("suspended"), errors.New("the disk fails")
	for name, c := range map[string]struct {
		why  error // the run's end; nil: the disk fails
		want approval.State
	}{
		"the run is suspended": {suspended, approval.Pending},
		"the run is over":      {context.Canceled, approval.Withdrawn},
		"it cannot be read":    {nil, approval.Withdrawn},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk, err := blobtest.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			s := approval.Open(dir, approval.Options{Files: disk})
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			var id string
			err = s.Approve(approval.WithAsker(ctx, asker(func(a approval.Approval) {
				if id = a.ID; c.why != nil {
					end(c.why)
					return
				}
				disk.SetFault(blobtest.At(disk.Ops()+1, failed))
			})), asked(), suspended)
			if want := cmp.Or(c.why, failed); !errors.Is(err, want) {
				t.Errorf("it gives %v, want %v", err, want)
			}
			if a, err := s.Get("local", id); err != nil || a.State != c.want {
				t.Errorf("it is %v, %v, want %v", a.State, err, c.want)
			}
		})
	}
}

func TestAWatchTellsOfEachDecision(t *testing.T) {
	dir := t.TempDir()
	here, there := approval.Open(dir, approval.Options{}), approval.Open(dir, approval.Options{})
	early := request(t, here, asked())
	decide(t, here, early, true)
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan approval.Approval), make(chan struct{})
	go func() {
		defer close(ended)
		here.Watch(ctx, "", func(a approval.Approval) { told <- a })
	}()
	if a := <-told; a.ID != early.ID {
		t.Errorf("first it tells of %v", a)
	}
	r := asked()
	r.Owner, r.Number = "token:t", 2
	b := request(t, there, r)
	decide(t, there, b, false)
	if a := <-told; a.ID != b.ID || a.State != approval.Denied {
		t.Errorf("then it tells of %v", a)
	}
	cancel()
	<-ended
}

func TestADamagedApprovalCountsForNothing(t *testing.T) {
	dir := t.TempDir()
	s := approval.Open(dir, approval.Options{})
	a := request(t, s, asked())
	decide(t, s, a, true)
	files, err := filepath.Glob(filepath.Join(dir, "local", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"half of it":           string(whole[:len(whole)/2]),
		"nothing":              "",
		"other arguments":      strings.Replace(string(whole), "9007199254740993", "1", 1),
		"another call's":       strings.Replace(string(whole), `"number": 1`, `"number": 2`, 1),
		"another session's":    strings.Replace(string(whole), "s-1", "s-2", 1),
		"another owner's":      strings.Replace(string(whole), `"owner": "local"`, `"owner": "token:t"`, 1),
		"another id":           strings.Replace(string(whole), a.ID, "ap-aaaaaaaaaaaaaaaaaaaaaaaaaa", 1),
		"a state there is not": strings.Replace(string(whole), `"granted"`, `"allowed"`, 1),
		"nobody decided":       strings.Replace(string(whole), `"decided_at"`, `"undecided_at"`, 1),
	} {
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Use(t.Context(), a.ID, asked()); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: it is used: %v", name, err)
		}
		if got, err := s.Request(t.Context(), asked()); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: it is asked for: %+v, %v", name, got, err)
		}
		if all, err := s.List("local"); len(all) != 0 || err != nil {
			t.Errorf("%s: it is listed: %v, %v", name, all, err)
		}
	}
}
