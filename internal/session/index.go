package session

import "paddock/internal/sessionstore"

// row is what the index holds of a session. The caller holds s.checkpoints.mu.
func (s *session) row() sessionstore.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.manager.records.row(s.record)
	row.Checkpoints, row.Head = s.checkpoints.repo.Count(), s.checkpoints.repo.Head().Number
	return row
}

// rowNow is row for who does not hold s.checkpoints.mu.
func (s *session) rowNow() sessionstore.Row {
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	return s.row()
}

// index tells the index of the checkpoint that was just made.
func (s *session) index() {
	s.mu.Lock()
	s.record.TreeBytes, s.record.checkpoints = s.tree.Used()+s.tmp.Used(), s.checkpoints.repo.Count()
	s.mu.Unlock()
	s.manager.store.Index(s.row())
}
