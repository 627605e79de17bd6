package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"paddock/internal/blob"
	"paddock/internal/history"
	"paddock/internal/sessionstore"
)

// records tell what is known of sessions without opening them, whichever process has
// them. It has no state of its own and is safe for concurrent use.
type records struct {
	store   sessionStore
	idleTTL time.Duration
	log     *slog.Logger
}

// read reads a session's record.
func (rs *records) read(k key) (record, error) {
	stored, err := rs.store.Read(k.stored())
	if err != nil {
		return record{}, err
	}
	return decodeRecord(stored)
}

// list reads the records of an owner's sessions, from the index where it has them.
func (rs *records) list(o Owner) (all []record, err error) {
	stored, err := rs.store.Records(string(o))
	for _, one := range stored {
		if r, err := decodeRecord(one); err == nil {
			all = append(all, r)
		} else {
			rs.log.Warn("a session cannot be read", "session", one.ID, "cause", err)
		}
	}
	return all, err
}

func (rs *records) expiresAt(r record) time.Time {
	return r.LastUsedAt.Add(cmp.Or(max(r.Settings.TTL, 0), rs.idleTTL))
}

// row returns what the index holds of a session; a Store fills in the checkpoints of one
// that is not open here.
func (rs *records) row(r record) sessionstore.Row {
	row := rs.columns(r)
	row.Record, _ = json.Marshal(r) // it is plain data, and was unmarshalled or will be
	return row
}

// columns is row without the record.
func (rs *records) columns(r record) sessionstore.Row {
	return sessionstore.Row{
		Owner: r.Owner, ID: r.ID, Folder: r.ID, Isolation: r.Isolation, Language: r.Settings.Language, Name: r.Settings.Name,
		CreatedAt: r.CreatedAt, LastUsedAt: r.LastUsedAt, ExpiresAt: rs.expiresAt(r), Executions: r.Executions,
		TreeBytes: r.TreeBytes,
	}
}

// describe returns what a record tells; the caller fills in the state.
func (rs *records) describe(r record) Info {
	i := Info{
		ID: ID(r.ID), Owner: Owner(r.Owner), Settings: r.Settings, Isolation: r.Isolation, State: Idle, CreatedAt: r.CreatedAt,
		LastUsedAt: r.LastUsedAt, ExpiresAt: rs.expiresAt(r), Executions: r.Executions, Process: r.Process, Halted: r.Halted,
		DiskBytes: r.TreeBytes, Traffic: r.Traffic,
	}
	if r.Waiting != nil {
		w := *r.Waiting
		w.Owner, w.Session = Owner(r.Owner), ID(r.ID)
		i.Waiting = &w
	}
	return i
}

// info describes a session that this process does not have open.
func (rs *records) info(k key) (Info, error) {
	r, err := rs.read(k)
	if err != nil {
		return Info{}, err
	}
	return rs.describeClosed(r), nil
}

// describeClosed is describe for a session that this process does not have open.
func (rs *records) describeClosed(r record) Info {
	k := r.key()
	now, err := rs.read(k)
	if err == nil { // the index knows no processes, and is behind after a kill
		r.Process, r.Waiting = now.Process, now.Waiting
	}
	if r.Waiting != nil || err != nil || now.Process != 0 {
		r.Waiting = rs.waiting(r)
	}
	if !rs.store.Held(k.stored()) {
		r.Process = 0
	}
	i := rs.describe(r)
	switch {
	case i.Waiting != nil:
		i.State = Waiting
	case r.Process == 0:
		i.State = Asleep
	}
	i.Checkpoints = int(r.checkpoints)
	return i
}

// waiting returns what waits in a session that this process does not have open, by its
// newest checkpoint: its record says the same where its last process released it.
func (rs *records) waiting(r record) *WaitingRun {
	newest, err := rs.store.Newest(r.key().stored())
	switch {
	case errors.Is(err, history.ErrDamaged) || errors.Is(err, blob.ErrDamaged):
		return nil // it would not go on
	case err != nil:
		return r.Waiting // it changes just now
	case newest == nil:
		return nil
	}
	return describeWaiting(newest.Waits())
}

// Owners lists who has sessions in the state folder, this process's or not, in the order
// of their IDs.
func (m *Manager) Owners() ([]Owner, error) {
	names, err := m.store.Owners()
	if err != nil {
		return nil, err
	}
	var owners []Owner
	for _, name := range names {
		owners = append(owners, Owner(name))
	}
	return owners, nil
}
