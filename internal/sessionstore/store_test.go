package sessionstore_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sessionstore"
)

// ttl is how long the sessions of these tests live.
const ttl = time.Hour

// testRecord is a record as a caller of the store has it.
type testRecord struct {
	sessionstore.Identity
	LastUsedAt time.Time `json:"last_used_at"`
	sessionstore.Signature
	TreeBytes int64 `json:"tree_bytes,omitempty"`
}

func describe(r sessionstore.Record) (sessionstore.Row, error) {
	var t testRecord
	err := json.Unmarshal(r.Data, &t)
	return sessionstore.Row{LastUsedAt: t.LastUsedAt, ExpiresAt: t.LastUsedAt.Add(ttl), TreeBytes: t.TreeBytes}, err
}

func open(t *testing.T, dir string) *sessionstore.Store {
	t.Helper()
	s, err := sessionstore.Open(sessionstore.Config{Dir: dir, Describe: describe, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return s
}

// write writes the record of a claimed session.
func write(t *testing.T, c sessionstore.Claim, r testRecord) {
	t.Helper()
	data, err := json.Marshal(r)
	if err == nil {
		err = c.Write(data, true)
	}
	if err != nil {
		t.Fatalf("writing the record of %s: %v", r.ID, err)
	}
}

func newRecord(k sessionstore.Key) testRecord {
	return testRecord{Identity: sessionstore.Identity{Version: 1, ID: k.ID, Owner: k.Owner}, LastUsedAt: time.Now()}
}

// create makes a session and releases it.
func create(t *testing.T, s *sessionstore.Store, k sessionstore.Key, change ...func(*testRecord)) {
	t.Helper()
	c, err := s.Create(k)
	if err != nil {
		t.Fatalf("creating %v: %v", k, err)
	}
	defer c.Release()
	r := newRecord(k)
	for _, f := range change {
		f(&r)
	}
	write(t, c, r)
}

// checkpoint adds a checkpoint to a session's line.
func checkpoint(t *testing.T, s *sessionstore.Store, k sessionstore.Key, r testRecord) {
	t.Helper()
	line, err := history.Open(s.Local().Checkpoints(k), blob.OS)
	if err != nil {
		t.Fatalf("opening the checkpoints of %v: %v", k, err)
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = line.Append(&history.Manifest{Owner: k.Owner, Session: k.ID, At: r.LastUsedAt, Cause: history.CauseAsked, Record: data}, nil, nil)
	}
	if err != nil {
		t.Fatalf("adding a checkpoint to %v: %v", k, err)
	}
}

func wantKind(t *testing.T, doing string, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); err == nil {
		t.Errorf("%s: got no error, want one", doing)
	} else if got != want {
		t.Errorf("%s: got %v, want %v", doing, got, want)
	}
}

func wantNoError(t *testing.T, doing string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: got error %v, want none", doing, err)
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("looking at %s: %v", path, err)
	}
	return err == nil
}

var one = sessionstore.Key{Owner: "local", ID: "one"}

func TestASessionExistsFromItsFirstWriteOn(t *testing.T) {
	s := open(t, t.TempDir())
	c, err := s.Create(one)
	if err != nil {
		t.Fatalf("creating: %v", err)
	}
	defer c.Release()
	_, err = s.Read(one)
	wantKind(t, "reading before the first write", err, fault.NotFound)
	write(t, c, newRecord(one))
	r, err := s.Read(one)
	wantNoError(t, "reading after the first write", err)
	if r.ID != one.ID {
		t.Errorf("id: got %q, want %q", r.ID, one.ID)
	}
}

func TestARecordIsKeptByteForByte(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, one)
	want := "{\n  \"version\": 1,\n  \"session_id\": \"one\",\n  \"owner\": \"local\",\n  \"unknown\": [1, 2]\n}\n"
	for name, durably := range map[string]bool{"durably": true, "without waiting for the disk": false} {
		t.Run(name, func(t *testing.T) {
			c, _, err := s.Open(one)
			if err != nil {
				t.Fatalf("opening: %v", err)
			}
			defer c.Release()
			wantNoError(t, "writing", c.Write([]byte(want), durably))
			got, err := os.ReadFile(filepath.Join(s.Local().Session(one), "session.json"))
			wantNoError(t, "reading session.json", err)
			if string(got) != want {
				t.Errorf("session.json: got %q, want %q", got, want)
			}
			r, err := s.Read(one)
			wantNoError(t, "reading the record", err)
			if string(r.Data) != want {
				t.Errorf("record: got %q, want %q", r.Data, want)
			}
		})
	}
}

