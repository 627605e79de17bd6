package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/fault"
)

// Where paddock keeps what is the user's is not for files to say that came with a folder:
// whoever adds a key that names a place decides here whether a project's file may set it.
func TestAProjectsFileNamesNoPlaceOfTheUsers(t *testing.T) {
	ofProjects := []string{"sandbox.volumes", "packages.pypi.index", "packages.npm.index"}
	for _, k := range Keys() {
		if place := strings.Contains(k.Doc, "folder") || strings.Contains(k.Doc, "keyring"); place && !k.usersOwn && !slices.Contains(ofProjects, k.Name) && !strings.Contains(k.Name, "max_") && k.Name != "sandbox.image" {
			t.Errorf("a project's file can set %s: %s", k.Name, k.Doc)
		}
		for _, word := range []string{"state", "cache_dir", "state_dir", "token_file"} {
			if strings.HasPrefix(k.Name, word+".") {
				t.Errorf("there is a key: k.Name = %q, want it not to begin with %q", k.Name, word+".")
			} else if strings.HasSuffix(k.Name, word) {
				t.Errorf("there is a key: k.Name = %q, want it not to end with %q", k.Name, word)
			}
		}
	}
	if _, err := Project("paddock.toml", []byte("[vault]\nkeyring = \"off\"\n")); fault.KindOf(err) != fault.Denied {
		t.Errorf("a project's file sets vault.keyring: %v", err)
	}
}

func TestAProjectsFileCountsOnlyAsItWasTrusted(t *testing.T) {
	dir := t.TempDir()
	project, own := filepath.Join(dir, "paddock.toml"), filepath.Join(dir, "own.toml")
	write := func(file, name string) {
		if err := os.WriteFile(file, []byte("[server]\nname = \""+name+"\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(project, "project")
	write(own, "own")
	asked := 0
	trusting := func(yes bool) func(string, []byte) bool {
		return func(_ string, text []byte) bool { // whoever swaps the file after this is too late
			asked++
			write(project, "swapped")
			return yes && strings.Contains(string(text), "project")
		}
	}
	for _, c := range []struct {
		name, want, ignored string
		src                 Source
	}{
		{"the origin is not known", "own", project, Source{Project: project, Search: []string{own}}},
		{"not trusted", "own", project, Source{Project: project, Trusted: trusting(false), Search: []string{own}}},
		{"trusted, and swapped then", "project", "", Source{Project: project, Trusted: trusting(true), Search: []string{own}}},
		{"another one", "own", project, Source{Project: project, Trusted: func(string, []byte) bool { return false }, Search: []string{own}}},
		{"there is none", "own", "", Source{Project: filepath.Join(dir, "none"), Search: []string{own}}},
		{"a folder", "own", "", Source{Project: dir, Search: []string{own}}},
		{"the user's own", "own", "", Source{Project: own, Search: []string{own}}},
		{"one was asked for", "own", "", Source{Project: project, File: own}},
	} {
		if c.name != "another one" {
			write(project, "project")
		}
		got, err := Load(c.src)
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case got.Server.Name != c.want:
			t.Errorf("%s: got.Server.Name = %v, want %v: %q", c.name, got.Server.Name, c.want, got.Ignored)
		case got.Ignored != c.ignored:
			t.Errorf("%s: got.Ignored = %v, want %v: %q", c.name, got.Ignored, c.ignored, got.Server.Name)
		}
	}
	if asked != 2 {
		t.Errorf("it was asked %d times", asked)
	}
}
