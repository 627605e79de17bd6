package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

// remove deletes the index's files whose names end in one of suffixes; none:
// the database alone.
func remove(t *testing.T, path string, suffixes ...string) {
	t.Helper()
	sandboxtest.Require(t, "unlink", runtime.GOOS != "windows", "an open file cannot be deleted on Windows")
	for _, suffix := range append(suffixes, "")[:max(1, len(suffixes))] {
		if err := os.Remove(path + suffix); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnIndexThatIsDeletedWhileItIsOpenIsMadeAnew(t *testing.T) {
	for name, suffixes := range map[string][]string{
		"the file":               {""},
		"the file and its log":   {"", walSuffix},
		"all of it":              {"", walSuffix, shmSuffix},
		"with the lock":          {"", walSuffix, shmSuffix, ".lock"},
		"the log alone":          {walSuffix},
		"the log's index":        {shmSuffix},
		"the log and its index":  {walSuffix, shmSuffix},
		"the lock alone":         {".lock"},
		"everything but the log": {"", shmSuffix},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "index.db")
			s, other, idle := opened(t, path), opened(t, path), opened(t, path)
			complete(t, s)
			for i := range 20 {
				s.PutSession(example("local", i))
				other.PutSession(example("other", i))
			}
			flush(t, s)
			flush(t, other)
			if !idle.Complete() || !other.Complete() {
				t.Fatal("it is not complete")
			}
			remove(t, path, suffixes...)
			if suffixes[0] == ".lock" {
				s.PutSession(example("local", 99))
				flush(t, s)
				if all := sessions(t, other, "local"); len(all) != 21 {
					t.Errorf("there are %d", len(all))
				}
				return
			}
			for _, s := range []*Store{idle, s, other} {
				if _, err := s.Sessions("local"); !errors.Is(err, ErrIncomplete) {
					t.Fatalf("reading gives %v", err)
				}
			}
			idle.Close()
			rebuild(t, s, map[string][]Session{"local": {example("local", 1)}})
			other.PutSession(example("other", 2))
			flush(t, other)
			for _, s := range []*Store{other, opened(t, path)} {
				wantIDs(t, s, "local", "s-00001")
				wantIDs(t, s, "other", "s-00002")
			}
			sound(t, path)
		})
	}
}