func TestAClaimIsExclusive(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir), open(t, dir)
	create(t, s, one)
	c, _, err := s.Open(one)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	r := newRecord(one)
	r.Signature = c.Sign(r.Signature)
	write(t, c, r)
	if !other.Held(one) {
		t.Error("held while it is claimed: got false, want true")
	}
	_, _, err = other.Open(one)
	wantKind(t, "opening a claimed session", err, fault.Conflict)
	_, err = other.Claim(one)
	wantKind(t, "claiming a claimed session", err, fault.Conflict)
	_, err = other.Create(one)
	wantKind(t, "creating a claimed session", err, fault.Conflict)
	read, err := other.Read(one)
	wantNoError(t, "reading a claimed session", err)
	if read.Process != os.Getpid() {
		t.Errorf("process of a claimed session: got %d, want %d", read.Process, os.Getpid())
	}
	c.Release()
	c.Release() // it works twice
	if other.Held(one) {
		t.Error("held after its release: got true, want false")
	}
	c, _, err = other.Open(one)
	if err != nil {
		t.Fatalf("opening a released session: %v", err)
	}
	c.Release()
}

func TestALaterClaimHasAGreaterGeneration(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, one)
	var last uint64
	for range 3 {
		c, _, err := s.Open(one)
		if err != nil {
			t.Fatalf("opening: %v", err)
		}
		if c.Generation() <= last {
			t.Errorf("generation: got %d, want more than %d", c.Generation(), last)
		}
		last = c.Generation()
		c.Release()
	}
}

func TestAReleasedClaimWritesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, one)
	c, before, err := s.Open(one)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	c.Release()
	if err := c.Write([]byte("{}"), true); err == nil {
		t.Error("writing with a released claim: got no error, want one")
	}
	after, err := s.Read(one)
	wantNoError(t, "reading", err)
	if string(after.Data) != string(before.Data) {
		t.Errorf("record: got %q, want %q", after.Data, before.Data)
	}
}

func TestAnExistingSessionIsNotCreated(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, one)
	_, err := s.Create(one)
	wantKind(t, "creating it again", err, fault.Conflict)
	if s.Held(one) {
		t.Error("held after the refusal: got true, want false")
	}
}

func TestASignatureSaysWhetherTheFilesAreAsTheyWereLeft(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, one)
	c, r, err := s.Open(one)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	defer c.Release()
	held := c.Sign(r.Signature)
	for name, test := range map[string]struct {
		signature sessionstore.Signature
		want      bool
	}{
		"held":                {held, false},
		"released clean":      {c.Unsign(held, true), true},
		"released in trouble": {c.Unsign(held, false), false},
	} {
		if got := test.signature.Clean(); got != test.want {
			t.Errorf("%s: clean: got %v, want %v", name, got, test.want)
		}
	}
}

func TestARemovedSessionDoesNotExist(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, one)
	checkpoint(t, s, one, newRecord(one))
	c, err := s.Claim(one)
	if err != nil {
		t.Fatalf("claiming: %v", err)
	}
	wantNoError(t, "removing", c.Remove())
	_, err = s.Read(one)
	wantKind(t, "reading it", err, fault.NotFound)
	if !s.Held(one) {
		t.Error("held until it is discarded: got false, want true")
	}
	wantNoError(t, "discarding", c.Discard())
	for _, dir := range []string{s.Local().Session(one), s.Local().Checkpoints(one)} {
		if exists(t, dir) {
			t.Errorf("%s exists after the removal", dir)
		}
	}
	create(t, s, one)
}

func TestARecordIsReadFromTheNewestCheckpointWhereItIsDamaged(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, one)
	kept := newRecord(one)
	kept.TreeBytes = 42
	checkpoint(t, s, one, kept)
	wantNoError(t, "damaging the record", os.WriteFile(filepath.Join(s.Local().Session(one), "session.json"), make([]byte, 100), 0o600))
	r, err := s.Read(one)
	if err != nil {
		t.Fatalf("reading: %v", err)
	}
	row, err := describe(r)
	wantNoError(t, "decoding the record", err)
	if row.TreeBytes != 42 {
		t.Errorf("tree bytes: got %d, want those of the checkpoint: 42", row.TreeBytes)
	}
	if r.Clean() {
		t.Error("clean: got true, want false: its process did not release it")
	}
}

func TestRecordsThatAreRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*testRecord)
		want   fault.Kind
	}{
		"of a newer paddock":       {func(r *testRecord) { r.Version = 2 }, fault.Unsupported},
		"of another session":       {func(r *testRecord) { r.ID = "ONE" }, fault.NotFound},
		"of another owner":         {func(r *testRecord) { r.Owner = "bob" }, fault.NotFound},
		"of an uncommitted group":  {func(r *testRecord) { r.Group = "g-1" }, fault.NotFound},
		"of a group that is a way": {func(r *testRecord) { r.Group = "../../x" }, fault.NotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			create(t, s, one, test.change)
			_, err := s.Read(one)
			wantKind(t, "reading", err, test.want)
		})
	}
}

func TestSessionsOfAGroupExistTogether(t *testing.T) {
	s := open(t, t.TempDir())
	keys := []sessionstore.Key{{Owner: "alice", ID: "a"}, {Owner: "alice", ID: "b"}}
	end, err := s.BeginGroup("alice", "g-1")
	if err != nil {
		t.Fatalf("beginning a group: %v", err)
	}
	for _, k := range keys {
		create(t, s, k, func(r *testRecord) { r.Group = "g-1" })
		_, err := s.Read(k)
		wantKind(t, "reading "+k.ID+" before the commit", err, fault.NotFound)
	}
	_, err = s.RemoveOrphans(s.PlaceOf("alice"))
	wantNoError(t, "collecting while the group is being made", err)
	wantNoError(t, "committing", s.CommitGroup("alice", "g-1"))
	end()
	for _, k := range keys {
		_, err := s.Read(k)
		wantNoError(t, "reading "+k.ID+" after the commit", err)
	}
	c, r, err := s.Open(keys[0])
	if err != nil {
		t.Fatalf("opening %s: %v", keys[0].ID, err)
	}
	defer c.Release()
	if got := c.Unsign(r.Signature, true).Group; got != "" {
		t.Errorf("group after the release: got %q, want none", got)
	}
}

func TestSessionsOfAGroupThatWasNotCommittedAreCollected(t *testing.T) {
	s := open(t, t.TempDir())
	k := sessionstore.Key{Owner: "alice", ID: "a"}
	end, err := s.BeginGroup("alice", "g-1")
	if err != nil {
		t.Fatalf("beginning a group: %v", err)
	}
	create(t, s, k, func(r *testRecord) { r.Group = "g-1" })
	checkpoint(t, s, k, newRecord(k))
	end()
	n, err := s.RemoveOrphans(s.PlaceOf("alice"))
	wantNoError(t, "collecting", err)
	if n != 1 {
		t.Errorf("checkpoints removed: got %d, want 1", n)
	}
	if exists(t, s.Local().Session(k)) {
		t.Error("the session's folder exists after the collection")
	}
}

func TestOwnersAndTheirSessions(t *testing.T) {
	s := open(t, t.TempDir())
	for _, k := range []sessionstore.Key{{Owner: "bob", ID: "b"}, one, {Owner: "alice", ID: "a"}, {Owner: "alice", ID: "b"}} {
		create(t, s, k)
	}
	owners, err := s.Owners()
	wantNoError(t, "listing owners", err)
	if want := []string{"alice", "bob", "local"}; !slices.Equal(owners, want) {
		t.Errorf("owners: got %v, want %v", owners, want)
	}
	ids, err := s.IDs("alice")
	wantNoError(t, "listing ids", err)
	if want := []string{"a", "b"}; !slices.Equal(ids, want) {
		t.Errorf("ids of alice: got %v, want %v", ids, want)
	}
	records, err := s.Records("alice")
	wantNoError(t, "listing records", err)
	if len(records) != 2 {
		t.Errorf("records of alice: got %d, want 2", len(records))
	}
	if none, err := s.Records("carol"); err != nil {
		t.Errorf("records of an unknown owner: got error %v, want none", err)
	} else if len(none) != 0 {
		t.Errorf("records of an unknown owner: got %v, want none", none)
	}
}

func TestExpiredSessionsAreFoundByASearch(t *testing.T) {
	s := open(t, t.TempDir())
	old := func(r *testRecord) { r.LastUsedAt = time.Now().Add(-2 * ttl) }
	create(t, s, one, old)
	create(t, s, sessionstore.Key{Owner: "alice", ID: "new"})
	create(t, s, sessionstore.Key{Owner: "alice", ID: "old"}, old)
	var got []string
	for k := range s.Expired(t.Context(), time.Now(), true) {
		got = append(got, k.Owner+"/"+k.ID)
	}
	slices.Sort(got)
	if want := []string{"alice/old", "local/one"}; !slices.Equal(got, want) {
		t.Errorf("expired: got %v, want %v", got, want)
	}
}

