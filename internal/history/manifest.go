// Package history holds sessions' checkpoints on disk: for each one a manifest,
// which says what the session was at that moment and which blobs hold it.
//
// A manifest is one small file that describes itself: whoever finds it needs
// nothing else but the owner's blobs. It is written whole and synced, after the
// blobs that it names, so that what can be read is what was.
package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// Version is that of the manifests that are written; later ones are refused.
const Version = 1

// What a checkpoint was made after.
const (
	CauseCreate  = "create"
	CauseExecute = "execute"
	CauseFiles   = "files" // written from outside of programs
	CauseReset   = "reset"
	CauseAsked   = "checkpoint"
	CauseFork    = "fork"
	CauseImport  = "import"
	CauseRecover = "recover"
	CauseRestore = "restore"
	CauseSleep   = "sleep"
	CauseIdle    = "idle"  // nobody had used it for a while
	CauseGoOn    = "go on" // a run that waited was gone on with, or given up
)

// Manifest is one checkpoint.
type Manifest struct {
	Version int    `json:"version"`
	Owner   string `json:"owner"`
	Session string `json:"session"`
	// Number is its place in the session's line, from 1.
	Number int64 `json:"number"`
	// Of is the number of the checkpoint whose state this is: its own, or that of
	// an earlier one that was gone back to.
	Of int64 `json:"of"`
	// Previous is the checkpoint that undo goes back to; 0: there is none.
	Previous int64     `json:"previous,omitempty"`
	At       time.Time `json:"at"`
	Label    string    `json:"label,omitempty"`
	Cause    string    `json:"cause"` // one of those above

	// Of an execution: its id, its language and the first line of its code.
	Execution string `json:"execution,omitempty"`
	Language  string `json:"language,omitempty"`
	Code      string `json:"code,omitempty"`
	// Output is what the execution was and did; nil: it is not kept, or there was none. It
	// is never changed in place.
	Output *Output `json:"output,omitempty"`

	// Record is what else there is to know of the session, for whoever finds
	// nothing but this.
	Record json.RawMessage `json:"record,omitempty"`
	// Trees are the listings of the session's folders, by their names.
	Trees map[string]blob.Ref `json:"trees,omitempty"`
	// Interpreters are what each runtime held.
	Interpreters map[string]Interpreter `json:"interpreters,omitempty"`
	// Machine is what the session's machine was, which its interpreters live in; nil:
	// it was not saved, or there was none. It is never changed in place.
	Machine *Machine `json:"machine,omitempty"`
	// Waiting is a run that this is in the middle of; nil: it is in none's. It is never
	// changed in place.
	Waiting *Waiting `json:"waiting,omitempty"`

	// What changed since Previous, as lists for people, and how many bytes of
	// disk it took.
	Variables []Change `json:"variables,omitempty"`
	Files     []Change `json:"files,omitempty"`
	Bytes     int64    `json:"bytes"`
}

// Change is one variable or file that is different.
type Change struct {
	Name   string `json:"name"`
	Change string `json:"change"` // "added", "modified", "removed"
	Size   int64  `json:"size,omitempty"`
}

// Interpreter is one runtime's state.
type Interpreter struct {
	// State and Layers are a sandbox.Resume's; all layers are blobs.
	State  []byte     `json:"state"`
	Layers []blob.Ref `json:"layers"`
	// Mark is how the instance that wrote it knows the last layer.
	Mark string `json:"mark,omitempty"`
	// Anew says that this state has been gone on from already, here or in
	// another session: who resumes it needs new seeds.
	Anew bool `json:"anew,omitempty"`
	// What it held; Known is false where it did not say.
	Known     bool       `json:"known"`
	Variables []Variable `json:"variables,omitempty"`
	Imports   []string   `json:"imports,omitempty"`
	Memory    int64      `json:"memory,omitempty"`
}

// Machine is a machine with all that ran in it.
type Machine struct {
	// State and Content are a sandbox.MachineState's.
	State   []byte   `json:"state"`
	Content blob.Ref `json:"content"`
	Anew    bool     `json:"anew,omitempty"` // as an Interpreter's
	// Interpreters are those in it, and what they held; they have no layers.
	Interpreters map[string]Interpreter `json:"interpreters"`
}

// Waiting is a run that waits for a person: what it does next is in its interpreter's
// state.
type Waiting struct {
	Execution string    `json:"execution"`
	Runtime   string    `json:"runtime"`
	Language  string    `json:"language,omitempty"`
	Since     time.Time `json:"since"`
	Reasons   []string  `json:"reasons"` // for what it waits
	// Begun says that it was gone on with: it is not waiting any more, and never will
	// be again at this place.
	Begun bool `json:"begun,omitempty"`
	// Content is what else is needed to go on with it: a blob.
	Content blob.Ref `json:"content"`
}

