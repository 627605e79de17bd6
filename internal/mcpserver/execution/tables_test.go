package execution

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestTasksAreTheSameInEachTable has two writers at the tasks of one table, as two processes
// or two machines are, of which one ends.
func TestTasksAreTheSameInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table {
		in, err := OpenTasks(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(in.Close)
		return in.table
	}
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		dead := map[string]bool{}
		open := func(name string) *Tasks {
			w := Writer{Name: name, Dead: func(other string) bool { return dead[other] }}
			tasks, err := TasksIn(t.Context(), in, w, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			return tasks
		}
		one, other := open("one"), open("other")
		status := func(of *Tasks, id string) (string, map[string]any) {
			t.Helper()
			got, failed := of.Get("ann", id)
			if failed != nil {
				return failed.Message, nil
			}
			return got["status"].(string), got
		}
		create := func(of *Tasks, result func() json.RawMessage) string {
			t.Helper()
			_, cancel := context.WithCancelCause(t.Context())
			made, err := of.Create("ann", "execute_code", cancel, result, nil)
			if err != nil {
				t.Fatal(err)
			}
			return made["taskId"].(string)
		}
		finish := make(chan json.RawMessage)
		id := create(one, func() json.RawMessage { return <-finish })
		if got, _ := status(other, id); got != taskWorking {
			t.Errorf("while it runs elsewhere it is %s", got)
		}
		if _, failed := other.Get("bob", id); failed == nil {
			t.Error("another owner sees it")
		}
		finish <- json.RawMessage(`{"text":"42"}`)
		one.running.Wait()
		if got, all := status(other, id); got != taskCompleted || string(all["result"].(json.RawMessage)) != `{"text":"42"}` {
			t.Errorf("it is %s: %s", got, all["result"])
		}
		huge := create(one, func() json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`) })
		one.running.Wait()
		want := taskCompleted
		if _, local := in.(table.Holder); !local {
			want = taskFailed // and all see that it is
		}
		if got, _ := status(other, huge); got != want {
			t.Errorf("with a result of 2 MiB it is %s, want %s", got, want)
		}
		left := create(one, func() json.RawMessage { return <-finish })
		dead["one"] = true
		for _, next := range []*Tasks{open("third"), open("fourth"), other} {
			if got, _ := status(next, left); got != taskFailed {
				t.Errorf("what ran in a writer that ended is %s", got)
			}
		}
		finish <- nil
		one.running.Wait()
		if got, _ := status(other, left); got != taskFailed {
			t.Errorf("a writer that was taken for dead makes it %s", got)
		}
		third := open("third")
		third.mu.Lock()
		third.forget(third.byID[id])
		third.mu.Unlock()
		if got, _ := status(other, id); !strings.Contains(got, "no such task") {
			t.Errorf("forgotten, it is %s", got)
		}
	})
}
