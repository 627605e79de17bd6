package skill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/iolimit"
	"paddock/internal/linkfarm"
	"paddock/internal/table"
)

const (
	recordsFolder = "records"
	treesFolder   = "trees"
	countsFolder  = "counts"
	// recordVersion is the format of records.
	recordVersion = 1
	// maxRecord bounds one, in bytes.
	maxRecord = 4 << 20
)

// ErrDamaged is for a skill whose files are not what was installed.
var ErrDamaged = errors.New("skill: it is damaged")

// Provenance is where a skill came from.
type Provenance struct {
	Kind   Kind      `json:"kind"`
	Text   string    `json:"source"` // as it was written
	Ref    string    `json:"ref,omitempty"`
	Commit string    `json:"commit,omitempty"`
	Origin string    `json:"origin"` // who has the say over it
	At     time.Time `json:"at"`
}

// FileInfo is what a record says of a file.
type FileInfo struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Executable bool   `json:"executable,omitempty"`
}

// Counts is how often a skill was used.
type Counts struct {
	Used      int64     `json:"used"`
	Succeeded int64     `json:"succeeded"`
	Last      time.Time `json:"last,omitzero"`
}

// Record is what is kept of a skill in addition to its files.
type Record struct {
	Version int `json:"version"`
	FrontMatter
	Digest   string     `json:"digest"`
	Source   Provenance `json:"source"`
	Files    []FileInfo `json:"files"`
	Warnings []Warning  `json:"warnings,omitempty"`
	// Counts are in what List gives.
	Counts Counts `json:"-"`
}

// recordOf describes a skill whose folder has the digest.
func recordOf(s *Skill, digest string, from Provenance) *Record {
	r := &Record{Version: recordVersion, FrontMatter: s.FrontMatter, Digest: digest, Source: from, Warnings: s.Warnings}
	for _, file := range s.Folder {
		r.Files = append(r.Files, FileInfo{file.Path, int64(len(file.Data)), file.Executable})
	}
	return r
}

func errNone(name string) error {
	return fault.New(fault.NotFound, "there is no skill %.100q", name).WithHint("list the skills; install one with its source")
}

func errDamaged(name string, cause error) error {
	return fault.New(fault.Internal, "the skill %q is not what was installed", name).WithHint("install it again").WithCause(fmt.Errorf("%w: %w", ErrDamaged, cause))
}

// read reads a file of the state of at most so many bytes.
func (s *Store) read(name string, most int64) ([]byte, error) {
	f, err := s.config.Files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return iolimit.ReadAll(f, most, fmt.Errorf("%w: %s is too long", ErrDamaged, filepath.Base(name)))
}

// record reads one; a fault.NotFound says that there is none.
func (s *Store) record(owner, name string) (*Record, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	data, _, err := s.document(context.Background(), s.documentOf(owner, recordsFolder, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errNone(name)
	case errors.Is(err, ErrDamaged):
		return nil, errDamaged(name, err)
	case err != nil:
		return nil, blob.Explain(err, "reading a skill")
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, errDamaged(name, err)
	}
	if r.Version > recordVersion {
		return nil, fault.New(fault.Unsupported, "the skill %q was installed by a later paddock", name).WithHint("update paddock")
	}
	if _, err := parseDigest(r.Digest); err != nil || r.Name != name {
		return nil, errDamaged(name, errors.New("its record is another one's"))
	}
	return &r, nil
}

// open reads a skill whole.
func (s *Store) open(owner, name string) (*Installed, error) {
	r, err := s.record(owner, name)
	if err != nil {
		return nil, err
	}
	folder, err := s.readTree(s.dir(owner, *r), r.Files)
	if err != nil {
		return nil, errDamaged(name, err)
	}
	if folder.Digest() != r.Digest {
		return nil, errDamaged(name, errors.New("its digest is another one"))
	}
	checked, err := Check(folder, "", false)
	if err != nil {
		return nil, errDamaged(name, err)
	}
	r.Counts = s.counts(owner, name)
	return &Installed{*r, checked}, nil
}

// readTree reads the files that a record names.
func (s *Store) readTree(dir string, infos []FileInfo) (Folder, error) {
	var files []File
	for _, info := range infos {
		clean, err := cleanPath(info.Path)
		if err != nil {
			return nil, err
		}
		data, err := s.read(filepath.Join(dir, filepath.FromSlash(clean)), info.Size)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: clean, Executable: info.Executable, Data: data})
	}
	return newFolder(files)
}

// counts reads what is counted; what cannot be read is nothing.
func (s *Store) counts(owner, name string) Counts {
	c, _ := s.counted(context.Background(), owner, name)
	return c
}

func (s *Store) counted(ctx context.Context, owner, name string) (c Counts, was table.Revision) {
	data, was, err := s.document(ctx, s.documentOf(owner, countsFolder, name))
	if err != nil || json.Unmarshal(data, &c) != nil {
		c = Counts{}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		was = table.Any
	}
	return c, was
}

func (s *Store) writeRecord(ctx context.Context, owner string, r *Record, was table.Revision) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing about a skill: %w", err)
	}
	_, err = s.config.Table.Put(ctx, s.documentOf(owner, recordsFolder, r.Name), data, was)
	return blob.Explain(err, "keeping a skill")
}

// writeCounts replaces what is counted, and waits for no disk. The lock is held.
func (s *Store) writeCounts(ctx context.Context, owner, name string, c Counts, was table.Revision) error {
	data, err := json.Marshal(c)
	if err == nil {
		_, err = s.config.Table.Put(ctx, s.documentOf(owner, countsFolder, name), data, was)
	}
	if err != nil {
		return fmt.Errorf("counting a use of a skill: %w", err)
	}
	return nil
}

// writeTree puts a folder where its digest says, durably and as a whole.
func (s *Store) writeTree(owner, digest string, folder Folder) error {
	trees := s.folder(owner, treesFolder)
	final := filepath.Join(trees, strings.TrimPrefix(digest, digestPrefix))
	if there, err := s.readTree(final, infosOf(folder)); err == nil && there.Digest() == digest {
		// It may have been placed by somebody who did not come to sync its name.
		return blob.Explain(s.config.Files.SyncDir(trees), "keeping a skill")
	}
	disk := linkfarm.Disk{Files: s.config.Files, Durable: true}
	err := disk.Make(final, func(fresh string) error { return disk.Fill(fresh, folder) }, nil)
	return blob.Explain(err, "keeping a skill")
}

func infosOf(folder Folder) (infos []FileInfo) {
	for _, file := range folder {
		infos = append(infos, FileInfo{file.Path, int64(len(file.Data)), file.Executable})
	}
	return infos
}
