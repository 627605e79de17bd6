package commitlog

import "paddock/internal/blob"

// Kill gives up a log's locks as the end of its process does.
func Kill(l *Log) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.background.Wait()
	if l.unlock == nil {
		return nil
	}
	return l.unlock()
}

// Fill commits so many bytes into one segment, and gives up the locks.
func Fill(l *Log, bytes int64, write func(k int) blob.Write) error {
	l.writing.Lock()
	s, err := l.roomLocked(int(bytes))
	if err == nil {
		s.ready = true // no spare takes its place
	}
	l.writing.Unlock()
	for k := 0; err == nil && s.at < bytes-maxRecord; k++ {
		err = l.Commit([]blob.Write{write(k)})
	}
	if err != nil {
		return err
	}
	return Kill(l)
}
