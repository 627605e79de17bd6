package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/expect"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

const knowsTasks = `"extensions":{"io.modelcontextprotocol/tasks":{}}`

// ofTask asks for a task.
func ofTask(t *testing.T, url, method, id string, headers ...string) (status int, result map[string]any, code int) {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"taskId":%q`+modernMeta+`}}`, method, id, knowsTasks)
	r := post(t, url, body, append(modernHeaders(method, id), headers...)...)
	var answer struct {
		Result map[string]any
		Error  struct{ Code int }
	}
	if err := json.Unmarshal([]byte(bodyOf(t, r)), &answer); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, answer.Result, answer.Error.Code
}

// asTask makes a call that becomes a task.
func asTask(t *testing.T, url, code string) (id string) {
	t.Helper()
	r := post(t, url, called(1, code, fmt.Sprintf(modernMeta, knowsTasks)), modernHeaders("tools/call", "execute_code")...)
	var answer struct{ Result map[string]any }
	body := bodyOf(t, r)
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("got error %v, want none: %s", err, body)
	} else if answer.Result["resultType"] != "task" {
		t.Fatalf(`answer.Result["resultType"]: got %q, want %q`, answer.Result["resultType"], "task")
	} else if answer.Result["status"] != "working" {
		t.Fatalf(`answer.Result["status"]: got %q, want %q`, answer.Result["status"], "working")
	}
	return answer.Result["taskId"].(string)
}

func settled(t *testing.T, url, id string) (result map[string]any) {
	t.Helper()
	waitFor(t, "it ends", func() bool {
		_, result, _ = ofTask(t, url, "tasks/get", id)
		return result["status"] != "working"
	})
	return result
}

// held serves programs that go on behind a call when release has been called.
func held(t *testing.T, c transport.Config) (s *Server, h *transport.Handler, url string, release func()) {
	free := make(chan struct{})
	s = newServer(t, Config{Binding: ownedByHeader}, session.Config{Tools: &sessiontest.Tools{OnCall: func(ctx context.Context, _ session.Run, _ sandbox.Call) []byte {
		select {
		case <-free:
		case <-ctx.Done():
		}
		return []byte(`{"value":"on"}`)
	}}})
	h, url = overHTTP(t, s, c)
	return s, h, url, func() { close(free) }
}

func TestACallThatTakesLongBecomesATask(t *testing.T) {
	_, _, url, release := held(t, transport.Config{TasksDir: t.TempDir(), TaskAfter: 20 * time.Millisecond})
	id := asTask(t, url, "print('a')\nx = call('wait', '')\nprint('b')")
	status, running, _ := ofTask(t, url, "tasks/get", id)
	expect.Equal(t, "the status while it runs", status, http.StatusOK)
	expect.Equal(t, "the task while it runs", running["taskId"], any(id))
	expect.Equal(t, "the type while it runs", running["resultType"], any("complete"))
	expect.Equal(t, "the result while it runs", running["result"], nil)
	release()
	res := settled(t, url, id)
	if data, _ := json.Marshal(res["result"]); res["status"] != "completed" {
		t.Errorf(`res["status"]: got %q, want %q`, res["status"], "completed")
	} else if !strings.Contains(string(data), `"stdout":"a\nb\n"`) {
		t.Errorf(`json.Marshal(res["result"]): got %q, want %q in it`, string(data), `"stdout":"a\nb\n"`)
	}
	if _, res, _ := ofTask(t, url, "tasks/cancel", id); res["resultType"] != "complete" {
		t.Errorf(`cancelling it then: res["resultType"]: got %q, want %q`, res["resultType"], "complete")
	} else if len(res) != 1 {
		t.Errorf("cancelling it then: len(res): got %d, want 1: %v", len(res), res)
	}
}

func TestATaskIsCancelled(t *testing.T) {
	s, _, url := newHTTP(t, transport.Config{TasksDir: t.TempDir(), TaskAfter: 20 * time.Millisecond})
	id := asTask(t, url, "x = 1\nsleep(600)")
	if _, res, _ := ofTask(t, url, "tasks/cancel", id); res["resultType"] != "complete" {
		t.Errorf(`the answer: res["resultType"]: got %q, want %q`, res["resultType"], "complete")
	} else if len(res) != 1 {
		t.Errorf("the answer: len(res): got %d, want 1: %v", len(res), res)
	}
	if res := settled(t, url, id); res["status"] != "cancelled" {
		t.Errorf(`res["status"]: got %q, want %q`, res["status"], "cancelled")
	} else if res["result"] != nil {
		t.Errorf(`res["result"]: got %+v, want nil`, res["result"])
	}
	if all, err := s.config.Sessions.List(""); err != nil {
		t.Errorf("its session: got error %v, want none", err)
	} else if len(all) != 1 {
		t.Errorf("its session: len(all): got %d, want 1: %v", len(all), all)
	} else if all[0].State == session.Running {
		t.Errorf("its session: all[0].State: got %v, want another", all[0].State)
	}
}

func TestATaskIsItsOwners(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{TasksDir: t.TempDir(), TaskAfter: 20 * time.Millisecond})
	id := asTask(t, url, "sleep(600)")
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		if status, _, code := ofTask(t, url, method, id, "Owner: else"); status != 400 {
			t.Errorf("%s by somebody else: status: got %v, want 400", method, status)
		} else if code != -32602 {
			t.Errorf("%s by somebody else: code: got %v, want %v", method, code, -32602)
		}
		if status, _, code := ofTask(t, url, method, "../../etc/passwd"); status != 400 {
			t.Errorf("%s of nothing: status: got %v, want 400", method, status)
		} else if code != -32602 {
			t.Errorf("%s of nothing: code: got %v, want %v", method, code, -32602)
		}
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"taskId":%q`+modernMeta+`}}`, method, id, "")
		if r := post(t, url, body, modernHeaders(method, id)...); r.StatusCode != 400 {
			t.Errorf("%s by a client that knows no tasks: r.StatusCode: got %v, want 400", method, r.StatusCode)
		} else if !strings.Contains(bodyOf(t, r), "-32021") {
			t.Errorf("%s by a client that knows no tasks: want -32021 in the body", method)
		}
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"taskId":%q`+modernMeta+`}}`, method, id, knowsTasks)
		if r := post(t, url, body, modernHeaders(method, "another")...); r.StatusCode != 400 {
			t.Errorf("%s with another name in the header: r.StatusCode: got %v, want 400", method, r.StatusCode)
		} else if !strings.Contains(bodyOf(t, r), "-32020") {
			t.Errorf("%s with another name in the header: want -32020 in the body", method)
		}
	}
	if _, res, _ := ofTask(t, url, "tasks/get", id); res["status"] != "working" {
		t.Errorf("it is %v now", res)
	}
}

func TestATaskSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	c := transport.Config{TasksDir: dir, TaskAfter: 20 * time.Millisecond}
	s, _, url, release := held(t, c)
	done, cut := asTask(t, url, "x = call('wait', '')\nprint('kept')"), asTask(t, url, "sleep(600)")
	release()
	settled(t, url, done)
	if err := os.WriteFile(filepath.Join(dir, strings.Repeat("A", 26)+".json"), []byte(`{"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	locks, err := filepath.Glob(filepath.Join(dir, "lock-*"))
	if err != nil {
		t.Fatalf("the process has the locks: got error %v, want none", err)
	}
	if len(locks) != 1 {
		t.Fatalf("the process has the locks: len(locks): got %d, want 1: %v", len(locks), locks)
	}
	_, beside := overHTTP(t, s, c) // another process on the folder
	if _, res, _ := ofTask(t, url, "tasks/get", cut); res["status"] != "working" {
		t.Errorf("another process made it %v", res)
	}
	if _, res, _ := ofTask(t, beside, "tasks/get", done); res["status"] != "completed" {
		t.Errorf("to another process it is %v", res)
	}
	if err := os.Remove(locks[0]); err != nil { // then no process owns it, as when its process is killed
		t.Fatal(err)
	}
	_, again := overHTTP(t, s, c)
	if res := settled(t, again, done); res["status"] != "completed" {
		t.Errorf(`res["status"]: got %q, want %q`, res["status"], "completed")
	} else if !strings.Contains(fmt.Sprint(res["result"]), "kept") {
		t.Errorf(`res["result"]: got %q, want %q in it`, fmt.Sprint(res["result"]), "kept")
	}
	res := settled(t, again, cut)
	if e, _ := res["error"].(map[string]any); res["status"] != "failed" {
		t.Errorf(`the one that ran: res["status"]: got %q, want %q`, res["status"], "failed")
	} else if e["code"] != -32603.0 {
		t.Errorf(`the one that ran: e["code"]: got %v, want %v`, e["code"], -32603.0)
	}
}

func TestWithoutTheExtensionThereAreNoTasks(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{TasksDir: t.TempDir(), TaskAfter: time.Millisecond})
	body := bodyOf(t, post(t, url, called(1, "sleep(0.1)\nx = 1", fmt.Sprintf(modernMeta, "")), modernHeaders("tools/call", "execute_code")...))
	if strings.Contains(body, "taskId") {
		t.Errorf("body: got %q, want no %q in it", body, "taskId")
	}
	if !strings.Contains(body, `"resultType":"complete"`) {
		t.Errorf("body: got %q, want %q in it", body, `"resultType":"complete"`)
	}
	_, _, without := newHTTP(t, transport.Config{})
	if status, _, code := ofTask(t, without, "tasks/get", "x"); status != http.StatusNotFound {
		t.Errorf("where there are none: status: got %v, want %v", status, http.StatusNotFound)
	} else if code != -32601 {
		t.Errorf("where there are none: code: got %v, want %v", code, -32601)
	}
}
