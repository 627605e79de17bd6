package files

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/session"
)

// TestASessionStaysAwakeWhileAFileMoves holds an upload in its middle.
func TestASessionStaysAwakeWhileAFileMoves(t *testing.T) {
	held := make(chan session.ID, 100)
	s := serve(t, func(c *Config) { c.Named = func(_ session.Owner, id session.ID) { held <- id } })
	sleep := func() error { return s.sessions.Sleep("alice", "s") }
	content, upload := io.Pipe()
	ended := make(chan answered, 1)
	go func() { ended <- s.do(http.MethodPut, "/v1/sessions/s/files/a.txt", content) }()
	if _, err := io.WriteString(upload, "xxx"); err != nil {
		t.Fatal(err)
	}
	<-held
	if err := sleep(); fault.KindOf(err) != fault.Conflict {
		t.Errorf("it can be put to sleep: %v", err)
	}
	upload.Close()
	if a := <-ended; a.status != http.StatusCreated {
		t.Fatalf("the upload ended with %d %s", a.status, a.body)
	}
	for path, want := range map[string]string{"files/a.txt": "xxx", "files/": `"a.txt"`, "archive": ""} {
		if err := sleep(); err != nil {
			t.Fatalf("before %s: %v", path, err)
		}
		if info, err := s.sessions.Info("alice", "s"); err != nil {
			t.Errorf("asleep: got error %v, want none", err)
		} else if info.State != session.Asleep {
			t.Errorf("asleep: info.State = %q, want %q", info.State, session.Asleep)
		}
		if a := s.do(http.MethodGet, "/v1/sessions/s/"+path, nil); a.status != http.StatusOK {
			t.Errorf("%s of a session asleep: a.status = %d, want %d: %.100s", path, a.status, http.StatusOK, a.body)
		} else if !strings.Contains(a.body, want) {
			t.Errorf("%s of a session asleep: a.body = %.100s, want %q in it", path, a.body, want)
		}
	}
	// What is refused holds nothing either.
	for _, path := range []string{"files/nothing", "files/../x", "archive?format=rar"} {
		if a := s.do(http.MethodGet, "/v1/sessions/s/"+path, nil); a.status < 400 {
			t.Errorf("%s is %d", path, a.status)
		}
	}
	if err := sleep(); err != nil {
		t.Errorf("at last: %v", err)
	}
}
