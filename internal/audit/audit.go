// Package audit keeps the record of who ran what where: one JSON object on a
// line for each action, in a file for each day (UTC) that only its user reads.
//
// Records are only ever added, each with one write; several processes may
// share a folder. An execution is two records: one before its program runs and
// one after, so that a crash leaves the first. Each record holds the digest of
// the one before it by the same process, and its own, so that a record that
// was changed, taken out or moved shows (see [Verify]). That is no protection
// from somebody who writes the whole chain again: for that keep the digests
// that Verify gives in another place.
//
// A record survives the end of the process as soon as it is written. It
// survives a loss of power once the system has written it to the disk, which
// is within seconds; [Config.Sync] has each record wait for that.
package audit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/telemetry"
	"paddock/internal/textsafe"
)

// Mode says what a record that cannot be written means.
type Mode string

// The modes.
const (
	Required   Mode = "required"    // the action fails
	BestEffort Mode = "best_effort" // it is logged and counted
	Off        Mode = "off"         // nothing is recorded
)

// The actions.
const (
	Execute        = "execute"
	CreateSession  = "create_session"
	DestroySession = "destroy_session"
	Reset          = "reset"
	FileRead       = "file_read"
	FileWrite      = "file_write" // removing too
	LinkCreate     = "link_create"
	TokenCreate    = "token_create"
	TokenRevoke    = "token_revoke"
	AuthFailure    = "auth_failure"
	ToolCall       = "tool_call" // a program's, of another server's tool
	Egress         = "egress"    // a program's request to a host, or a connection without one
	ServerAdd      = "server_add"
	ServerRemove   = "server_remove"
	ServerLogin    = "server_login"
	ServerAccept   = "server_accept" // of a tool that is not what it was
	TrustGive      = "trust_give"    // a person's, to a working folder's file
	TrustTake      = "trust_take"    // back
	SecretSet      = "secret_set"    // its value too, of which nothing is recorded
	SecretRemove   = "secret_remove"
	SecretGive     = "secret_give" // to a session that is being made; Target has their names
	PreviewCreate  = "preview_create"
	PreviewOpen    = "preview_open" // with its link, by whoever has that
	PreviewRevoke  = "preview_revoke"
	SignInLink     = "sign_in_link" // that signs a browser in as the operator
	SignIn         = "sign_in"      // of a browser; Target has from where
	SignOut        = "sign_out"
	SignInRevoke   = "sign_in_revoke" // of all browsers
	// Of calls of tools that a person has to allow.
	ApprovalRequest  = "approval_request"
	ApprovalGrant    = "approval_grant"
	ApprovalDeny     = "approval_deny"
	ApprovalUse      = "approval_use"
	ApprovalWithdraw = "approval_withdraw"
)

// The phases of an action that is two records.
const (
	Begin = "begin"
	End   = "end"
)

// The outcomes.
const (
	Success = "success"
	Failure = "failure" // a program's own
	Waiting = "waiting" // it has not ended, and waits for a person
	Error   = "error"   // ErrorType says what kind
)

// Record is one line. Of its fields Log.Write sets Time, ID, Transport, Prev
// and Digest, and those that the context knows where they are empty:
// Principal, Client, RequestID, TraceID.
type Record struct {
	Time       time.Time `json:"time"`
	ID         string    `json:"id"` // the writing process's name, a dash, and a number that goes up by one
	Action     string    `json:"action"`
	Phase      string    `json:"phase,omitempty"`
	Principal  string    `json:"principal,omitempty"`
	Transport  string    `json:"transport"`        // "stdio", "http", "cli"
	Client     string    `json:"client,omitempty"` // what it calls itself
	Session    string    `json:"session,omitempty"`
	Execution  string    `json:"execution,omitempty"`
	Language   string    `json:"language,omitempty"`
	Isolation  string    `json:"isolation,omitempty"`
	Engine     string    `json:"engine,omitempty"`
	CodeSHA256 string    `json:"code_sha256,omitempty"`
	CodeBytes  int       `json:"code_bytes,omitempty"`
	Code       string    `json:"code,omitempty"`   // only with Config.IncludeCode
	Target     string    `json:"target,omitempty"` // a file's path, a token's id, an address, a server's tool
	// Of a tool call: its number in its execution, what its arguments were, what was
	// decided of it, and how long it took.
	Call            int     `json:"call,omitempty"`
	ArgumentsSHA256 string  `json:"arguments_sha256,omitempty"`
	Verdict         string  `json:"verdict,omitempty"`
	TookMS          float64 `json:"took_ms,omitempty"`
	Count           int     `json:"count,omitempty"`  // how many of its kind it stands for; zero: one
	Reason          string  `json:"reason,omitempty"` // the reason, if it was not requested: "expired"
	Outcome         string  `json:"outcome,omitempty"`
	ErrorType       string  `json:"error_type,omitempty"` // a fault's kind, or the program's exception
	StoppedBy       string  `json:"stopped_by,omitempty"`
	Usage           *Usage  `json:"usage,omitempty"`
	Sent            *Sent   `json:"sent,omitempty"` // what left, or did not
	RequestID       string  `json:"request_id,omitempty"`
	TraceID         string  `json:"trace_id,omitempty"`
	Prev            string  `json:"prev"`             // the Digest of the writer's record before; empty: this is its first
	Digest          string  `json:"digest,omitempty"` // SHA-256 of the line without this
}

