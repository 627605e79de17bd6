package ipc_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/ipc"
)

// folder gives one whose sockets' names are short, or too long for the system.
func folder(t *testing.T, long bool) string {
	t.Helper()
	dir := t.TempDir()
	if long {
		if runtime.GOOS != "linux" {
			t.Skip("long names are made short on Linux alone")
		}
		dir = filepath.Join(dir, strings.Repeat("long", 30))
	}
	return filepath.Join(dir, "desks")
}

func TestAQuestionIsAnsweredOrRefusedByTheOneThatIsAsked(t *testing.T) {
	for name, long := range map[string]bool{"a short name": false, "a long name": true} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, long)
			d, err := ipc.Open(dir, "one", func(_ context.Context, q json.RawMessage) (any, error) {
				if string(q) == `"refuse"` {
					return nil, fault.New(fault.Conflict, "100%% busy").WithHint("wait")
				}
				return []json.RawMessage{q}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			var got []string
			if err := ipc.Call(t.Context(), dir, "one", "what", &got); err != nil || len(got) != 1 || got[0] != "what" {
				t.Errorf("it says %q, %v", got, err)
			}
			f := fault.Of(ipc.Call(t.Context(), dir, "one", "refuse", &got))
			if f == nil || f.Kind != fault.Conflict || f.Message != "100% busy" || f.Hint != "wait" {
				t.Errorf("it refuses with %+v", f)
			}
			if err := ipc.Call(t.Context(), dir, "two", "what", &got); !errors.Is(err, ipc.ErrNoServer) {
				t.Errorf("where nobody is it says %v", err)
			}
			for range 2 {
				d.Close()
			}
			if err := ipc.Call(t.Context(), dir, "one", "what", &got); !errors.Is(err, ipc.ErrNoServer) {
				t.Errorf("after the end it says %v", err)
			}
		})
	}
}

// Whoever connects and says nothing, or asks what takes long, keeps nobody from ending.
func TestClosingWaitsForNobodyWhoAsksNothing(t *testing.T) {
	dir := folder(t, false)
	asked := make(chan struct{})
	d, err := ipc.Open(dir, "one", func(ctx context.Context, _ json.RawMessage) (any, error) {
		close(asked)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("unix", filepath.Join(dir, "one.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	end := make(chan error, 1)
	go func() { end <- ipc.Call(t.Context(), dir, "one", 1, new(int)) }()
	<-asked
	began := time.Now()
	d.Close()
	if err := <-end; err == nil {
		t.Error("there is an answer")
	}
	if took := time.Since(began); took >= ipc.Timeout {
		t.Errorf("it took %v", took)
	}
}

func TestOnlyTheDesksOfProcessesThatHaveEndedAreRemoved(t *testing.T) {
	dir := folder(t, false)
	answer := func(context.Context, json.RawMessage) (any, error) { return 1, nil }
	first, err := ipc.Open(dir, "first", answer)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	long := time.Now().Add(-time.Hour)
	for _, name := range []string{"dead", "new", "second"} { // as processes leave them that are killed
		l, err := net.Listen("unix", filepath.Join(dir, name+".sock"))
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
	for _, name := range []string{"first", "dead"} {
		if err := os.Chtimes(filepath.Join(dir, name+".sock"), long, long); err != nil {
			t.Fatal(err)
		}
	}
	second, err := ipc.Open(dir, "second", answer)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	for name, there := range map[string]bool{"first": true, "second": true, "new": true, "dead": false} {
		if _, err := os.Lstat(filepath.Join(dir, name+".sock")); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"first", "second"} {
		if err := ipc.Call(t.Context(), dir, name, 1, new(int)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was said right behind the response is not lost, and the end of one is heard by the other.
func TestACallGoesOnAsAConnection(t *testing.T) {
	dir := folder(t, false)
	d, err := ipc.Open(dir, "one", func(context.Context, json.RawMessage) (any, error) {
		return ipc.Connection{Answer: "yes", Serve: func(conn net.Conn) {
			_, _ = io.WriteString(conn, "first ")
			_, _ = io.Copy(conn, conn) // until the caller says that it is done
			_, _ = io.WriteString(conn, " last")
		}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 20 {
		var got string
		conn, err := ipc.Connect(t.Context(), dir, "one", 1, &got)
		if err != nil || got != "yes" {
			t.Fatalf("it says %q, %v", got, err)
		}
		_, err = io.WriteString(conn, "echo")
		if err == nil {
			err = conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		all, readErr := io.ReadAll(conn)
		if err := errors.Join(err, readErr, conn.Close()); err != nil || string(all) != "first echo last" {
			t.Fatalf("it says %q, %v", all, err)
		}
	}
	var got string
	conn, err := ipc.Connect(t.Context(), dir, "one", 1, &got)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d.Close() // and does not wait for who is connected
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("at the end it says %v", err)
	}
}
