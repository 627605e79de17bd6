//go:build unix

package broker

import (
	"path/filepath"
	"syscall"
	"testing"

	"paddock/internal/linkfarm"
)

// TestFilesCanBeReadByGuestsWhateverTheUmask holds a part of attack 28: what sessions
// share has the modes that it should.
func TestFilesCanBeReadByGuestsWhateverTheUmask(t *testing.T) {
	c := serve(t)
	for _, mask := range []int{0, 0o022, 0o077} {
		state := t.TempDir()
		b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: state})
		if _, err := b.Offer(t.Context(), alice, "party"); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "servers")
		copied := filepath.Join(t.TempDir(), "servers")
		before := syscall.Umask(mask)
		err := b.Provide(t.Context(), alice, dir)
		b.stubs = linkfarm.NewStore(filepath.Join(state, "trees"), func(string, string) error { return syscall.EXDEV })
		if err == nil {
			err = b.Provide(t.Context(), Session{"alice", "s-2"}, copied)
		}
		syscall.Umask(before)
		if err != nil {
			t.Fatalf("with the umask %o: %v", mask, err)
		}
		for how, folder := range map[string]string{"linked": dir, "copied": copied} {
			if got := len(contents(t, folder)); got < 10 {
				t.Errorf("with the umask %o %d files are %s, want 10 or more", mask, got, how)
			}
		}
	}
}
