package history

import (
	"errors"
	"fmt"
	"io/fs"
)

// Unlabel takes the label off a checkpoint; one that has none, or is not there, is
// no error. Its manifest goes on naming the label: what counts is the name of its
// file, which is changed at once or not at all. After an error the label may be
// back after a power cut.
func (l *Line) Unlabel(number int64) error {
	if !l.labelled[number] {
		return nil
	}
	labelled := l.path(number)
	delete(l.labelled, number)
	if err := l.files.Rename(labelled, l.path(number)); err != nil {
		if _, moved := l.files.Stat(labelled); !errors.Is(moved, fs.ErrNotExist) { // else it was done all the same
			l.labelled[number] = true
		}
		return fmt.Errorf("taking a label off a checkpoint: %w", err)
	}
	if err := l.files.SyncDir(l.dir); err != nil {
		return fmt.Errorf("taking a label off a checkpoint: %w", err)
	}
	return nil
}