// Usage is what an execution cost.
type Usage struct {
	CPUMS       float64 `json:"cpu_ms"`
	WallMS      float64 `json:"wall_ms"`
	MemoryBytes int64   `json:"memory_bytes"`
	Fuel        uint64  `json:"fuel"`
	EgressBytes int64   `json:"egress_bytes,omitempty"`
}

// Sent is a request of a program to a host. It holds no query, header or body.
type Sent struct {
	Method string `json:"method,omitempty"`
	// PathDigest is the first half of the SHA-256 of the path, in hexadecimal: paths may
	// hold what gives access.
	PathDigest    string `json:"path_digest,omitempty"`
	Rule          string `json:"rule,omitempty"`   // that allowed it
	Status        int    `json:"status,omitempty"` // that the program got
	BytesSent     int64  `json:"bytes_sent"`
	BytesReceived int64  `json:"bytes_received"`
}

// Config sets a Log up.
type Config struct {
	// Dir is the folder; it is made with the first record.
	Dir string
	// Mode is what a record that cannot be written means; empty: Required.
	Mode Mode
	// Transport is how this process is asked: "stdio", "http", "cli".
	Transport string
	// KeepDays is how many days are kept besides this one; zero: all.
	KeepDays int
	// IncludeCode keeps the programs themselves besides their digests.
	IncludeCode bool
	// Sync has each record wait until it is on the disk.
	Sync bool
	// Failed is told of each record that was not written; nil: nobody is.
	Failed func(context.Context)
	// Log takes why; nil: nothing is logged.
	Log *slog.Logger
}

// Log writes records. It is safe for concurrent use, and a nil *Log is off.
type Log struct {
	config Config
	log    *slog.Logger
	writer string

	mu     sync.Mutex // guards what follows
	closed bool
	file   *os.File // of day; nil: none is open
	day    string
	seq    uint64
	prev   string
}

// New makes a Log. It touches no file before the first record.
func New(c Config) *Log {
	if c.Mode == Off {
		return nil
	}
	l := &Log{config: c, log: c.Log, writer: "a" + strings.ToLower(rand.Text()[:16])}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l
}

// dayFormat is a file's name without its ending.
const (
	dayFormat = "2006-01-02"
	ending    = ".jsonl"
)

// Bounds of what comes from outside, in bytes.
const (
	maxName = 200
	maxPath = 1024
)

// Write adds a record; ctx is asked for what the record does not say, and does
// not end the writing. When the record cannot be written and the mode is
// Required, the error is a fault.Unavailable: what was to be recorded must not
// happen.
func (l *Log) Write(ctx context.Context, r Record) error {
	if l == nil {
		return nil
	}
	l.complete(ctx, &r)
	err := l.write(r)
	if err == nil {
		return nil
	}
	if l.config.Failed != nil {
		l.config.Failed(ctx)
	}
	if l.config.Mode == BestEffort {
		l.log.ErrorContext(ctx, "a record of the audit log was not written", "action", r.Action, "cause", err)
		return nil
	}
	message := "the audit log cannot be written"
	if errors.Is(err, syscall.ENOSPC) {
		message += ": its disk is full"
	}
	return fault.New(fault.Unavailable, "%s", message).
		WithHint("nothing runs unrecorded here; the operator finds the reason in the server's log").WithCause(err)
}

