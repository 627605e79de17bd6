package store

import (
	"hash/fnv"
	"io"
	"time"
)

// Session is what the index holds of a session.
type Session struct {
	Owner, ID string
	// Folder is the name of its folder, below its owner's.
	Folder                    string
	Isolation, Language, Name string
	// The times come back in UTC, to the nanosecond. A zero ExpiresAt: never.
	CreatedAt, LastUsedAt, ExpiresAt time.Time
	Executions                       int64
	TreeBytes                        int64 // what its files take
	Checkpoints                      int64 // how many it has
	Head                             int64 // the number of the current one
	// Record is the session's own record; the index does not look into it.
	Record []byte
}

// Totals are sums over an owner's sessions.
type Totals struct {
	Sessions  int64
	TreeBytes int64
	// NameSum is the sum of [NameSum] over their ids: who has other ids has
	// another one, but for one case in four billion.
	NameSum int64
}

// NameSum is what a session's id adds to its owner's sum.
func NameSum(id string) int64 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, id) // never fails
	return int64(h.Sum32())
}

// key names a session.
type key struct{ owner, id string }

// stamp is how a time is kept: nanoseconds since 1970, zero for the zero time.
// What an int64 does not reach is the nearest that it does.
func stamp(t time.Time) int64 {
	const most = 1<<63 - 1
	switch {
	case t.IsZero():
		return 0
	case t.Unix() >= most/int64(time.Second):
		return most
	case t.Unix() < 0:
		return 1
	}
	return t.UnixNano()
}

func unstamp(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// values are a session's, in the order of the columns, and the sum of its name.
func (r *Session) values() []any {
	return []any{
		r.Owner, r.ID, r.Folder, r.Isolation, r.Language, r.Name, stamp(r.CreatedAt), stamp(r.LastUsedAt), stamp(r.ExpiresAt),
		r.Executions, r.TreeBytes, r.Checkpoints, r.Head, r.Record, NameSum(r.ID),
	}
}

func scanSession(scan func(...any) error) (r Session, err error) {
	var created, used, expires int64
	err = scan(&r.Owner, &r.ID, &r.Folder, &r.Isolation, &r.Language, &r.Name, &created, &used, &expires,
		&r.Executions, &r.TreeBytes, &r.Checkpoints, &r.Head, &r.Record)
	r.CreatedAt, r.LastUsedAt, r.ExpiresAt = unstamp(created), unstamp(used), unstamp(expires)
	return r, err
}
