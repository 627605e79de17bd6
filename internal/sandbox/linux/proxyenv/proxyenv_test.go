package proxyenv

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestTheFolderHasWhatTheEnvironmentNames(t *testing.T) {
	dir := t.TempDir()
	if err := Fill(dir, []byte("certificate")); err != nil {
		t.Fatal(err)
	}
	all := Environment()
	for name, value := range all {
		for word := range strings.FieldsSeq(value) {
			if rest, ok := strings.CutPrefix(word, "/"+Folder+"/"); ok {
				if _, err := os.Stat(filepath.Join(dir, rest)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	for _, name := range []string{"http_proxy", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "NODE_OPTIONS"} {
		if all[name] == "" {
			t.Errorf("%s is not set", name)
		}
	}
	if _, there := all["ALL_PROXY"]; there {
		t.Error("ALL_PROXY is set")
	}
	all["HTTP_PROXY"] = "mine"
	if Environment()["HTTP_PROXY"] == "mine" {
		t.Error("it is everybody's")
	}
}

func TestTheFolderIsReplacedWhereItIsAnother(t *testing.T) {
	dir := t.TempDir()
	read := func() (string, os.FileInfo) {
		text, err := os.ReadFile(filepath.Join(dir, certificate))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, certificate))
		if err != nil {
			t.Fatal(err)
		}
		return string(text), info
	}
	fill := func(ca []byte) {
		t.Helper()
		if err := Fill(dir, ca); err != nil {
			t.Fatal(err)
		}
	}
	fill([]byte("first"))
	text, first := read()
	if text != "first" || runtime.GOOS != "windows" && first.Mode().Perm() != 0o644 {
		t.Errorf("it has %q, %v", text, first.Mode())
	}
	fill([]byte("first"))
	if _, again := read(); !os.SameFile(first, again) {
		t.Error("what is the same was written again")
	}
	fill([]byte("second"))
	if text, _ := read(); text != "second" {
		t.Errorf("it has %q", text)
	}
	fill(nil)
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("without a way out there is %v, %v", names, err)
	}
	fill(nil)
	if err := Fill(filepath.Join(dir, "missing"), nil); err == nil {
		t.Error("a folder that is not there is filled")
	}
}
