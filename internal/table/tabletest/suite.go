package tabletest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"paddock/internal/table"
)

// Suite holds what the comments of [table.Table] say. fresh gives an empty table, of which
// again is a second hand: another process's, or another machine's.
func Suite(t *testing.T, fresh func(t *testing.T) (one, again table.Table)) {
	for name, test := range map[string]func(t *testing.T, one, again table.Table){
		"a document is as it was put, for all":            testPut,
		"of two who make a document one does":             testNew,
		"a change needs the revision that there is":       testRevision,
		"a deleted document can be made again":            testDelete,
		"names are those of the folder and below it":      testNames,
		"names that are not are refused":                  testCheck,
		"a watch tells of what is there, and each change": testWatch,
		"counting by many loses none":                     testAlone,
		"what is below a folder is a table":               testIn,
	} {
		t.Run(name, func(t *testing.T) {
			one, again := fresh(t)
			test(t, one, again)
		})
	}
}

func put(t *testing.T, in table.Table, name, text string, was table.Revision) table.Revision {
	t.Helper()
	r, err := in.Put(t.Context(), name, []byte(text), was)
	if err != nil {
		t.Fatalf("putting %s: %v", name, err)
	}
	return r
}

func testPut(t *testing.T, one, again table.Table) {
	texts := []string{"", "a", "{\n}", "\x00\xff", string(make([]byte, 300<<10))}
	for i, text := range texts {
		name := fmt.Sprintf("folder/%d.json", i)
		r := put(t, one, name, text, table.None)
		d, err := again.Get(t.Context(), name, table.None)
		if err != nil || string(d.Data) != text || d.Data == nil || d.Revision != r {
			t.Errorf("%s is %d bytes at %d (%v), want %d bytes at %d", name, len(d.Data), d.Revision, err, len(text), r)
		}
		if age := time.Since(d.Written); age < -time.Minute || age > time.Hour {
			t.Errorf("%s was written at %v", name, d.Written)
		}
		if d, err = again.Get(t.Context(), name, r); err != nil || d.Revision != r || d.Data != nil && string(d.Data) != text {
			t.Errorf("asked for anything else than %d it is %d (%v)", r, d.Revision, err)
		}
		r = put(t, again, name, text+"more", table.Any)
		if d, err = one.Get(t.Context(), name, table.None); err != nil || string(d.Data) != text+"more" || d.Revision != r {
			t.Errorf("after another hand changed it, it is %d bytes at %d (%v)", len(d.Data), d.Revision, err)
		}
	}
	if _, err := one.Get(t.Context(), "folder/none", table.None); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there is %v", err)
	}
}

func testNew(t *testing.T, one, again table.Table) {
	const hands = 16
	var mu sync.Mutex
	var made int
	var all sync.WaitGroup
	for i := range hands {
		in := []table.Table{one, again}[i%2]
		all.Go(func() {
			_, err := in.Put(t.Context(), "once", []byte(strconv.Itoa(i)), table.None)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if !errors.Is(err, table.ErrChanged) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made != 1 {
		t.Errorf("%d of %d made it", made, hands)
	}
}

func testRevision(t *testing.T, one, again table.Table) {
	first := put(t, one, "a", "1", table.None)
	second := put(t, again, "a", "2", first)
	if _, err := one.Put(t.Context(), "a", []byte("3"), first); !errors.Is(err, table.ErrChanged) {
		t.Errorf("by an old revision it was changed: %v", err)
	}
	if err := one.Delete(t.Context(), "a", first); !errors.Is(err, table.ErrChanged) {
		t.Errorf("by an old revision it was removed: %v", err)
	}
	if _, err := one.Put(t.Context(), "a", []byte("3"), table.None); !errors.Is(err, table.ErrChanged) {
		t.Errorf("it was made although it is there: %v", err)
	}
	if d, err := one.Get(t.Context(), "a", first); err != nil || string(d.Data) != "2" || d.Revision != second {
		t.Errorf("it is %q at %d (%v), want 2 at %d", d.Data, d.Revision, err, second)
	}
}

func testDelete(t *testing.T, one, again table.Table) {
	for _, name := range []string{"x/a", "x/b"} {
		r := put(t, one, name, "1", table.None)
		if err := again.Delete(t.Context(), name, r); err != nil {
			t.Error(err)
		}
		if _, err := one.Get(t.Context(), name, r); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("removed, it is %v", err)
		}
		if err := again.Delete(t.Context(), name, table.Any); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it can be removed twice: %v", err)
		}
		if err := again.Delete(t.Context(), name, r); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("by its revision it can be removed twice: %v", err)
		}
		if _, err := one.Put(t.Context(), name, nil, r); !errors.Is(err, table.ErrChanged) {
			t.Errorf("by the revision of what was removed it was made: %v", err)
		}
		r = put(t, one, name, "2", table.None)
		if _, err := again.Put(t.Context(), name, []byte("3"), table.None); !errors.Is(err, table.ErrChanged) {
			t.Errorf("it was made although it is there again: %v", err)
		}
		put(t, again, name, "4", r)
		if err := one.Delete(t.Context(), name, table.Any); err != nil {
			t.Error(err)
		}
	}
	if names, err := one.Names(t.Context(), ""); err != nil || len(names) != 0 {
		t.Errorf("there is %q (%v)", names, err)
	}
}

