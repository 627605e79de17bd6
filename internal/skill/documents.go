package skill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"

	"paddock/internal/blob"
	"paddock/internal/linkfarm"
	"paddock/internal/table"
)

const documentEnd = ".json"

// documentsIn gives the table of a store's folder. An owner's are written under the owner's
// lock, which the store holds.
func documentsIn(dir string, files blob.Files) table.Table {
	return table.NewFolder(table.FolderConfig{
		Dir: dir, Files: files, Most: maxRecord, Unlocked: true,
		Document: func(name string) bool { return path.Ext(name) == documentEnd },
		Write: func(file string, data []byte) error {
			folder := filepath.Dir(file)
			switch filepath.Base(folder) {
			case recordsFolder:
				if err := blob.MakeFolder(files, folder); err != nil {
					return err
				}
			case countsFolder: // no disk is waited for
				if _, err := files.Stat(folder); err != nil {
					if err := blob.MakeFolder(files, folder); err != nil {
						return err
					}
				}
				return (linkfarm.Disk{Files: files}).Put(file, data)
			}
			return blob.WriteFile(files, file, data)
		},
		Remove: func(file string) error {
			err := files.Remove(file)
			if err == nil && filepath.Base(filepath.Dir(file)) == recordsFolder {
				err = files.SyncDir(filepath.Dir(file))
			}
			return err
		},
	})
}

// documentOf is the name of a document about a skill.
func (s *Store) documentOf(owner, kind, name string) string {
	return ownerName(owner) + "/" + kind + "/" + name + documentEnd
}

// document reads one. One that is too long is an ErrDamaged.
func (s *Store) document(ctx context.Context, name string) ([]byte, table.Revision, error) {
	d, err := s.config.Table.Get(ctx, name, table.None)
	if errors.Is(err, table.ErrTooLarge) {
		err = fmt.Errorf("%w: %s is too long", ErrDamaged, path.Base(name))
	}
	return d.Data, d.Revision, err
}

// revision is that of a skill's record, which may be damaged.
func (s *Store) revision(ctx context.Context, owner, name string) (table.Revision, error) {
	_, was, err := s.document(ctx, s.documentOf(owner, recordsFolder, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return table.None, nil
	case errors.Is(err, ErrDamaged):
		return table.Any, nil
	}
	return was, blob.Explain(err, "reading a skill")
}

// changing has change alter an owner's records. The generation is another one before that,
// as who has read it does not look again otherwise; and where others may read while it is
// done, who do not wait for the lock, it is another one afterwards too.
func (s *Store) changing(ctx context.Context, owner string, change func() error) error {
	if err := s.renew(ctx, owner); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	if _, locked := s.config.Table.(table.Holder); locked {
		return nil
	}
	return s.renew(ctx, owner)
}

func (s *Store) renew(ctx context.Context, owner string) error {
	_, err := s.config.Table.Put(ctx, ownerName(owner)+"/"+generationFile, []byte(rand.Text()), table.Any)
	return err
}
