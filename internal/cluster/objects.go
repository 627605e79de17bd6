package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"paddock/internal/fault"
)

const objectsBucket = "paddock_objects"

// Objects keeps what is too large for heads, in an object store of JetStream. It may be
// used from any goroutine. Two who put different bytes under one name is a mistake of
// theirs: names have the place of a claim.
type Objects struct {
	bucket jetstream.ObjectStore
}

// OpenObjects finds the objects, or makes their bucket; see [OpenHeads].
func OpenObjects(ctx context.Context, nc *nats.Conn, replicas int) (*Objects, error) {
	// It is made as a stream: a bucket of nats.go has direct reads, which a replica answers
	// that may not have an object yet.
	js, _, err := openStream(ctx, nc, jetstream.StreamConfig{
		Name:        "OBJ_" + objectsBucket,
		Subjects:    []string{"$O." + objectsBucket + ".C.>", "$O." + objectsBucket + ".M.>"},
		Storage:     jetstream.FileStorage,
		Replicas:    replicas,
		Discard:     jetstream.DiscardNew,
		AllowRollup: true,
	})
	if err != nil {
		return nil, err
	}
	bucket, err := js.ObjectStore(ctx, objectsBucket)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "NATS has no bucket for objects").
			WithHint("see that most of the NATS servers run").WithCause(err)
	}
	return &Objects{bucket}, nil
}

// Put keeps data under a name. When it returns, most servers have it on disk. It tries
// until ctx ends: then it is fault.Unavailable, and a part may be left.
func (o *Objects) Put(ctx context.Context, name string, data []byte) error {
	for {
		_, err := o.bucket.Put(ctx, jetstream.ObjectMeta{Name: name}, bytes.NewReader(data))
		if err == nil {
			return nil
		}
		if code(err, noRoom...) {
			return fault.New(fault.Exhausted, "NATS has no room for the state of a session").
				WithHint("give the NATS servers more room, or remove sessions").WithCause(err)
		}
		if errors.Is(err, nats.ErrConnectionClosed) || !wait(ctx) {
			return fault.New(fault.Unavailable, "the state of a session cannot be stored now").
				WithHint("try again; see that most of the NATS servers run").WithCause(err)
		}
	}
}

// Get gives what was put under a name. It tries until ctx ends, as the replica that it
// reads from may lag; that there is no such object is known at once, from the leader.
func (o *Objects) Get(ctx context.Context, name string) ([]byte, error) {
	for {
		data, err := o.get(ctx, name)
		switch {
		case err == nil:
			return data, nil
		case errors.Is(err, jetstream.ErrObjectNotFound):
			return nil, fault.New(fault.Internal, "a part of the stored state is missing").
				WithHint("go back to an earlier checkpoint").WithCause(fmt.Errorf("there is no object %s", name))
		case errors.Is(err, nats.ErrConnectionClosed) || !wait(ctx):
			return nil, fault.New(fault.Unavailable, "the state of a session cannot be read now").
				WithHint("try again; see that most of the NATS servers run").WithCause(err)
		}
	}
}

func (o *Objects) get(ctx context.Context, name string) ([]byte, error) {
	one, cancel := context.WithTimeout(ctx, 5*attempt)
	defer cancel()
	r, err := o.bucket.Get(one, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}
