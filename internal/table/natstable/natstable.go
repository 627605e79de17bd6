// Package natstable has the tables of a cluster: documents in a key-value bucket of NATS
// JetStream, kept by several servers and synced before a change is answered.
//
// The sequence of a document's message is its revision. Documents are read from the
// stream's leader, as other replicas may lag behind it, and are what was written, by a
// digest that their message carries.
package natstable

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"paddock/internal/fault"
	"paddock/internal/table"
)

const (
	// patience is how long a change is tried for whose answer does not come, where the
	// context does not end before.
	patience = 10 * time.Second
	// attempt is how long one answer is waited for.
	attempt = 2 * time.Second
	// maxDocument bounds a document, in bytes: a message of NATS has at most 1 MiB.
	maxDocument = 1<<20 - 8<<10
	// markerTTL is how long it is kept that a document was deleted, for those who watch.
	markerTTL = time.Hour
)

// Config says which bucket a Table is in.
type Config struct {
	// Bucket is its name: letters, digits, - and _.
	Bucket string
	// Replicas is how many servers keep it; zero: 3.
	Replicas int
}

// Table is a [table.Table] in a bucket. It is for any number of goroutines, and there is
// nothing to close: its connection is the caller's.
type Table struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	kv     jetstream.KeyValue
	prefix string // of subjects
}

var _ table.Table = (*Table)(nil)

// Open gives the table of a bucket, which is made where it is missing. ctx bounds that.
func Open(ctx context.Context, conn *nats.Conn, c Config) (*Table, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("opening a table: %w", err)
	}
	t := &Table{js: js, prefix: "$KV." + c.Bucket + "."}
	// A bucket is made as its stream: reads are to come from the leader, which the
	// interface of buckets does not leave open.
	t.stream, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + c.Bucket, Subjects: []string{t.prefix + ">"}, Description: "paddock's tables",
		MaxMsgsPerSubject: 1, MaxMsgSize: maxDocument + 4<<10, Storage: jetstream.FileStorage, Replicas: cmp.Or(c.Replicas, 3),
		Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute, DenyDelete: true, AllowRollup: true, AllowMsgTTL: true,
	})
	if err != nil {
		return nil, unavailable("making the table", err)
	}
	if t.kv, err = js.KeyValue(ctx, c.Bucket); err != nil {
		return nil, unavailable("opening the table", err)
	}
	return t, nil
}

// unavailable is what a server's fault becomes. Clients read its message.
func unavailable(doing string, err error) error {
	var said *fault.Error
	if err == nil || errors.As(err, &said) || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.Unavailable, "the cluster's tables do not answer").
		WithHint("try again in a moment; paddock node check says what is wrong with NATS").WithCause(fmt.Errorf("%s: %w", doing, err))
}

// Get implements [table.Table].
func (t *Table) Get(ctx context.Context, name string, known table.Revision) (table.Document, error) {
	key, err := keyOf(name)
	if err != nil {
		return table.Document{}, err
	}
	d, _, err := t.last(ctx, key)
	if err == nil && d.Revision == known && known != table.None {
		d = table.Document{Revision: known}
	}
	return d, named(err, name)
}

func named(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "get", Path: name, Err: fs.ErrNotExist}
	}
	return err
}

// last gives a document as the stream's leader has it, and the key's last message, which
// also a deleted document may have; nil: there is none.
func (t *Table) last(ctx context.Context, key string) (d table.Document, m *jetstream.RawStreamMsg, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = retry(ctx, func(ctx context.Context) error {
		m, err = t.stream.GetLastMsgForSubject(ctx, t.prefix+key)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return d, nil, fs.ErrNotExist
	case err != nil:
		return d, nil, unavailable("reading a document", err)
	case deleted(m.Header):
		return d, m, fs.ErrNotExist
	}
	if m.Header.Get(digest) != digestOf(m.Data) {
		return d, m, fault.New(fault.Unavailable, "a document of the cluster's tables is damaged").
			WithHint("the operator can put a backup of the bucket back; the log says which document it is").
			WithCause(fmt.Errorf("the message %d of %s is not what was written", m.Sequence, m.Subject))
	}
	d = table.Document{Data: m.Data, Revision: table.Revision(m.Sequence), Written: m.Time}
	if d.Data == nil {
		d.Data = []byte{}
	}
	return d, m, nil
}

// The headers of messages: what became of a key, as buckets have it, and what a document's
// bytes are.
const (
	operation = "KV-Operation"
	opDelete  = "DEL"
	digest    = "Paddock-Sha256"
)

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// message is what makes data a key's document.
func (t *Table) message(key string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: t.prefix + key, Data: data, Header: nats.Header{digest: {digestOf(data)}}}
}

func deleted(h nats.Header) bool { return h.Get(operation) != "" || h.Get("Nats-Marker-Reason") != "" }

