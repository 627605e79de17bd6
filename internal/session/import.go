package session

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/sessionfile"
)

// Import makes a session of an archive; id "" makes a new name. What cannot be
// gone on with here, such as variables of another build of an interpreter, is a
// fault.Unsupported, and then no session is made and nothing is left. Of the
// settings its name, its language and, as far as it may be so here, its memory
// limit and time to live are taken over; the notice tells what is not, and is
// empty where all is. r is read to its end first: however long it takes, nobody
// waits for it. It takes what the owner may have on disk at most.
func (m *Manager) Import(ctx context.Context, owner Owner, id ID, r io.Reader) (info Info, notice string, err error) {
	if id == "" {
		id = ID(newID("s-"))
	}
	if err := id.check(); err != nil {
		return Info{}, "", err
	}
	k := key{owner, id}
	if _, err := m.store.Read(k.stored()); err == nil {
		return Info{}, "", errExists(id)
	}
	if err := cmp.Or(m.disk.reclaim(ctx, owner), m.disk.checkSessions(owner)); err != nil {
		return Info{}, "", err
	}
	file, err := m.scratch.File()
	if err != nil {
		return Info{}, "", err
	}
	defer file.Close()
	i := &importing{m: m, key: k}
	if err := file.Spool(ctx, r, i.limits()); err != nil {
		return Info{}, "", err
	}
	s, err := i.unpack(ctx, file.Reader())
	if err != nil {
		return Info{}, "", fmt.Errorf("importing the session: %w", err)
	}
	m.recordAction(ctx, Importing, s, nil)
	info, err = m.Info(owner, s.id)
	return info, strings.Join(i.omitted, "; "), err
}

// importing is one import of an archive.
type importing struct {
	m *Manager
	key
	omitted []string // what of the archive is not taken over
}

// limits are what an archive may bring.
func (i *importing) limits() sessionfile.Limits {
	m := i.m
	return sessionfile.Limits{
		Bytes:   m.config.OwnerDiskBytes,
		Room:    func(bytes int64) error { return m.disk.check(i.owner, bytes) },
		Trees:   map[string]int64{workspaceFolder: m.config.DiskBytes, tmpFolder: m.config.DiskBytes / 4},
		Listing: checkpoint.MaxListing, Layers: checkpoint.MaxLayers, Memory: m.config.MemoryBytes,
	}
}

// unpack makes a session of an archive. Until it is there nothing is collected;
// where it cannot be made, what was put is.
func (i *importing) unpack(ctx context.Context, r io.Reader) (*session, error) {
	store, err := i.m.local.Blobs(string(i.owner))
	if err != nil {
		return nil, err
	}
	batch, err := store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer batch.Close()
	head, err := sessionfile.Read(ctx, r, batch, i.limits())
	if err != nil {
		return nil, err // closing the batch takes away what it put
	}
	var s *session
	if err = batch.Sync(ctx); err == nil {
		s, err = i.create(ctx, head)
	}
	if err != nil {
		_ = batch.Close() // its contents are not wanted
		i.giveBack(ctx)
		return nil, err
	}
	return s, nil
}

// giveBackTime bounds how long what a refused import put is being removed.
const giveBackTime = 5 * time.Second

// giveBack removes what nothing of an owner's refers to, now or, where others
// write just then, later.
func (i *importing) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	if err := i.m.disk.removeContents(ctx, i.owner); err != nil {
		i.m.janitor.note(i.owner)
	}
	i.m.disk.forget(i.owner)
}

// create makes the session of an archive whose contents are in the store.
func (i *importing) create(ctx context.Context, a sessionfile.Head) (*session, error) {
	set := i.settingsOf(a)
	b, err := i.m.checkSettings(ctx, set)
	if err != nil {
		return nil, err
	}
	s, err := i.m.newSessionAt(i.key, b, nil, set, "", &beginning{cause: history.CauseImport, state: &a.Checkpoint})
	if err != nil {
		return nil, err
	}
	if err := s.tryAll(ctx, a.Checkpoint.Interpreters); err != nil {
		if i.m.destroy(s, errDestroyed, nil) {
			<-s.turns.closed
		}
		return nil, err
	}
	return s, nil
}

// settingsOf gives what is taken over of an archive's settings, and notes what is not. How
// long the session may live and what it may take is decided here.
func (i *importing) settingsOf(a sessionfile.Head) Settings {
	m, was := i.m, a.Settings
	set := Settings{
		Name: was.Name, Dir: was.Dir, Language: was.Language, Isolation: a.Isolation, MemoryBytes: was.MemoryBytes,
		TTL: was.TTL, Servers: was.Servers, Machine: was.Machine.Portable(),
	}
	most := m.config.MemoryBytes
	if b, err := m.backends.named(set.Isolation); err == nil { // else no session is made of it
		traits := m.traitsOf(b)
		if _, most = traits.memoryLimits(); !traits.keepsVariables() {
			i.omit("there are no variables in it: %s", filesOnly)
		}
	}
	if set.MemoryBytes < 0 || set.MemoryBytes > most {
		set.MemoryBytes = 0
		i.omit("%d MiB of memory are the most that there are here, and not %d", most>>20, was.MemoryBytes>>20)
	}
	var no string
	if set.Network, no = m.config.importedNetwork(was.Network); no != "" {
		i.omit("%s", no)
	}
	if was.Secrets != nil && len(*was.Secrets) > 0 {
		i.omit("it has none of the secrets that it had, and what its programs remember of them is worth nothing")
	}
	if most := m.config.IdleTTL; set.TTL < 0 || set.TTL > most {
		set.TTL = 0
		i.omit("it expires when it was not used for %v, and not for %v", most, was.TTL)
	}
	return set
}

func (i *importing) omit(format string, args ...any) {
	i.omitted = append(i.omitted, fmt.Sprintf(format, args...))
}

// tryAll starts every interpreter of a new session, to see that it can be gone
// on with.
func (s *session) tryAll(ctx context.Context, all map[string]history.Interpreter) error {
	t := s.turns.try(ctx)
	if t == nil {
		return nil // it ends already
	}
	defer s.turns.leave(t)
	for runtime := range all {
		if _, err := s.interpreters.live(t, sandbox.Runtime{Name: runtime}); err != nil {
			return err
		}
		if why, lost := s.lostReasons[runtime]; lost {
			return fault.New(fault.Unsupported, "the variables of the %s interpreter cannot be taken over here: %s", runtime, why).
				WithHint("import it with the paddock that exported it, or one with the same interpreters (paddock version)")
		}
	}
	return nil
}
