package session

import "time"

// Checkpoint is one kept state of a session: its files and what every
// interpreter held, of the same moment.
type Checkpoint struct {
	// ID is how calls name it: a number that grows, in decimal.
	ID        string    `json:"checkpoint"`
	Label     string    `json:"label,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// Cause is what it was made after: "create", "execute", "files" (written from
	// outside of programs), "reset", "checkpoint" (asked for), "fork", "import".
	Cause string `json:"cause"`
	// Current tells that the session is at this one now.
	Current bool `json:"current,omitempty"`
	// Previous is where undo leads from here; empty: nowhere.
	Previous string `json:"previous,omitempty"`

	// Of an execution: its id, its language and the first line of its code.
	Execution string `json:"execution_id,omitempty"`
	Language  string `json:"language,omitempty"`
	Code      string `json:"code,omitempty"`

	// What changed since Previous. Variables are told apart by type and preview.
	Variables []VariableChange `json:"variables"`
	Files     []Change         `json:"files"`
	// Bytes is what it added to the disk.
	Bytes int64 `json:"bytes"`
	// Memory tells that what runs in the session's machine is in it, too.
	Memory bool `json:"memory,omitempty"`
	// Notice tells of a new one what is not in it; empty: all is.
	Notice string `json:"notice,omitempty"`
}

// VariableChange is one variable that differs between two checkpoints.
type VariableChange struct {
	Name   string `json:"name"`
	Change string `json:"change"` // "added", "modified", "removed"
}

// Restored tells what going back to a checkpoint did.
type Restored struct {
	Checkpoint Checkpoint
	// Undone is the id of the checkpoint that was current before.
	Undone string
	// Changes and Variables are what is different now.
	Changes   []Change
	Variables []VariableChange
	// Notice tells what the model has to know, such as variables that could
	// not be brought back; empty: nothing.
	Notice string
}

// Collected is what a collection gave back.
type Collected struct {
	Sessions    int   `json:"sessions"`    // that had expired
	Checkpoints int   `json:"checkpoints"` // that were too many, or of no session any more
	Blobs       int   `json:"blobs"`
	Bytes       int64 `json:"bytes"`
}
