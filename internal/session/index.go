package session

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/store"
)

// indexFile is the index of sessions in the state folder. The folders are the
// truth, and are read where it does not know.
const indexFile = "index.db"

// row is what the index holds of a session. The caller holds s.keeping.
func (s *session) row() store.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager.row(s.record, s.repo.Count(), s.repo.Head().Number)
}

func (m *Manager) row(r record, checkpoints, head int64) store.Session {
	data, _ := json.Marshal(r) // it is plain data, and was unmarshalled or will be
	return store.Session{
		Owner: string(r.Owner), ID: string(r.ID), Folder: string(r.ID), Isolation: r.Isolation, Language: r.Settings.Language, Name: r.Settings.Name,
		CreatedAt: r.CreatedAt, LastUsedAt: r.LastUsedAt, ExpiresAt: m.expiresAt(r), Executions: r.Executions,
		TreeBytes: r.TreeBytes, Checkpoints: checkpoints, Head: head, Record: data,
	}
}

// rowNow is row for who does not hold s.keeping.
func (s *session) rowNow() store.Session {
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	return s.row()
}

// index tells the index of the checkpoint that was just made.
func (s *session) index() {
	s.mu.Lock()
	s.record.TreeBytes, s.record.checkpoints = s.tree.Used()+s.tmp.Used(), s.repo.Count()
	s.mu.Unlock()
	s.manager.index.PutSession(s.row())
}

// rebuildSoon begins a rebuild of the index where none is under way.
func (m *Manager) rebuildSoon() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.rebuilding {
		return
	}
	m.rebuilding = true
	m.jobs.Go(func() {
		m.rebuild()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.rebuilding = false
	})
}

// rebuild fills the index from the folders, if it is not complete.
func (m *Manager) rebuild() {
	if m.index.Complete() {
		return
	}
	if err := m.rebuildIndex(m.ctx); err != nil && m.ctx.Err() == nil {
		m.log.Warn("the index of sessions cannot be rebuilt", "cause", fault.CauseOf(err))
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
		for _, id := range ids {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			rec, err := m.readRecord(key{o, id})
			if err != nil {
				continue // it is being made or removed, or is a newer paddock's
			}
			checkpoints, head, err := m.lineOnDisk(key{o, id})
			if err != nil {
				return err
			}
			sessions = append(sessions, m.row(rec, checkpoints, head))
		}
		if err := r.Owner(ctx, string(o), sessions); err != nil {
			return err
		}
	}
	return r.Finish(ctx)
}

// lineOnDisk gives how many checkpoints a session has to go back to, and the
// number of its newest one.
func (m *Manager) lineOnDisk(k key) (count, head int64, err error) {
	line, err := history.Open(m.checkpointsFolder(k), m.config.files())
	if err != nil {
		return 0, 0, err
	}
	var newest *history.Manifest
	if numbers := line.Numbers(); len(numbers) > 0 {
		head = numbers[len(numbers)-1]
		// One that cannot be read may be gone by now: the session's next row is right.
		newest, _ = line.Get(head)
	}
	return line.Steps(newest), head, nil
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
			m.log.Warn("a session cannot be read", "session", id, "cause", fault.CauseOf(err))
		}
	}
	return all, nil
}