// sound checks a file that nobody has to have closed.
func sound(t *testing.T, path string) {
	t.Helper()
	s := &Store{path: path, log: logger(t), terms: patient(migrations)}
	c, err := s.connect(time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release(c)
	var verdict string
	if err := c.one(&verdict, `PRAGMA integrity_check`); err != nil || verdict != "ok" {
		t.Errorf("the file is %q, %v", verdict, err)
	}
}

// closedFile gives the path and the content of an index that nobody has open.
func closedFile(t *testing.T) (path string, data []byte) {
	t.Helper()
	s := fresh(t)
	for i := range 200 {
		s.PutSession(example("local", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	return s.path, data
}

func TestAFileThatIsNoGoodIsKeptAndMadeAnew(t *testing.T) {
	for name, spoil := range map[string]func(data []byte) []byte{
		"empty":             func([]byte) []byte { return nil },
		"a text":            func([]byte) []byte { return []byte(strings.Repeat("not a database\n", 1000)) },
		"cut short":         func(data []byte) []byte { return data[:len(data)/2] },
		"cut in its header": func(data []byte) []byte { return data[:50] },
		"pages of zeros": func(data []byte) []byte {
			clear(data[4096 : 5*4096])
			return data
		},
		"pages of noise": func(data []byte) []byte {
			for i := 3 * 4096; i < 30*4096; i++ {
				data[i] ^= 0x5a
			}
			return data
		},
		"another program's": func(data []byte) []byte {
			copy(data[68:], "\x00\x00\x00\x01")
			return data
		},
		"one that keeps no log": func(data []byte) []byte {
			data[18], data[19] = 1, 1
			return data
		},
		"a table is missing": func(data []byte) []byte { return bytes.Replace(data, []byte("checkpoint"), []byte("chickpoint"), -1) },
	} {
		t.Run(name, func(t *testing.T) {
			path, data := closedFile(t)
			data = spoil(data)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			s := opened(t, path)
			if s.Complete() {
				t.Error("it calls itself complete")
			}
			if kept, err := os.ReadFile(path + ".damaged"); err != nil || !bytes.Equal(kept, data) {
				t.Errorf("what was kept is not what was there: %d bytes, %v", len(kept), err)
			}
			complete(t, s)
			s.PutSession(example("local", 7))
			wantIDs(t, s, "local", "s-00007")
		})
	}
}

func TestWhatWasLeftInTheMakingIsSwept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	for _, suffix := range []string{newSuffix + "ABC", newSuffix + "ABC-wal", walSuffix, shmSuffix, "-journal", ".mine", ".new"} {
		if err := os.WriteFile(path+suffix, []byte("rest"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	complete(t, opened(t, path))
	sound(t, path)
	for suffix, stays := range map[string]bool{newSuffix + "ABC": false, newSuffix + "ABC-wal": false, "-journal": false, ".mine": true, ".new": true} {
		if _, err := os.Lstat(path + suffix); (err == nil) != stays {
			t.Errorf("index.db%s: %v", suffix, err)
		}
	}
}

func TestAFolderInTheIndexsPlaceIsKeptToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	for range 2 { // the second time there is one kept already
		if err := os.MkdirAll(filepath.Join(path, "d"), 0o700); err != nil {
			t.Fatal(err)
		}
		s := open(path, logger(t), patient(migrations))
		complete(t, s)
		s.Close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(path+".damaged", "d")); err != nil {
		t.Error(err)
	}
}

func TestDamageIsNoticedWhileTheIndexIsOpen(t *testing.T) {
	for name, use := range map[string]func(*testing.T, *Store){
		"by reading": func(t *testing.T, s *Store) {
			if _, err := s.Sessions("local"); !errors.Is(err, ErrIncomplete) {
				t.Errorf("it gives %v", err)
			}
		},
		"by writing": func(t *testing.T, s *Store) {
			for i := range 200 {
				s.DeleteSession("local", example("local", i).ID)
			}
			flush(t, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, data := closedFile(t)
			s, other := opened(t, path), opened(t, path)
			for i := 2 * 4096; i < len(data); i++ {
				data[i] ^= 0x5a
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0) // the same file
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(data); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			use(t, s)
			complete(t, other)
			other.PutSession(example("local", 3))
			flush(t, other)
			wantIDs(t, s, "local", "s-00003")
			wantIDs(t, other, "local", "s-00003")
		})
	}
}

func TestALogThatIsCutAnywhereGivesAnEarlierState(t *testing.T) {
	s := fresh(t)
	const puts = 60
	for i := range puts {
		s.PutSession(verified("local", i))
		flush(t, s)
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(s.path + walSuffix)
	if err != nil || len(log) < puts*4096 {
		t.Fatalf("a log of %d bytes, %v", len(log), err)
	}
	seen := map[int]bool{}
	for i := range 40 {
		path := filepath.Join(t.TempDir(), "index.db")
		torn := bytes.Clone(log[:len(log)*i/39])
		if i%2 == 1 && i < 39 { // written out of order: noise in the last page
			for j := max(0, len(torn)-2000); j < len(torn); j++ {
				torn[j] ^= 0x5a
			}
		}
		if err := errors.Join(os.WriteFile(path, data, 0o600), os.WriteFile(path+walSuffix, torn, 0o600)); err != nil {
			t.Fatal(err)
		}
		again := open(path, logger(t), patient(migrations))
		if again.Complete() { // the rebuild may not have been in the file yet
			all := sessions(t, again, "local")
			seen[len(all)] = true
			for j, r := range all {
				if !isWhole(r) || r.ID != example("", j).ID {
					t.Errorf("cut at %d/39, row %d is not what was put: %+v", i, j, r)
				}
			}
			if i == 39 && len(all) != puts {
				t.Errorf("the whole log gives %d of %d", len(all), puts)
			}
		}
		again.Close()
		sound(t, path)
		if _, err := os.Lstat(path + ".damaged"); err == nil {
			t.Errorf("cut at %d/39, the file was set aside", i)
		}
	}
	if len(seen) < 20 {
		t.Errorf("the cuts gave %d different states", len(seen))
	}
}

// second is a schema of the future.
func second(c *conn) error { return c.run(`ALTER TABLE session ADD COLUMN mood TEXT`) }

func TestAnOlderIndexIsBroughtForward(t *testing.T) {
	path, _ := closedFile(t)
	older := opened(t, path) // a process that goes on beside
	if !older.Complete() {
		t.Fatal("it is not complete")
	}
	newer := open(path, logger(t), patient(append(migrations[:1:1], second)))
	defer newer.Close()
	if all := sessions(t, newer, "local"); len(all) != 200 {
		t.Errorf("of 200 sessions are left %d", len(all))
	}
	older.PutSession(example("local", 300))
	_, err := older.Sessions("local")
	switch {
	case !errors.Is(err, ErrUnavailable):
		t.Errorf("the older one goes: error %v, want %v", err, ErrUnavailable)
	case older.Complete():
		t.Errorf("the older one goes: older.Complete() = true, want false: %v", err)
	case older.await(t.Context()) == nil:
		t.Errorf("the older one goes: older.await(t.Context()) is nil, want an error: %v", err)
	}
	if _, err := older.Rebuild(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the older one rebuilds it: %v", err)
	}
	if all := sessions(t, newer, "local"); len(all) != 200 {
		t.Errorf("it was taken from the newer one, which has %d", len(all))
	}
}

func TestANewerIndexIsSetAsideWhenAnOlderPaddockStarts(t *testing.T) {
	path, _ := closedFile(t)
	newer := open(path, logger(t), patient(append(migrations[:1:1], second)))
	defer newer.Close()
	if !newer.Complete() {
		t.Fatal("it is not complete")
	}
	remove(t, path+".lock") // Windows cannot rename what is open, either
	older := opened(t, path)
	if older.Complete() {
		t.Error("the older one calls its new file complete")
	}
	if _, err := os.Stat(path + ".newer"); err != nil {
		t.Error(err)
	}
	if newer.Complete() {
		t.Error("the newer one calls the new file complete")
	}
	if older.PutSession(example("local", 1)); older.Complete() { // the newer one has brought it forward
		t.Error("the older one reads a newer one's file")
	}
	complete(t, newer)
}

func TestAMigrationThatFailsChangesNothing(t *testing.T) {
	path, _ := closedFile(t)
	broken := func(c *conn) error {
		return errors.Join(second(c), c.run(`INSERT INTO nowhere VALUES (1)`))
	}
	s := open(path, logger(t), patient(append(migrations[:1:1], broken)))
	if s.Complete() {
		t.Error("it is used")
	}
	s.Close()
	if all := sessions(t, opened(t, path), "local"); len(all) != 200 {
		t.Errorf("of 200 sessions are left %d", len(all))
	}
}

func TestWithoutAFolderEverythingGoesOnAndComesBackWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := opened(t, filepath.Join(dir, "index.db"))
		s.PutSession(example("local", 1))
		s.DeleteSession("local", "s-00000")
		if _, err := s.Sessions("local"); !errors.Is(err, ErrUnavailable) || s.Complete() {
			t.Errorf("reading gives %v", err)
		}
		if err := s.await(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("flushing gives %v", err)
		}
		if _, err := s.Rebuild(t.Context()); err == nil {
			t.Error("it can be rebuilt")
		}
		if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := uncompleted(t, s, "local"); len(got) != 1 {
			t.Errorf("what was put is not there: %v", got)
		}
		complete(t, s)
		s.Close()
	})
}

func TestAFullFileLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fresh(t)
		limit := func(pages int) {
			t.Helper()
			err := s.do(t.Context(), func(c *conn) error { return c.run(fmt.Sprint(`PRAGMA max_page_count = `, pages)) })
			if err != nil {
				t.Fatal(err)
			}
		}
		limit(20)
		for i := range 100 {
			s.PutSession(example("local", i))
		}
		if err := s.await(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("flushing gives %v", err)
		}
		if _, err := s.Sessions("local"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("reading what is not written gives %v", err)
		}
		s.PutSession(example("local", 100))
		time.Sleep(time.Minute) // the connection that had the limit is gone
		if all := sessions(t, s, "local"); len(all) != 101 {
			t.Errorf("of 101 sessions there are %d", len(all))
		}
		s.Close()
	})
}

func TestAChangeThatIsNoGoodDoesNotStandInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fresh(t)
		write(s, func(c *conn) error { return c.run(`INSERT INTO nowhere VALUES (1)`) })
		s.PutSession(example("local", 1))
		time.Sleep(time.Minute)
		s.PutSession(example("local", 2))
		if _, err := s.Sessions("local"); !errors.Is(err, ErrIncomplete) {
			t.Errorf("reading gives %v", err)
		}
		complete(t, s)
		s.Close()
	})
}
