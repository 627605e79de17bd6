// Package cluster keeps sessions for many nodes: each has a head, one message of NATS
// JetStream, whose sequence decides who may change it.
package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"paddock/internal/fault"
)

const (
	headsStream = "paddock_heads"
	headsPrefix = "paddock.heads."
	// writeHeader has the name of a write, which no other has, so that one whose
	// acknowledgement was lost is known again. It begins with its writer's.
	writeHeader = "Paddock-Write"
	// digestHeader has the SHA-256 of a head: servers whose files were damaged have given
	// out what was never written.
	digestHeader = "Paddock-Sha256"
	// maxHead bounds a head, in bytes: a message of NATS has at most 1 MiB, with its headers.
	maxHead = 1<<20 - 8<<10
	// attempt is how long one request waits for its answer.
	attempt = 2 * time.Second
	// pause is between two attempts.
	pause = 50 * time.Millisecond
)

// Key names a session: whose it is, and its id.
type Key struct{ Owner, Session string }

// subject names a session for NATS, whatever its owner's name has in it.
func (k Key) subject() string {
	of := base64.RawURLEncoding.EncodeToString
	return headsPrefix + of([]byte(k.Owner)) + "." + of([]byte(k.Session))
}

// Heads has the heads of all sessions. It may be used from any goroutine.
type Heads struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// Head is the newest message of a session.
type Head struct {
	Sequence uint64 // 0: the session has no head
	Data     []byte

	write string // of writeHeader
}

// OpenHeads finds the heads, or makes their stream. replicas is how many servers keep each
// head: 3, or 1 in tests. It tries until ctx ends, as a cluster may have no leader yet.
func OpenHeads(ctx context.Context, nc *nats.Conn, replicas int) (*Heads, error) {
	js, stream, err := openStream(ctx, nc, jetstream.StreamConfig{
		Name:              headsStream,
		Subjects:          []string{headsPrefix + "*.*"},
		Storage:           jetstream.FileStorage,
		Replicas:          replicas,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
		AllowMsgTTL:       true,
		// AllowDirect stays off: any replica answers direct reads, also with an older head.
	})
	if err != nil {
		return nil, err
	}
	return &Heads{js: js, stream: stream}, nil
}

// openStream finds a stream, or makes it. It tries until ctx ends.
func openStream(ctx context.Context, nc *nats.Conn, cfg jetstream.StreamConfig) (jetstream.JetStream, jetstream.Stream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, fmt.Errorf("using JetStream: %w", err)
	}
	for {
		one, cancel := context.WithTimeout(ctx, attempt)
		stream, err := js.CreateOrUpdateStream(one, cfg)
		cancel()
		if err == nil {
			return js, stream, nil
		}
		if !wait(ctx) {
			return nil, nil, fault.New(fault.Unavailable, "NATS has no stream %s", cfg.Name).
				WithHint("see that most of the NATS servers run").WithCause(err)
		}
	}
}

// Read asks the leader for a head. A leader that was cut off may answer until it notices:
// only Write decides.
func (h *Heads) Read(ctx context.Context, k Key) (Head, error) {
	one, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	m, err := h.stream.GetLastMsgForSubject(one, k.subject())
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Head{}, nil
	case err != nil:
		return Head{}, fault.New(fault.Unavailable, "the head of session %q cannot be read", k.Session).
			WithHint("try again").WithCause(err)
	case m.Header.Get(digestHeader) != digestOf(m.Data):
		return Head{}, fault.New(fault.Internal, "the head of session %q is damaged", k.Session).
			WithHint("the operator can put a backup of NATS back; the log says which message it is").
			WithCause(fmt.Errorf("the message %d of %s is not what was written", m.Sequence, m.Subject))
	}
	return Head{Sequence: m.Sequence, Data: m.Data, write: m.Header.Get(writeHeader)}, nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Writer names who writes heads of one session, one after the other: the server is told,
// and knows what is its own.
type Writer string

// NewWriter is one that no other is.
func NewWriter() Writer { return Writer(rand.Text()) }

// Write replaces the head that has the sequence after (0: there is none) and returns the
// new one's, once most servers have it on disk. A head that an earlier Write of the same
// writer left, whose outcome was not known, is replaced as well.
//
// It is a fault.Conflict if the session has the head of another: who wrote after has lost
// the session, and this write may be below that head or not be at all. It is
// fault.Exhausted if there is no room, and nothing is written. It is fault.Unavailable if
// ctx ended before the outcome was known: it may be written or not, also later.
func (h *Heads) Write(ctx context.Context, k Key, by Writer, data []byte, after uint64) (uint64, error) {
	return h.write(ctx, k, by, data, after)
}

func (h *Heads) write(ctx context.Context, k Key, by Writer, data []byte, after uint64, o ...jetstream.PublishOpt) (uint64, error) {
	if len(data) > maxHead {
		return 0, fault.New(fault.Exhausted, "the head of session %q takes %d KiB, and %d KiB is the most", k.Session, len(data)>>10, maxHead>>10).
			WithHint("remove checkpoints with labels that are not needed")
	}
	msg := nats.NewMsg(k.subject())
	msg.Data = data
	msg.Header.Set(writeHeader, string(by)+"."+rand.Text())
	msg.Header.Set(digestHeader, digestOf(data))
	for first := true; ; first = false {
		seq, err := h.try(ctx, msg, after, o)
		switch {
		case err == nil:
			return seq, nil
		case first && code(err, noRoom...):
			return 0, fault.New(fault.Exhausted, "NATS has no room for the state of session %q", k.Session).
				WithHint("give the NATS servers more room, or remove sessions").WithCause(err)
		case code(err, jetstream.JSErrCodeStreamWrongLastSequence):
			head, readErr := h.Read(ctx, k)
			switch {
			case fault.KindOf(readErr) == fault.Internal:
				return 0, readErr // it is damaged
			case readErr != nil: // not known yet
			case head.write == msg.Header.Get(writeHeader):
				return head.Sequence, nil
			case head.Sequence <= after: // of a leader that lags
			case strings.HasPrefix(head.write, string(by)+"."):
				after = head.Sequence
				continue
			default:
				return 0, fault.New(fault.Conflict, "session %q went on elsewhere", k.Session).
					WithHint("try again: any node finds it").WithCause(err)
			}
		}
		if !wait(ctx) {
			return 0, fault.New(fault.Unavailable, "it is not known whether the state of session %q is kept", k.Session).
				WithHint("see that most of the NATS servers run, then try again").WithCause(err)
		}
	}
}

// try publishes once.
func (h *Heads) try(ctx context.Context, msg *nats.Msg, after uint64, o []jetstream.PublishOpt) (uint64, error) {
	one, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	ack, err := h.js.PublishMsg(one, msg, append(o[:len(o):len(o)], jetstream.WithExpectLastSequencePerSubject(after), jetstream.WithRetryAttempts(0))...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// noRoom are the codes of a server that has no room, or whose stream has none.
var noRoom = []jetstream.ErrorCode{10023, 10047, 10077}

// code reports whether a server said no, with one of these. That another write is on its
// way (10164) says nothing: that may fail yet.
func code(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

// wait lets a moment pass. It is false once ctx has ended.
func wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil
	}
}
