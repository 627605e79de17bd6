package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"paddock/internal/bindings"
	"paddock/internal/bindings/catalog"
	"paddock/internal/fault"
)

// maxVetted bounds how many tools are known to be what they were.
const maxVetted = 20_000

// digestOf names all that a server says of a tool, to the byte.
func digestOf(t bindings.Tool) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %s", t.Name, t.Title, t.Description, t.Input, t.Output, hints(t.Annotations)))
	return hex.EncodeToString(sum[:])
}

// vet tells whether a tool is what it was when it was first used. A change is kept for
// an operator to look at.
func (b *Broker) vet(ctx context.Context, one *serverBinding, t bindings.Tool) error {
	if b.watch == nil {
		return nil
	}
	key, digest := one.known+"\x00"+t.Name, digestOf(t)
	b.mu.Lock()
	same := b.vetted[key] == digest
	b.mu.Unlock()
	if same {
		return nil
	}
	change, err := b.watch.Use(ctx, one.known, t)
	if err != nil {
		return fmt.Errorf("comparing the tool with what it was: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if change == nil {
		if len(b.vetted) >= maxVetted {
			clear(b.vetted)
		}
		b.vetted[key] = digest
		return nil
	}
	delete(b.vetted, key)
	if b.store != nil {
		if err := b.store.Notice(ctx, change); err != nil {
			b.config.Log.WarnContext(ctx, "that a tool changed cannot be kept", "server", one.Name, "cause", err)
		}
	}
	b.config.Log.WarnContext(ctx, "a tool is not what it was when it was first used, and is refused", "server", one.known, "tool", t.Name)
	return change.Fault()
}

// Changes gives the tools that are not what they were when they were first used, and
// that nobody has accepted.
func (b *Broker) Changes(ctx context.Context) ([]catalog.Noticed, error) {
	if b.store == nil {
		return nil, fault.New(fault.Unsupported, "changes of tools are not kept here")
	}
	return b.store.Changes(ctx)
}

// Accept has a tool be what it has become, for this process and others. The server is
// what the change calls it; the fingerprint is the change's Now, or empty: whatever was
// noticed last.
func (b *Broker) Accept(ctx context.Context, server, tool, fingerprint string) error {
	if b.store == nil {
		return fault.New(fault.Unsupported, "changes of tools are not kept here")
	}
	return b.store.Accept(ctx, server, tool, fingerprint)
}

// OpenSeen gives what Brokers of a folder, their Config.Dir, know of tools, to who wants
// to look at changes without a Broker.
func OpenSeen(dir string) (*catalog.Store, error) { return catalog.OpenStore(seenFolder(dir)) }

func seenFolder(dir string) string { return filepath.Join(dir, "seen") }
