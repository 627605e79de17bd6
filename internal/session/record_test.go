package session

import (
	"encoding/json"
	"testing"
	"time"

	"paddock/internal/sessionstore"
)

// What is on disk of a session does not change when the record's parts do.
func TestARecordHasTheSameTextAsEver(t *testing.T) {
	at := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	r := record{
		Identity:  sessionstore.Identity{Version: 1, ID: "s-1", Owner: "ann"},
		Settings:  Settings{Language: "python", TTL: time.Hour},
		Isolation: "wasm", CreatedAt: at, LastUsedAt: at, Executions: 3, Runtimes: map[string]int64{"python": 3},
		Signature: sessionstore.Signature{Process: 7, Boot: "b", Life: "L", Group: "g-1"},
		Anew:      []string{"python"}, News: "news", Calls: "calls", TreeBytes: 5, Head: 2, Halted: true, Unkept: []string{"js"},
		Traffic:     Traffic{Requests: 1, Sent: 2, Received: 3},
		Waiting:     &WaitingRun{Execution: "x-1", Since: at, Reasons: []string{"mail"}},
		checkpoints: 9,
	}
	want := `{"version":1,"session_id":"s-1","owner":"ann","settings":{"language":"python","ttl":3600000000000},"isolation":"wasm",` +
		`"created_at":"2026-07-28T12:00:00Z","last_used_at":"2026-07-28T12:00:00Z","execution_count":3,"runtimes":{"python":3},` +
		`"process":7,"boot":"b","life":"L","group":"g-1","anew":["python"],"news":"news","calls":"calls","tree_bytes":5,"head":2,` +
		`"halted":true,"unkept":["js"],"traffic":{"requests":1,"sent":2,"received":3},` +
		`"waiting":{"execution_id":"x-1","since":"2026-07-28T12:00:00Z","reasons":["mail"]}}`
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatalf("encoding: %v", err)
	}
	if string(got) != want {
		t.Errorf("record:\n got %s\nwant %s", got, want)
	}
}
