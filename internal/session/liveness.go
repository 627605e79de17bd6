package session

import "paddock/internal/lock"

// Life shows other processes that this one, or one that it started, may still
// write into sessions' files: whoever takes over a session of a process that was
// killed waits until its life has ended.
type Life = lock.Liveness

// NewLife begins one in a state folder.
func NewLife(dir string) (*Life, error) { return lock.NewLiveness(dir) }
