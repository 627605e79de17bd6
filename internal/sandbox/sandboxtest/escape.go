package sandboxtest

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"paddock/internal/sandbox"
)

const secret = "programs inside may not read this"

func (k *kit) testEscape(t *testing.T) {
	dir := k.folder(t)
	outside := filepath.Join(filepath.Dir(dir), "secret")
	if err := os.WriteFile(outside, []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	in := k.start(t, k.spec(dir))
	refused := func(t *testing.T, path string) {
		t.Helper()
		var o output
		if k.suite.Machine { // the path may be one of the machine's own
			o = run(t, in, code(k.Read(path)))
			if host, err := os.ReadFile("/etc/passwd"); err == nil && strings.TrimSpace(o.stdout) == strings.TrimSpace(string(host)) {
				t.Errorf("%s was read: %q", path, o.stdout)
			}
			if strings.Contains(o.stdout, secret) {
				t.Errorf("%s was read: %q", path, o.stdout)
			}
			return
		}
		o = fails(t, in, k.Read(path))
		if strings.Contains(o.stdout+o.stderr, secret) || strings.Contains(o.stdout, "root:") {
			t.Errorf("%s was read: %q", path, o.stdout)
		}
	}
	for _, p := range []string{
		"../secret", "../../secret", "/workspace/../secret", "/app/../secret", "sub/../../secret", "/../../../../../../etc/passwd",
		"/etc/passwd", "/proc/self/environ", "//etc/passwd", outside,
	} {
		t.Run("reading "+strings.ReplaceAll(p, "/", "|")+" fails", func(t *testing.T) { refused(t, p) })
	}
	t.Run("links that the host planted lead nowhere", func(t *testing.T) {
		for name, target := range map[string]string{"absolute": outside, "relative": "../secret", "folder": "..", "passwd": "/etc/passwd"} {
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Skip("links cannot be made here:", err)
			}
		}
		for _, p := range []string{"absolute", "relative", "folder/secret", "passwd", "/app/folder/secret"} {
			refused(t, p)
		}
	})
	t.Run("links that the guest plants lead nowhere", func(t *testing.T) {
		for n, target := range []string{outside, "../secret", "..", "/etc/passwd", "/"} {
			link := "planted" + strconv.Itoa(n)
			run(t, in, code(k.Link(target, link)))
			for _, p := range []string{link, link + "/secret", link + "/etc/passwd"} {
				refused(t, p)
			}
		}
	})
	k.testWrites(t, in, outside)
	k.testNetwork(t, in)
}

// testWrites lets the guest write beside the secret, whose links are planted.
func (k *kit) testWrites(t *testing.T, in sandbox.Instance, outside string) {
	t.Run("nothing is written outside", func(t *testing.T) {
		for _, p := range []string{"../planted", "/planted", "/workspace/../planted", "folder/planted", "relative", "absolute"} {
			if o := run(t, in, code(k.Write(p, "overwritten"))); o.Code == 0 && !k.suite.Machine {
				t.Errorf("writing %s worked", p)
			}
		}
		if got, err := os.ReadFile(outside); err != nil || string(got) != secret {
			t.Errorf("the secret is %q, %v", got, err)
		}
		if _, err := os.Lstat(filepath.Join(filepath.Dir(outside), "planted")); err == nil {
			t.Error("a file was made outside")
		}
	})
	t.Run("a dangling link is not written through", func(t *testing.T) {
		target := filepath.Join(filepath.Dir(outside), "made")
		if err := os.Symlink("../made", filepath.Join(filepath.Dir(outside), "workspace", "dangling")); err != nil {
			t.Skip("links cannot be made here:", err)
		}
		run(t, in, code(k.Write("dangling", "x")))
		if _, err := os.Lstat(target); err == nil {
			t.Error("it was")
		}
	})
	t.Run("without a mount there are no files to write", func(t *testing.T) {
		if k.suite.Machine {
			t.Skip("the machine has files of its own")
		}
		in := k.start(t, sandbox.Spec{Owner: "alice", Runtime: k.runtime})
		for _, p := range []string{"f", "/f", "/tmp/f", "/workspace/f"} {
			if o := run(t, in, code(k.Write(p, "x"))); o.Code == 0 {
				t.Errorf("writing %s worked", p)
			}
		}
	})
}

// testNetwork lets the guest try to reach a port that is open.
func (k *kit) testNetwork(t *testing.T, in sandbox.Instance) {
	t.Run("there is no network", func(t *testing.T) {
		open, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		reached := make(chan struct{}, 1)
		go func() {
			if c, err := open.Accept(); err == nil {
				c.Close()
				reached <- struct{}{}
			}
		}()
		works(t, in, k.Connect("127.0.0.1", open.Addr().(*net.TCPAddr).Port), "refused")
		select {
		case <-reached:
			t.Error("the guest reached a port of the host")
		default:
		}
	})
}