// Waits gives the run that waits; nil: none does.
func (m *Manifest) Waits() *Waiting {
	if m.Waiting == nil || m.Waiting.Begun {
		return nil
	}
	return m.Waiting
}

// Same tells whether two states are one.
func (in Interpreter) Same(other Interpreter) bool { return slices.Equal(in.Layers, other.Layers) }

// Holds tells whether an interpreter of this runtime is in the machine; in nil there
// is none.
func (m *Machine) Holds(runtime string) bool {
	if m == nil {
		return false
	}
	_, there := m.Interpreters[runtime]
	return there
}

// Again is the machine for who goes on with it another time, or elsewhere; nil for nil.
func (m *Machine) Again() *Machine {
	if m == nil {
		return nil
	}
	other := *m
	other.Anew = true
	return &other
}

// Variable is one global name of a program.
type Variable struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Preview string `json:"preview"`
}

// Holds tells whether it has what a runtime held, of its own or in its machine.
func (m *Manifest) Holds(runtime string) bool {
	_, there := m.Interpreters[runtime]
	return there || m.Machine.Holds(runtime)
}

// Refs gives every blob that the manifest names.
func (m *Manifest) Refs() iter.Seq[blob.Ref] {
	return func(yield func(blob.Ref) bool) {
		if m.Machine != nil && !yield(m.Machine.Content) {
			return
		}
		if m.Waiting != nil && !yield(m.Waiting.Content) {
			return
		}
		for r := range m.Output.refs() {
			if !yield(r) {
				return
			}
		}
		m.Needs()(yield)
	}
}

// Needs gives every blob without which the manifest is of no use. Without that of
// its machine the files are still there, and without that of a run that waits, or what
// an execution printed, the variables, too.
func (m *Manifest) Needs() iter.Seq[blob.Ref] {
	return func(yield func(blob.Ref) bool) {
		for _, r := range m.Trees {
			if !yield(r) {
				return
			}
		}
		for _, in := range m.Interpreters {
			for _, r := range in.Layers {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Clone copies what a later checkpoint may change of its own: the maps.
func (m *Manifest) Clone() Manifest {
	c := *m
	c.Trees, c.Interpreters = maps.Clone(m.Trees), maps.Clone(m.Interpreters)
	c.Variables, c.Files = slices.Clone(m.Variables), slices.Clone(m.Files)
	return c
}

// magic begins a manifest's file; its digit is the format's version. The SHA-256
// of the rest follows in hexadecimal, a line feed, and the manifest as JSON in
// zstd.
const magic = "paddock checkpoint 1 "

// maxBytes bounds a manifest when it is read: two hundred variables of each
// runtime and some hundred layers take less than a tenth of it.
const maxBytes = 8 << 20

var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxBytes), zstd.WithDecoderConcurrency(0))
)

func init() { _ = encoder.EncodeAll([]byte{0}, nil) } // what it makes then is made here, and not in a test's bubble

// encode gives the file of a manifest.
func encode(m *Manifest) ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding a checkpoint: %w", err)
	}
	if len(text) > maxBytes { // it could not be read
		return nil, fault.New(fault.Exhausted, "what there is to know of a checkpoint takes %d MiB", len(text)>>20).WithHint("give variables shorter names, or reset the session")
	}
	body := encoder.EncodeAll(text, nil)
	sum := sha256.Sum256(body)
	head := magic + hex.EncodeToString(sum[:]) + "\n"
	return append([]byte(head), body...), nil
}

// decode reads the file of a manifest and checks that it is whole. What is
// damaged is an ErrDamaged, what a newer paddock wrote a fault.Unsupported.
func decode(data []byte) (*Manifest, error) {
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		if bytes.HasPrefix(data, []byte("paddock checkpoint ")) {
			return nil, newer()
		}
		return nil, fmt.Errorf("%w: it is not a checkpoint", ErrDamaged)
	}
	sum, body, ok := bytes.Cut(rest, []byte("\n"))
	if own := sha256.Sum256(body); !ok || string(sum) != hex.EncodeToString(own[:]) {
		return nil, fmt.Errorf("%w: its checksum does not fit", ErrDamaged)
	}
	text, err := decoder.DecodeAll(body, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if m.Version > Version {
		return nil, newer()
	}
	if m.Version < 1 || m.Number < 1 || m.Of < 1 || m.Of > m.Number || m.Previous < 0 || m.Previous >= m.Number {
		return nil, fmt.Errorf("%w: its numbers make no sense", ErrDamaged)
	}
	return m, nil
}

func newer() error {
	return fault.New(fault.Unsupported, "the checkpoint was made by a newer paddock").WithHint("update paddock")
}
