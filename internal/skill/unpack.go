package skill

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"paddock/internal/archive"
	"paddock/internal/fault"
	"paddock/internal/iolimit"
	"paddock/internal/textsafe"
)

// unpacker collects the files of an archive in memory.
type unpacker struct {
	limits Limits
	within string // only what lies below this folder is wanted; empty: all
	top    bool   // there is one folder above everything, which is taken off

	files     []File
	elsewhere []string // folders of skills that are not wanted, without what is in them
	odd       []string // paths of what is neither file nor folder
	noted     int64    // bytes of these names
	bytes     int64
	commit    string
}

func (u *unpacker) read(src io.Reader) error {
	limits := archive.Limits{Entries: u.limits.Entries, Ratio: 100, Free: 8 << 20, Zip: u.limits.Download, Table: 8 << 20}
	err := archive.Read(src, limits, archive.Receiver{Entry: u.entry, Spool: spool, Comment: func(text string) { u.commit = commitOf(text) }})
	var known *fault.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.Invalid, "the archive is damaged, or none").WithHint("it has to be a zip or tar.gz").WithCause(err)
}

// commitOf reads the comment that git writes into archives.
func commitOf(text string) string {
	if len(text) != 40 && len(text) != 64 || strings.Trim(text, "0123456789abcdef") != "" {
		return ""
	}
	return text
}

func (u *unpacker) entry(name string, mode fs.FileMode, content io.Reader) error {
	if u.top {
		_, below, ok := strings.Cut(name, "/")
		if !ok || below == "" {
			return nil
		}
		name = below
	}
	if u.within != "" {
		below, ok := strings.CutPrefix(name, u.within+"/")
		if !ok {
			return u.pass(name)
		}
		name = below
	}
	if mode.IsDir() && path.Clean(name) == "." {
		return nil
	}
	clean, err := cleanPath(name)
	switch {
	case err != nil:
		return err
	case mode.IsDir():
		return nil
	case !mode.IsRegular():
		return u.oddly(clean)
	}
	return u.add(clean, mode, content)
}

// oddly notes what is neither file nor folder, as far as the limits go.
func (u *unpacker) oddly(name string) error { return u.note(&u.odd, name) }

// pass notes the folder of a skill that is not wanted, as far as the limits go.
func (u *unpacker) pass(name string) error {
	dir, base := path.Split(name)
	if clean, err := cleanPath(strings.TrimSuffix(dir, "/")); err == nil && base == MainFile {
		return u.note(&u.elsewhere, clean)
	}
	return nil
}

func (u *unpacker) note(to *[]string, name string) error {
	if len(*to) == u.limits.Entries || u.noted > u.limits.Bytes {
		return errTooLarge()
	}
	*to = append(*to, name)
	u.noted += int64(len(name))
	return nil
}

// add takes a file, as far as the limits go.
func (u *unpacker) add(name string, mode fs.FileMode, content io.Reader) error {
	if part := gits(name); part != "" {
		return fault.New(fault.Denied, "the skill holds %.100q, which git would take for a repository's own", part).WithHint("pack it without its repository")
	}
	data, err := iolimit.ReadAll(content, u.limits.Bytes-u.bytes, errTooLarge())
	if err != nil {
		return err
	}
	if len(u.files) == u.limits.Files {
		return errTooLarge()
	}
	u.bytes += int64(len(data))
	u.files = append(u.files, File{Path: name, Executable: mode&0o100 != 0, Data: data})
	return nil
}

// choose finds the skill's folder among the files: the one that the source names
// (or, as archives have a folder of their own on top, below that), or else the one
// that there is.
func (u *unpacker) choose(s Source, got *fetched) error {
	want := s.Path
	if u.within != "" {
		want = ""
	}
	var found []string
	for _, file := range u.files {
		if dir, base := path.Split(file.Path); base == MainFile {
			found = append(found, strings.TrimSuffix(dir, "/"))
		}
	}
	slices.Sort(found)
	at, ok := "", false
	switch below := slices.IndexFunc(found, func(dir string) bool { _, rest, _ := strings.Cut(dir, "/"); return rest == want }); {
	case slices.Contains(found, want):
		at, ok = want, true
	case want != "" && below >= 0:
		at, ok = found[below], true
	case s.Path == "" && len(found) == 1:
		at, ok = found[0], true
	case deeper(found, want) != "":
		at, ok = deeper(found, want), true
	}
	if !ok {
		return errNotThere(s, slices.Sorted(slices.Values(append(found, u.elsewhere...))))
	}
	if s.Path == "" && at != "" {
		got.name = path.Base(at)
		got.given = s.Kind != Archive || strings.Contains(at, "/") // a folder on top is often the archive's own
	}
	return u.cut(at, got)
}

func errNotThere(s Source, found []string) error {
	switch {
	case s.Path == "" && len(found) > 1:
		shown := found[:min(len(found), 20)]
		return fault.New(fault.Invalid, "there are %d skills there: %s", len(found), textsafe.Escape(strings.Join(shown, ", "))).WithHint("name one of the folders in the source")
	case s.Path != "" && len(found) > 0:
		return fault.New(fault.NotFound, "the source has no skill at %.100q", s.Path).WithHint("it has %s", textsafe.Escape(strings.Join(found[:min(len(found), 20)], ", ")))
	case s.Path != "":
		return fault.New(fault.NotFound, "the source has no skill at %.100q", s.Path).WithHint("a skill is a folder with a %s", MainFile)
	}
	return fault.New(fault.NotFound, "the source holds no %s", MainFile).WithHint("a skill is a folder with that file")
}

// cut makes the folder of what lies below at.
func (u *unpacker) cut(at string, got *fetched) error {
	below := func(name string) (string, bool) {
		if at == "" {
			return name, true
		}
		return strings.CutPrefix(name, at+"/")
	}
	for _, name := range u.odd {
		if _, in := below(name); in {
			return fault.New(fault.Denied, "the skill holds a link or a device at %.100q", name).WithHint("a skill is plain files only")
		}
	}
	var files []File
	for _, file := range u.files {
		if name, in := below(file.Path); in {
			files = append(files, File{Path: name, Executable: file.Executable, Data: file.Data})
		}
	}
	var err error
	got.Folder, err = newFolder(files)
	return err
}

// spool keeps what has to be read more than once, until it is closed.
func spool(src io.Reader) (archive.File, int64, error) { return spoolFile(src) }

func spoolFile(src io.Reader) (*spooled, int64, error) {
	f, err := os.CreateTemp("", "paddock-skill-")
	if err != nil {
		return nil, 0, fault.New(fault.Internal, "there is no room for what is fetched").WithHint("the server's log says more").WithCause(err)
	}
	kept := &spooled{f}
	n, err := io.Copy(f, src)
	if err != nil {
		kept.Close()
		return nil, 0, err
	}
	return kept, n, nil
}

// spooled is a file that goes when it is closed.
type spooled struct{ *os.File }

func (s *spooled) Close() error { return errors.Join(s.File.Close(), os.Remove(s.Name())) }

// has tells whether there is a file of that path.
func (u *unpacker) has(path string) bool {
	return slices.ContainsFunc(u.files, func(f File) bool { return f.Path == path })
}

// deeper gives the one of the folders that ends as the wanted path; "": none does, or
// several do.
func deeper(folders []string, wanted string) string {
	at := ""
	for _, dir := range folders {
		if wanted == "" || !strings.HasSuffix(dir, "/"+wanted) {
			continue
		}
		if at != "" {
			return ""
		}
		at = dir
	}
	return at
}
