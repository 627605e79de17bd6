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
	file, err := m.scratch().File()
	if err != nil {
		return Info{}, "", err
	}
	defer file.Close()
	limits := m.archiveLimits(owner)
	if err := file.Spool(ctx, r, limits); err != nil {
		return Info{}, "", err
	}
	s, notice, err := m.unpack(ctx, k, file.Reader(), limits)
	if err != nil {
		return Info{}, "", fmt.Errorf("importing the session: %w", err)
	}
	m.recordAction(ctx, Importing, s, nil)
	info, err = m.Info(owner, s.id)
	return info, notice, err
}

// archiveLimits are what an archive may bring that an owner imports.
func (m *Manager) archiveLimits(owner Owner) sessionfile.Limits {
	return sessionfile.Limits{
		Bytes:   m.config.OwnerDiskBytes,
		Room:    func(bytes int64) error { return m.disk.check(owner, bytes) },
		Trees:   map[string]int64{workspaceFolder: m.config.DiskBytes, tmpFolder: m.config.DiskBytes / 4},
		Listing: checkpoint.MaxListing, Layers: checkpoint.MaxLayers, Memory: m.config.MemoryBytes,
	}
}

// unpack makes a session of an archive. Until it is there nothing is collected;
// where it cannot be made, what was put is.
func (m *Manager) unpack(ctx context.Context, k key, r io.Reader, limits sessionfile.Limits) (s *session, notice string, err error) {
	store, err := m.local.Blobs(string(k.owner))
	if err != nil {
		return nil, "", err
	}
	batch, err := store.Begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer batch.Close()
	head, err := sessionfile.Read(ctx, r, batch, limits)
	if err != nil {
		return nil, "", err // closing the batch takes away what it put
	}
	if err = batch.Sync(ctx); err == nil {
		s, notice, err = m.makeFromArchive(ctx, k, head)
	}
	if err != nil {
		_ = batch.Close() // its contents are not wanted
		m.giveBack(ctx, k.owner)
		return nil, "", err
	}
	return s, notice, nil
}

// giveBackTime bounds how long what a refused import put is being removed.
const giveBackTime = 5 * time.Second

// giveBack removes what nothing of an owner's refers to, now or, where others
// write just then, later.
func (m *Manager) giveBack(ctx context.Context, o Owner) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	if err := m.disk.removeContents(ctx, o); err != nil {
		m.janitor.note(o)
	}
	m.disk.forget(o)
}

// makeFromArchive makes the session of an archive whose contents are in the store.
func (m *Manager) makeFromArchive(ctx context.Context, k key, a sessionfile.Head) (s *session, notice string, err error) {
	set, notice := m.settingsOf(a)
	b, err := m.checkSettings(ctx, set)
	if err != nil {
		return nil, "", err
	}
	s, err = m.newSessionAt(k, b, nil, set, "", &beginning{cause: history.CauseImport, state: &a.Checkpoint})
	if err != nil {
		return nil, "", err
	}
	if err := s.tryAll(ctx, a.Checkpoint.Interpreters); err != nil {
		if m.destroy(s, errDestroyed, nil) {
			<-s.turns.closed
		}
		return nil, "", err
	}
	return s, notice, nil
}

// settingsOf gives what is taken over of an archive's settings, and says what is
// not. How long it may live and what it may take is decided here.
func (m *Manager) settingsOf(a sessionfile.Head) (Settings, string) {
	was := a.Settings
	set := Settings{Name: was.Name, Dir: was.Dir, Language: was.Language, Isolation: a.Isolation, MemoryBytes: was.MemoryBytes, TTL: was.TTL, Servers: was.Servers, Machine: was.Machine.Portable()}
	var not []string
	most := m.config.MemoryBytes
	if b, err := m.backend(set.Isolation); err == nil { // else no session is made of it
		traits := m.traitsOf(b)
		if _, most = traits.memoryLimits(); !traits.keepsVariables() {
			not = append(not, "there are no variables in it: "+filesOnly)
		}
	}
	if set.MemoryBytes < 0 || set.MemoryBytes > most {
		set.MemoryBytes = 0
		not = append(not, fmt.Sprintf("%d MiB of memory are the most that there are here, and not %d", most>>20, was.MemoryBytes>>20))
	}
	var no string
	if set.Network, no = m.imported(was.Network); no != "" {
		not = append(not, no)
	}
	if was.Secrets != nil && len(*was.Secrets) > 0 {
		not = append(not, "it has none of the secrets that it had, and what its programs remember of them is worth nothing")
	}
	if most := m.config.IdleTTL; set.TTL < 0 || set.TTL > most {
		set.TTL = 0
		not = append(not, fmt.Sprintf("it expires when it was not used for %v, and not for %v", most, was.TTL))
	}
	return set, strings.Join(not, "; ")
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
		if _, err := s.interpreter(t, sandbox.Runtime{Name: runtime}); err != nil {
			return err
		}
		if why, lost := s.lostReasons[runtime]; lost {
			return fault.New(fault.Unsupported, "the variables of the %s interpreter cannot be taken over here: %s", runtime, why).
				WithHint("import it with the paddock that exported it, or one with the same interpreters (paddock version)")
		}
	}
	return nil
}