func TestASearchRemovesWhatIsLeftOfSessions(t *testing.T) {
	s := open(t, t.TempDir())
	for id, age := range map[string]time.Duration{"old": time.Hour, "new": 0} {
		c, err := s.Create(sessionstore.Key{Owner: "local", ID: id})
		if err != nil {
			t.Fatalf("beginning to create %s: %v", id, err)
		}
		c.Release() // it was interrupted
		at := time.Now().Add(-age)
		wantNoError(t, "making the folder older", os.Chtimes(s.Local().Session(sessionstore.Key{Owner: "local", ID: id}), at, at))
	}
	for k := range s.Expired(t.Context(), time.Now(), true) {
		t.Errorf("expired: got %v, want none", k)
	}
	ids, err := s.IDs("local")
	wantNoError(t, "listing ids", err)
	if want := []string{"new"}; !slices.Equal(ids, want) {
		t.Errorf("what is left: got %v, want %v", ids, want)
	}
}

func TestContentsThatNoCheckpointNamesAreRemoved(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, one)
	contents, err := s.Local().Blobs("local")
	if err != nil {
		t.Fatalf("opening the contents: %v", err)
	}
	batch, err := contents.Begin(t.Context())
	if err != nil {
		t.Fatalf("beginning to put: %v", err)
	}
	_, err = batch.Put(strings.NewReader("unwanted"))
	wantNoError(t, "putting", err)
	wantNoError(t, "syncing", batch.Sync(t.Context()))
	wantNoError(t, "closing", batch.Close())
	if got, want := s.Places(), []sessionstore.Place{s.PlaceOf("local")}; !slices.Equal(got, want) {
		t.Errorf("places: got %v, want %v", got, want)
	}
	n, bytes, _, err := s.RemoveContents(t.Context(), s.PlaceOf("local"))
	wantNoError(t, "collecting", err)
	if n != 1 {
		t.Errorf("contents removed: got %d, want 1", n)
	}
	if bytes == 0 {
		t.Error("bytes removed: got 0, want some")
	}
}

// A first write that fails must not leave a session that was refused.
func TestAFailedFirstWriteLeavesNoSession(t *testing.T) {
	files := &failing{Files: blob.OS}
	s, err := sessionstore.Open(sessionstore.Config{Dir: t.TempDir(), Files: files, Describe: describe, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	defer s.Close()
	c, err := s.Create(one)
	if err != nil {
		t.Fatalf("creating: %v", err)
	}
	defer c.Release()
	files.fails = true
	data, _ := json.Marshal(newRecord(one))
	if err := c.Write(data, true); err == nil {
		t.Error("writing on a disk that fails: got no error, want one")
	}
	_, err = s.Read(one)
	wantKind(t, "reading after the failure", err, fault.NotFound)
}

// failing is a disk whose folders cannot be synced.
type failing struct {
	blob.Files
	fails bool
}

func (f *failing) SyncDir(name string) error {
	if f.fails {
		return errors.New("the disk fails")
	}
	return f.Files.SyncDir(name)
}

func TestTheFormatOfTheStateFolder(t *testing.T) {
	tests := map[string]struct {
		format string // "": there is no file
		want   fault.Kind
	}{
		"a new folder":     {"", ""},
		"the oldest one":   {"1\n", ""},
		"an older paddock": {"2\n", ""},
		"this paddock":     {"3\n", ""},
		"a newer paddock":  {"4\n", fault.Unsupported},
		"no number":        {"two\n", fault.Unavailable},
		"no version":       {"0\n", fault.Unavailable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "format")
			if test.format != "" {
				wantNoError(t, "writing the format", os.WriteFile(path, []byte(test.format), 0o600))
			}
			s, err := sessionstore.Open(sessionstore.Config{Dir: dir, Describe: describe, Log: slog.New(slog.DiscardHandler)})
			if test.want != "" {
				wantKind(t, "opening", err, test.want)
				return
			}
			if err != nil {
				t.Fatalf("opening: %v", err)
			}
			wantNoError(t, "closing", s.Close())
			got, err := os.ReadFile(path)
			wantNoError(t, "reading the format", err)
			if string(got) != "3\n" {
				t.Errorf("format: got %q, want %q", got, "3\n")
			}
		})
	}
}

func TestTheIndexIsRebuiltFromTheFolders(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	create(t, first, one, func(r *testRecord) { r.LastUsedAt = time.Now().Add(-2 * ttl) })
	wantNoError(t, "closing", first.Close())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(dir, "index.db"+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("removing the index: %v", err)
		}
	}
	s := open(t, dir)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var got []sessionstore.Key
		for k := range s.Expired(t.Context(), time.Now(), false) {
			got = append(got, k)
		}
		if slices.Equal(got, []sessionstore.Key{one}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("expired by the index: got %v, want %v", got, one)
		}
	}
}
