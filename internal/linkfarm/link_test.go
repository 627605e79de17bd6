package linkfarm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreLinkedOrCopied(t *testing.T) {
	from := t.TempDir()
	write(t, from, exampleTexts)
	if err := os.Chmod(filepath.Join(from, "below", "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	calls := 0
	onceOnly := func(old, name string) error {
		if calls++; calls > 1 {
			return errors.ErrUnsupported
		}
		return os.Link(old, name)
	}
	for name, link := range map[string]func(old, name string) error{
		"linked":           os.Link,
		"copied":           func(string, string) error { return errors.ErrUnsupported },
		"linked as can be": onceOnly,
	} {
		to := filepath.Join(t.TempDir(), "to")
		if err := Link(link, from, to, []string{"a.txt", "below/run.sh", "below/deep/b.txt"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantFiles(t, name, to, exampleTexts)
		wantMode(t, filepath.Join(to, "below", "run.sh"), 0o755)
		wantMode(t, filepath.Join(to, "below"), 0o755)
		if got, want := sameFile(t, filepath.Join(from, "below", "run.sh"), filepath.Join(to, "below", "run.sh")), name == "linked"; got != want {
			t.Errorf("%s: the files are the same: %v, want %v", name, got, want)
		}
	}
}

func TestLinkSaysWhatIsThereOrMissing(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from, exampleTexts)
	write(t, to, map[string]string{"a.txt": "another"})
	if err := Link(os.Link, from, to, []string{"a.txt"}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file that is there it gives %v, want %v", err, fs.ErrExist)
	}
	if err := Link(os.Link, from, to, []string{"none"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that is missing it gives %v, want %v", err, fs.ErrNotExist)
	}
	if err := LinkTree(filepath.Join(from, "none"), to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a folder that is missing it gives %v, want %v", err, fs.ErrNotExist)
	}
	wantFiles(t, "the folder", to, map[string]string{"a.txt": "another"})
}

func TestSwap(t *testing.T) {
	failed := errors.New("it cannot be made")
	parts := []string{"mail", ".lib/mail", "mail.py"}
	before := map[string]string{"mail/x": "old", ".lib/mail/y": "old", "mail.py": "old", "other.py": "other"}
	fill := func(files map[string]string, err error) func(*testing.T) func(string) error {
		return func(t *testing.T) func(string) error {
			return func(fresh string) error { write(t, fresh, files); return err }
		}
	}
	for name, c := range map[string]struct {
		before, want map[string]string
		fill         func(*testing.T) func(string) error
		err          error
	}{
		"new parts replace old ones": {
			before: before,
			fill:   fill(map[string]string{"mail/z": "new", ".lib/mail/y": "new", "mail.py": "new"}, nil),
			want:   map[string]string{"mail/z": "new", ".lib/mail/y": "new", "mail.py": "new", "other.py": "other"},
		},
		"a part that is not made is removed": {
			before: before,
			fill:   fill(map[string]string{"mail/x": "new"}, nil),
			want:   map[string]string{"mail/x": "new", "other.py": "other"},
		},
		"what is not a part stays out": {
			before: before,
			fill:   fill(map[string]string{"mail.py": "new", "other.py": "new", "more.py": "new"}, nil),
			want:   map[string]string{"mail.py": "new", "other.py": "other"},
		},
		"into an empty folder": {
			fill: fill(map[string]string{"mail/x": "new", ".lib/mail/y": "new"}, nil),
			want: map[string]string{"mail/x": "new", ".lib/mail/y": "new"},
		},
		"without fill all parts are removed": {before: before, want: map[string]string{"other.py": "other"}},
		"after an error of fill the old parts are there": {
			before: before, fill: fill(map[string]string{"mail/x": "new"}, failed), want: before, err: failed,
		},
		"after a part that cannot be placed the old parts are there": {
			before: map[string]string{"mail/x": "old", ".lib": "a file", "mail.py": "old"},
			fill:   fill(map[string]string{"mail/x": "new", ".lib/mail/y": "new", "mail.py": "new"}, nil),
			want:   map[string]string{"mail/x": "old", ".lib": "a file", "mail.py": "old"},
			err:    errAny,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.before)
			var with func(string) error
			if c.fill != nil {
				with = c.fill(t)
			}
			err := Swap(dir, parts, with)
			if c.err == errAny {
				if err == nil {
					t.Error("it gives no error, want one")
				}
			} else if !errors.Is(err, c.err) {
				t.Errorf("it gives %v, want %v", err, c.err)
			}
			wantFiles(t, "the folder", dir, c.want)
		})
	}
}

var errAny = errors.New("any error")