func testNames(t *testing.T, one, again table.Table) {
	all := []string{"a.json", "b/c.change", "b/c.json", "b/d/e=f", "bc/d"}
	for _, name := range all {
		put(t, one, name, "", table.None)
	}
	for folder, want := range map[string][]string{"": all, "b": all[1:4], "b/d": all[3:4], "none": nil} {
		if got, err := again.Names(t.Context(), folder); err != nil || !slices.Equal(got, want) {
			t.Errorf("below %q there are %q (%v), want %q", folder, got, err, want)
		}
	}
}

func testCheck(t *testing.T, one, _ table.Table) {
	for _, name := range []string{"", ".", "..", "/a", "a/", "a//b", "a/../b", "../a", "a\\b", "c:a"} {
		_, errPut := one.Put(t.Context(), name, nil, table.Any)
		_, errGet := one.Get(t.Context(), name, table.None)
		errDelete := one.Delete(t.Context(), name, table.Any)
		for _, err := range []error{errPut, errGet, errDelete} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%q gives %v", name, err)
			}
		}
	}
}

func testWatch(t *testing.T, one, again table.Table) {
	put(t, one, "in/before", "", table.None)
	put(t, one, "out/before", "", table.None)
	told := make(chan string, 1000)
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := one.Watch(ctx, "in", func(name string) { told <- name }); !errors.Is(err, why) {
			t.Errorf("it ended with %v", err)
		}
	})
	await := func(want string) {
		t.Helper()
		for late := time.After(30 * time.Second); ; {
			select {
			case name := <-told:
				if name == want {
					return
				}
				if !table.Below("in", name) {
					t.Errorf("told of %s", name)
				}
			case <-late:
				t.Fatalf("nothing was told of %s", want)
			}
		}
	}
	await("in/before")
	r := put(t, again, "in/new", "1", table.None)
	await("in/new")
	for len(told) > 0 {
		<-told
	}
	put(t, again, "in/new", "2", r)
	await("in/new")
	if err := again.Delete(t.Context(), "in/before", table.Any); err != nil {
		t.Error(err)
	}
	await("in/before")
	put(t, one, "in/deep/er", "", table.None)
	await("in/deep/er")
	stop(why)
	watching.Wait()
}

func testAlone(t *testing.T, one, again table.Table) {
	const hands, each = 8, 10
	var all sync.WaitGroup
	for i := range hands {
		in := []table.Table{one, again}[i%2]
		all.Go(func() {
			for range each {
				err := table.Alone(t.Context(), in, "n", func(ctx context.Context) error {
					d, err := in.Get(ctx, "n", table.None)
					if err != nil && !errors.Is(err, fs.ErrNotExist) {
						return err
					}
					n, _ := strconv.Atoi(string(d.Data))
					_, err = in.Put(ctx, "n", []byte(strconv.Itoa(n+1)), d.Revision)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if d, err := one.Get(t.Context(), "n", table.None); err != nil || string(d.Data) != strconv.Itoa(hands*each) {
		t.Errorf("%d were counted as %s (%v)", hands*each, d.Data, err)
	}
	wrong := errors.New("wrong")
	if err := table.Alone(t.Context(), one, "n", func(context.Context) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("an error became %v", err)
	}
}

func testIn(t *testing.T, one, again table.Table) {
	put(t, table.In(one, "b"), "c/d", "1", table.None)
	if d, err := again.Get(t.Context(), "b/c/d", table.None); err != nil || string(d.Data) != "1" {
		t.Errorf("it is %q (%v)", d.Data, err)
	}
	if all, err := table.In(again, "b").Names(t.Context(), "c"); err != nil || !slices.Equal(all, []string{"c/d"}) {
		t.Errorf("it has %q (%v)", all, err)
	}
	if _, err := table.In(one, "b").Get(t.Context(), "../b/c/d", table.None); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a name leads out of the part: %v", err)
	}
}
