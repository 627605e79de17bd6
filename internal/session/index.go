package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/store"
)

// indexFile is the index of sessions and checkpoints in the state folder. The
// folders are the truth, and are read where it does not know.
const indexFile = "index.db"

// row is what the index holds of a session. The caller holds s.keeping.
func (s *session) row() store.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager.row(s.record, s.kept.count(), s.kept.head.Number)
}

func (m *Manager) row(r record, checkpoints, head int64) store.Session {
	data, _ := json.Marshal(r) // it is plain data, and was unmarshalled or will be
	return store.Session{
		Owner: string(r.Owner), ID: string(r.ID), Folder: string(r.ID), Isolation: r.Isolation, Language: r.Settings.Language, Name: r.Settings.Name,
		CreatedAt: r.CreatedAt, LastUsedAt: r.LastUsedAt, ExpiresAt: m.expiresAt(r), Executions: r.Executions,
		TreeBytes: r.TreeBytes, Checkpoints: checkpoints, Head: head, Record: data,
	}
}

// count is how many checkpoints there are to go back to: a head that repeats
// another is none.
func (k *kept) count() int64 {
	n := int64(k.line.Len())
	if k.head != nil && k.head.Of != k.head.Number {
		n--
	}
	return n
}

// rowNow is row for who does not hold s.keeping.
func (s *session) rowNow() store.Session {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	return s.row()
}

// index tells the index of the checkpoint that was just made.
func (s *session) index() {
	s.mu.Lock()
	s.record.TreeBytes, s.record.checkpoints = s.tree.Used()+s.tmp.Used(), s.kept.count()
	s.mu.Unlock()
	s.manager.index.PutSession(s.row())
	s.manager.index.PutCheckpoint(checkpointRow(s.kept.head))
}

func checkpointRow(c *history.Manifest) store.Checkpoint {
	return store.Checkpoint{
		Owner: c.Owner, Session: c.Session, Number: c.Number, Previous: c.Previous, At: c.At, Label: c.Label, Cause: c.Cause,
		Execution: c.Execution, Bytes: c.Bytes,
	}
}

// rebuild fills the index from the folders, if it is not complete.
func (m *Manager) rebuild() {
	if m.index.Complete() {
		return
	}
	if err := m.rebuildIndex(m.ctx); err != nil && m.ctx.Err() == nil {
		m.log.Warn("the index of sessions cannot be rebuilt", "cause", causeOf(err))
	}
}

func (m *Manager) rebuildIndex(ctx context.Context) error {
	r, err := m.index.Rebuild(ctx)
	if err != nil {
		return err
	}
	owners, err := m.Owners()
	if err != nil {
		return err
	}
	for _, o := range owners {
		ids, err := m.idsOnDisk(o)
		if err != nil {
			return err
		}
		var sessions []store.Session
		var checkpoints []store.Checkpoint
		for _, id := range ids {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			rec, err := m.readRecord(key{o, id})
			if err != nil {
				continue // it is being made or removed, or is a newer paddock's
			}
			line, rows, err := m.checkpointRows(key{o, id})
			if err != nil {
				return err
			}
			head := int64(0)
			if n := line.Numbers(); len(n) > 0 {
				head = n[len(n)-1]
			}
			sessions = append(sessions, m.row(rec, int64(line.Len()), head))
			checkpoints = append(checkpoints, rows...)
		}
		if err := r.Owner(ctx, string(o), sessions, checkpoints); err != nil {
			return err
		}
	}
	return r.Finish(ctx)
}

func (m *Manager) checkpointRows(k key) (line *history.Line, rows []store.Checkpoint, err error) {
	if line, err = history.Open(m.checkpointsFolder(k), m.config.files()); err != nil {
		return nil, nil, err
	}
	for _, n := range line.Numbers() {
		c, err := line.Get(n)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, history.ErrDamaged) || fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, checkpointRow(c))
	}
	return line, rows, nil
}

// records gives the records of an owner's sessions on disk, from the index where
// it has them.
func (m *Manager) records(o Owner) (all []record, err error) {
	ids, err := m.idsOnDisk(o)
	if err != nil {
		return nil, err
	}
	known := map[ID]record{}
	if rows, err := m.index.Sessions(string(o)); err == nil {
		for _, row := range rows {
			var r record
			if json.Unmarshal(row.Record, &r) == nil {
				r.checkpoints = row.Checkpoints
				known[ID(row.ID)] = r
			}
		}
	}
	for _, id := range ids {
		dir := m.folder(key{o, id})
		if r, ok := known[id]; ok && r.Group == "" {
			if _, err := os.Lstat(filepath.Join(dir, recordFile)); err == nil {
				all = append(all, r)
			}
			continue
		}
		r, err := m.readRecord(key{o, id})
		switch {
		case err == nil:
			all = append(all, r)
		case fault.KindOf(err) != fault.NotFound:
			m.log.Warn("a session cannot be read", "session", id, "cause", causeOf(err))
		}
	}
	return all, nil
}

// usage is what an owner has on disk, asleep or not.
type usage struct {
	sessions int
	files    int64 // of all sessions together, in bytes
	blobs    int64 // what is kept of them
}

// measured is a usage as it was when somebody looked.
type measured struct {
	at    time.Time
	files map[ID]int64 // of each session
	sum   int64
}

// usageTime is how long what was measured counts as good.
const usageTime = 2 * time.Second

// usage tells what an owner takes. Sessions that are open here count as they are
// now, and so do blobs; the others as they were when somebody looked last.
func (m *Manager) usage(o Owner) (usage, error) {
	m.storing.Lock()
	known, ok := m.used[o]
	m.storing.Unlock()
	if !ok || time.Since(known.at) > usageTime {
		var err error
		if known, err = m.measure(o); err != nil {
			return usage{}, err
		}
		m.storing.Lock()
		m.used[o] = known
		m.storing.Unlock()
	}
	open := map[ID]int64{}
	for _, s := range m.open(o) {
		open[s.id] = s.tree.Used() + s.tmp.Used()
	}
	blobs, err := m.blobs(o)
	if err != nil {
		return usage{}, err
	}
	kept, err := blobs.Bytes()
	if err != nil {
		return usage{}, fmt.Errorf("measuring what is kept: %w", err)
	}
	m.storing.Lock()
	defer m.storing.Unlock()
	u := usage{sessions: len(known.files), files: known.sum, blobs: kept}
	for id, now := range open {
		u.files += now - known.files[id]
	}
	return u, nil
}

// measure looks at what an owner has on disk.
func (m *Manager) measure(o Owner) (*measured, error) {
	u := &measured{at: time.Now(), files: map[ID]int64{}}
	all, err := m.records(o)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		u.files[r.ID] = r.TreeBytes
		u.sum += r.TreeBytes
	}
	return u, nil
}

// counted notes what a session takes that is new or is let go of.
func (m *Manager) counted(k key, bytes int64) {
	m.storing.Lock()
	defer m.storing.Unlock()
	if known := m.used[k.owner]; known != nil {
		known.sum += bytes - known.files[k.id]
		known.files[k.id] = bytes
	}
}

// forgetUsage has what an owner takes looked at anew.
func (m *Manager) forgetUsage(o Owner) {
	m.storing.Lock()
	defer m.storing.Unlock()
	delete(m.used, o)
}