// complete puts in what the context and the Log know.
func (l *Log) complete(ctx context.Context, r *Record) {
	if p := auth.From(ctx); p != nil && r.Principal == "" {
		r.Principal = p.ID
	}
	for _, field := range []struct {
		to    *string
		value string
	}{{&r.Client, telemetry.Client(ctx)}, {&r.RequestID, telemetry.RequestID(ctx)}, {&r.TraceID, telemetry.TraceID(ctx)}} {
		if *field.to == "" {
			*field.to = field.value
		}
	}
	if r.Transport == "" {
		r.Transport = l.config.Transport
	}
	if r.Code != "" {
		sum := sha256.Sum256([]byte(r.Code))
		r.CodeSHA256, r.CodeBytes = hex.EncodeToString(sum[:]), len(r.Code)
	}
	if !l.config.IncludeCode {
		r.Code = ""
	}
	r.Client, r.RequestID, r.ErrorType = cut(r.Client, maxName), cut(r.RequestID, maxName), cut(r.ErrorType, maxName)
	r.Target = cut(r.Target, maxPath)
}

// cut shortens s to n bytes, at a character's end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// write makes the line and adds it to the day's file.
func (l *Log) write(r Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errors.New("the audit log is closed")
	}
	r.Time = time.Now().UTC()
	r.ID, r.Prev, r.Digest = fmt.Sprintf("%s-%d", l.writer, l.seq+1), l.prev, ""
	line, digest, err := seal(r)
	if err != nil {
		return err
	}
	if err := l.openLocked(r.Time); err != nil {
		return err
	}
	if !endsLine(l.file) { // somebody's write did not get to its end
		line = append([]byte("\n"), line...)
	}
	if _, err := l.file.Write(line); err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	l.seq, l.prev = l.seq+1, digest
	if l.config.Sync {
		if err := l.file.Sync(); err != nil {
			return fmt.Errorf("waiting for the disk: %w", err)
		}
	}
	return nil
}

// digestKey is how a line goes on behind what its digest is made from.
const digestKey = `,"digest":"`

// seal gives a record's line and its digest.
func seal(r Record) (line []byte, digest string, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, "", fmt.Errorf("encoding a record: %w", err)
	}
	body = textsafe.EscapeBytes(body)
	sum := sha256.Sum256(body)
	digest = hex.EncodeToString(sum[:])
	line = append(body[:len(body)-1], digestKey...)
	return append(append(line, digest...), "\"}\n"...), digest, nil
}

// openLocked opens the day's file, unless it is open and still in its place.
// With a new day goes the oldest.
func (l *Log) openLocked(now time.Time) error {
	day := now.Format(dayFormat)
	path := filepath.Join(l.config.Dir, day+ending)
	if l.file != nil && l.day == day && isAt(l.file, path) {
		return nil
	}
	if err := l.releaseLocked(); err != nil {
		l.log.Warn("a file of the audit log was not closed cleanly", "cause", err)
	}
	if err := os.MkdirAll(l.config.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	l.file, l.day = f, day
	l.removeOld(now)
	return nil
}

func isAt(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// endsLine tells whether a file is empty or ends with a line's end.
func endsLine(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return true
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err != nil || last[0] == '\n'
}

// removeOld removes the days that are kept no longer.
func (l *Log) removeOld(now time.Time) {
	if l.config.KeepDays <= 0 {
		return
	}
	oldest := now.AddDate(0, 0, -l.config.KeepDays).Format(dayFormat)
	all, err := days(l.config.Dir)
	for _, day := range all {
		if day >= oldest {
			break
		}
		if gone := os.Remove(filepath.Join(l.config.Dir, day+ending)); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		l.log.Warn("old files of the audit log cannot be removed", "cause", err)
	}
}

// Check says whether a record could be written now, as far as that is known
// before there is one: its error is what Write's cause would be. It opens the
// day's file.
func (l *Log) Check() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openLocked(time.Now().UTC())
}

// Close lets go of the file. It works twice; what is written afterwards fails.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.releaseLocked()
}

func (l *Log) releaseLocked() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
