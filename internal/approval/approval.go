// Package approval keeps what a person has to decide before a tool is called: who
// asked for what, and what became of it.
//
// An approval is one file below the state folder, or one document of a cluster's table. It is for one call, by the call's
// place in its run ([Key]), and for exactly the server, the tool and the arguments that
// it was asked for ([Call]): whoever asks again finds the same one, also after a
// restart, and nothing else is covered by it. It is decided once, by whoever is first,
// and a grant is used up by the call, before that is sent.
//
// Several processes may share the folder. Each owner's part of it has a lock, which
// dies with its process; a file is replaced whole, and synced before anybody is told.
// What is waited for in one process and decided in another is seen within two seconds.
// In a cluster's table there is no lock: each change of an approval needs the revision that
// was read.
package approval

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"paddock/internal/fault"
)

// State is what became of an approval.
type State string

// The states.
const (
	Pending   State = "pending"   // nobody has decided
	Granted   State = "granted"   // the call may be made, once
	Used      State = "used"      // it was made, or was about to be
	Denied    State = "denied"    // it may not
	Expired   State = "expired"   // nobody decided in time, or nobody called in time
	Withdrawn State = "withdrawn" // its run or its session has ended
)

// Open tells whether the approval can still let a call through.
func (s State) Open() bool { return s == Pending || s == Granted }

// Key is a call's place: there is one approval at each.
type Key struct {
	Owner     string `json:"owner"`
	Session   string `json:"session_id"`
	Execution string `json:"execution_id"`
	Number    int    `json:"number"` // of the call in its run
}

// Call is what an approval covers.
type Call struct {
	Server string `json:"server"` // by its name in the session
	// Definition says which server that is, whatever it is called: a digest of all that
	// it is reached by, as whom included.
	Definition string          `json:"definition"`
	Tool       string          `json:"tool"`
	Arguments  json.RawMessage `json:"arguments"` // as they will be sent
}

// Digest is the SHA-256 of the arguments as they will be sent, hexadecimal.
func (c Call) Digest() string {
	sum := sha256.Sum256(c.Arguments)
	return hex.EncodeToString(sum[:])
}

// same tells whether two calls are the same one, byte for byte.
func (c Call) same(other Call) bool {
	return c.Server == other.Server && c.Definition == other.Definition && c.Tool == other.Tool && bytes.Equal(c.Arguments, other.Arguments)
}

// Request asks for an approval.
type Request struct {
	Key
	Call
	Description string // of the tool, in its server's words: data, and no promise
}

// Approval is what was asked for and what became of it.
type Approval struct {
	ID string `json:"id"`
	Key
	Call
	Description     string    `json:"description,omitempty"`
	ArgumentsDigest string    `json:"arguments_sha256"`
	State           State     `json:"state"`
	Created         time.Time `json:"created_at"`
	// Expires is when it stops counting, granted or not.
	Expires time.Time `json:"expires_at"`
	By      string    `json:"decided_by,omitempty"`
	Decided time.Time `json:"decided_at,omitzero"`
	Reason  string    `json:"reason,omitempty"` // the person's words
}

// Bounds of an approval, in bytes.
const (
	// MaxArguments is how much a person can be asked to look at.
	MaxArguments   = 64 << 10
	maxDescription = 4 << 10
	maxReason      = 1 << 10
	maxWord        = 1 << 10   // a name, an owner
	maxFile        = 512 << 10 // JSON may take six bytes for one
)

var idPattern = regexp.MustCompile(`^ap-[a-z2-7]{26}$`)

// newID gives a name that nobody can guess.
func newID() string { return "ap-" + strings.ToLower(rand.Text()) }

// idOf gives the name of the approval at a place, the same each time.
func idOf(k Key) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "approval %d:%s %s", len(k.Owner), k.Owner, k.place()))
	return "ap-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}

// place is the key's part of a file's name. The owner is that of the folder.
func (k Key) place() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%d:%s%d", len(k.Session), k.Session, len(k.Execution), k.Execution, k.Number))
	return hex.EncodeToString(sum[:16])
}

// ownerFolder is where an owner's approvals are, as with sessions.
func ownerFolder(owner string) string {
	if owner == "local" {
		return owner
	}
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

// check finds what is wrong with a request.
func (r Request) check() error {
	for _, word := range []string{r.Owner, r.Session, r.Execution, r.Server, r.Definition, r.Tool} {
		if word == "" || len(word) > maxWord || !utf8.ValidString(word) {
			return fault.New(fault.Internal, "a call to be approved has no owner, session, execution, server or tool, or one that cannot be")
		}
	}
	switch {
	case r.Number < 1:
		return fault.New(fault.Internal, "a call to be approved has no number")
	case len(r.Arguments) > MaxArguments:
		return fault.New(fault.Exhausted, "a person has to allow this call, and cannot look at %d bytes of arguments", len(r.Arguments)).
			WithHint("call it with at most %d bytes of arguments, in several calls if need be", MaxArguments)
	case !utf8.Valid(r.Arguments) || !json.Valid(r.Arguments):
		return fault.New(fault.Invalid, "the call's arguments are not JSON")
	}
	return nil
}

// record is an approval's file. The arguments are a text in it: they have to stay what
// they are byte for byte.
type record struct {
	Approval
	Arguments string `json:"arguments"`
}

func (a Approval) encode() ([]byte, error) {
	return json.MarshalIndent(record{a, string(a.Arguments)}, "", "  ")
}

// decode reads a file and believes nothing of it: it has to be the approval that its
// name says, in its owner's folder, and what it covers has to fit its digest.
func decode(data []byte, folder, place, id string) (Approval, error) {
	var r record
	if len(data) > maxFile {
		return Approval{}, fmt.Errorf("approval: a file of %d bytes", len(data))
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Approval{}, fmt.Errorf("approval: %w", err)
	}
	a := r.Approval
	a.Arguments = json.RawMessage(r.Arguments)
	decided := a.State == Granted || a.State == Used || a.State == Denied
	known := decided || a.State == Pending || a.State == Withdrawn
	switch {
	case a.ID != id, !idPattern.MatchString(id), a.Key.place() != place, ownerFolder(a.Owner) != folder:
		return Approval{}, errors.New("approval: the file is of another approval")
	case a.ArgumentsDigest != a.Digest():
		return Approval{}, errors.New("approval: the arguments are not those that were asked for")
	case !known, a.Created.IsZero(), a.Expires.IsZero(), decided == a.Decided.IsZero() && a.State != Withdrawn:
		return Approval{}, errors.New("approval: the file says what cannot be")
	}
	return a, Request{Key: a.Key, Call: a.Call}.check()
}

// at gives the approval as it is at a moment.
func (a Approval) at(now time.Time) Approval {
	if a.State.Open() && !now.Before(a.Expires) {
		a.State = Expired
	}
	return a
}

// cut shortens s to n bytes, at a character's end, and makes it UTF-8.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
