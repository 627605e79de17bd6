package privatefile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/privatefile"
)

func TestOnlyPrivateFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secrets")
	if _, _, err := privatefile.Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there gave %v, want %v", err, fs.ErrNotExist)
	}
	if _, _, err := privatefile.Read(dir); fault.KindOf(err) != fault.Unavailable && runtime.GOOS != "windows" {
		t.Errorf("a folder gave %v, want %v", err, fault.Unavailable)
	}
	want := bytes.Repeat([]byte("x"), privatefile.MaxBytes)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	got, info, err := privatefile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes were read, want %d", len(got), len(want))
	}
	if info.Size() != privatefile.MaxBytes {
		t.Errorf("the size is %d, want %d", info.Size(), privatefile.MaxBytes)
	}
	if err := os.WriteFile(path, append(want, 'x'), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := privatefile.Read(path); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a file that is too large gave %v, want %v", err, fault.Unavailable)
	}
}

func TestAFileThatOthersCanUseIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing there")
	}
	path := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o602, 0o601} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := privatefile.Read(path)
		if fault.KindOf(err) != fault.Unavailable {
			t.Errorf("with the mode %v it gave %v, want %v", mode, err, fault.Unavailable)
		} else if !strings.Contains(err.Error(), "secrets") {
			t.Errorf("with the mode %v the error is %v, want the file's name in it", mode, err)
		}
	}
	if os.Geteuid() != 0 {
		return // only root gives files away
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 4321, 4321)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := privatefile.Read(path); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("another user's file gave %v, want %v", err, fault.Unavailable)
	}
}