// retry calls do until it is answered, or ctx ends.
func retry(ctx context.Context, do func(context.Context) error) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		once, cancel := context.WithTimeout(ctx, attempt)
		err := do(once)
		cancel()
		var said jetstream.JetStreamError
		answered := errors.As(err, &said) && said.APIError() != nil && said.APIError().Code != 503 && said.APIError().ErrorCode != busy && said.APIError().ErrorCode != underWay
		if err == nil || answered || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrMsgNotFound) || ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// busy is what a replicated stream says where another change of the subject is under way;
// underWay where this change itself is, and wrongRevision where it has another sequence.
const (
	busy          = jetstream.JSErrCodeStreamWrongLastSequenceConstant
	underWay      = jetstream.ErrorCode(10158)
	wrongRevision = jetstream.JSErrCodeStreamWrongLastSequence
)

// Put implements [table.Table].
func (t *Table) Put(ctx context.Context, name string, data []byte, was table.Revision) (table.Revision, error) {
	key, err := keyOf(name)
	if err != nil {
		return table.None, err
	}
	if len(data) > maxDocument {
		return table.None, fault.New(fault.Exhausted, "a document of %d KiB is too large for the cluster's tables", len(data)>>10).
			WithHint("make it smaller: %d KiB is the most", maxDocument>>10)
	}
	return t.write(ctx, key, t.message(key, data), was)
}

// Delete implements [table.Table].
func (t *Table) Delete(ctx context.Context, name string, was table.Revision) error {
	key, err := keyOf(name)
	if err != nil {
		return err
	}
	if was == table.Any {
		d, _, err := t.last(ctx, key)
		if err != nil {
			return named(err, name)
		}
		if err = t.Delete(ctx, name, d.Revision); errors.Is(err, table.ErrChanged) {
			return t.Delete(ctx, name, was)
		}
		return err
	}
	if was == table.None {
		return table.ErrChanged // there is nothing of that revision to remove
	}
	m := &nats.Msg{Subject: t.prefix + key, Header: nats.Header{operation: {opDelete}}}
	if _, err = t.write(ctx, key, m, was); !errors.Is(err, table.ErrChanged) {
		return err
	}
	if _, _, gone := t.last(ctx, key); errors.Is(gone, fs.ErrNotExist) {
		return named(gone, name)
	}
	return err
}

// write publishes a change of a key that has the revision was. It is the same message each
// time that it is tried: no acknowledgement is no failure.
func (t *Table) write(ctx context.Context, key string, m *nats.Msg, was table.Revision) (table.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id := nuid.Next()
	options := []jetstream.PublishOpt{jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0)}
	if m.Header.Get(operation) != "" {
		options = append(options, jetstream.WithMsgTTL(markerTTL))
	}
	if was != table.Any {
		options = append(options, jetstream.WithExpectLastSequencePerSubject(uint64(was)))
	}
	var ack *jetstream.PubAck
	err := retry(ctx, func(ctx context.Context) (err error) {
		ack, err = t.js.PublishMsg(ctx, m, options...)
		return err
	})
	var said jetstream.JetStreamError
	switch {
	case err == nil:
		return table.Revision(ack.Sequence), nil
	case !errors.As(err, &said) || said.APIError() == nil || said.APIError().ErrorCode != wrongRevision:
		return table.None, unavailable("writing a document", err)
	}
	d, last, err := t.last(ctx, key)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return table.None, err
	case last != nil && last.Header.Get(nats.MsgIdHdr) == id:
		return table.Revision(last.Sequence), nil // it was written, and its answer was lost
	case was == table.None && d.Revision == table.None && last != nil:
		// What is there says that a document was deleted, and makes room for another.
		return t.write(ctx, key, t.message(key, m.Data), table.Revision(last.Sequence))
	}
	return table.None, table.ErrChanged
}

// Names implements [table.Table].
func (t *Table) Names(ctx context.Context, folder string) ([]string, error) {
	filter, err := filterOf(folder)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := t.kv.Watch(ctx, filter, jetstream.IgnoreDeletes(), jetstream.MetaOnly())
	if err != nil {
		return nil, unavailable("listing documents", err)
	}
	defer func() { _ = w.Stop() }()
	seen := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil, unavailable("listing documents", ctx.Err())
		case e, ok := <-w.Updates():
			if !ok {
				return nil, unavailable("listing documents", nats.ErrConnectionClosed)
			}
			if e == nil {
				return sortedNames(seen), nil
			}
			seen[e.Key()] = true
		}
	}
}

// Watch implements [table.Table].
func (t *Table) Watch(ctx context.Context, folder string, told func(name string)) error {
	filter, err := filterOf(folder)
	if err != nil {
		return err
	}
	w, err := t.kv.Watch(ctx, filter, jetstream.MetaOnly())
	if err != nil {
		return unavailable("watching documents", err)
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e, ok := <-w.Updates():
			switch {
			case !ok && ctx.Err() != nil:
				return context.Cause(ctx)
			case !ok:
				return unavailable("watching documents", nats.ErrConnectionClosed)
			case e != nil:
				if name, err := nameOf(e.Key()); err == nil {
					told(name)
				}
			}
		}
	}
}
