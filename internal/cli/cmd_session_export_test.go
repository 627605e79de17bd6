package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/fault"
)

func TestAFileIsWrittenWholeOrNotAtAll(t *testing.T) {
	broken := errors.New("it broke off")
	half := func(w io.Writer) error { _, _ = io.WriteString(w, "ha"); return broken }
	whole := func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }
	for _, test := range []struct {
		name, file string
		write      func(io.Writer) error
		want       string // in the file afterwards
		fails      string
	}{
		{"a new file", "fresh", whole, "new", ""},
		{"one that is there", "old", whole, "new", ""},
		{"a new file that breaks off", "fresh", half, "", "it broke off"},
		{"one that is there, which breaks off", "old", half, "before", "it broke off"},
		{"in a folder that is not there", "nowhere/x", whole, "", "nowhere/x cannot be written: "},
		{"in place of a folder", "folder", whole, "", "folder is not an ordinary file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := errors.Join(os.WriteFile("old", []byte("before"), 0o644), os.Mkdir("folder", 0o700)); err != nil {
				t.Fatal(err)
			}
			err := writeWhole(test.file, test.write)
			if got, want := err != nil, test.fails != ""; got != want {
				t.Errorf("got error %v, want one: %v", err, want)
			} else if err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("got error %v, want %q in it", err, test.fails)
			}
			if got, _ := os.ReadFile(test.file); string(got) != test.want {
				t.Errorf("the file holds %q, want %q", got, test.want)
			}
			if info, err := os.Stat(test.file); test.fails == "" && (err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600) {
				t.Errorf("the file is %v, %v", info, err)
			}
			if left, err := filepath.Glob(".paddock-export-*"); err != nil {
				t.Error(err)
			} else if len(left) > 0 {
				t.Errorf(`filepath.Glob(".paddock-export-*"): got %v, want none`, left)
			}
		})
	}
}

func TestWhyAFileCannotBeWrittenIsToldWithoutTheTemporaryName(t *testing.T) {
	own := &fs.PathError{Op: "write", Path: "/somewhere/.paddock-export-123", Err: fs.ErrPermission}
	err := unwritable("mine", own, errors.New("the export ended"))
	if f := fault.Of(err); f.Message != "mine cannot be written: permission denied" {
		t.Errorf("f.Message: got %q, want %q", f.Message, "mine cannot be written: permission denied")
	} else if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v, want %v", err, fs.ErrPermission)
	}
}

func TestAnArchiveIsNothingForATerminal(t *testing.T) {
	nowhere, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	for _, stream := range []any{nowhere, &strings.Builder{}, nil} {
		if person(stream) {
			t.Errorf("%v is a person", stream)
		}
	}
	device, err := os.Open("/dev/zero") // as much of a terminal as is needed
	if err != nil {
		t.Skip("there is no such device here")
	}
	defer device.Close()
	var stderr strings.Builder
	p := &cli{stdin: device, stdout: device, stderr: &stderr}
	for _, args := range [][]string{{"session", "export", "a"}, {"session", "export", "a", "-"}, {"session", "import", "-"}} {
		stderr.Reset()
		if code := p.main(t.Context(), args); code != exitUsage {
			t.Errorf("%v ends: got %v, want %v: %s", args, code, exitUsage, &stderr)
		} else if !strings.Contains(stderr.String(), "paddock: hint: ") {
			t.Errorf("%v ends: stderr.String(): got %q, want %q in it", args, stderr.String(), "paddock: hint: ")
		}
	}
}
