package skill

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/linkfarm"
)

// shownIn lists what lies in a session's folder, with the mark of what is executable.
func shownIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == linkfarm.Stamp {
			return err
		}
		name, err := filepath.Rel(dir, at)
		all = append(all, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func provided(t *testing.T, s *Store, owner, dir string) []string {
	t.Helper()
	if err := s.Provide(t.Context(), owner, dir); err != nil {
		t.Fatal(err)
	}
	return shownIn(t, dir)
}

func save(t *testing.T, s *Store, owner, name, code string) *Result {
	t.Helper()
	res, err := s.Save(owner, name, "", code, "Does "+name+".", nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestAFolderShowsTheOwnersSkillsAsTheyAre(t *testing.T) {
	web := newSite(t)
	s := storeOf(t, web)
	if _, err := s.Install(t.Context(), "alice", source(t, versions(t, web, "word-count", example("word-count")), false)); err != nil {
		t.Fatal(err)
	}
	save(t, s, "bob", "his", "x = 1")
	one, two := t.TempDir(), t.TempDir()
	first := provided(t, s, "alice", one)
	want := ".lib/word_count/lib/__init__.py .lib/word_count/lib/snippet_1.py .lib/word_count/lib/snippet_2.py .lib/word_count/lib.js " +
		"index.json word-count/SKILL.md word-count/assets/logo.bin word-count/references/REFERENCE.md word-count/scripts/run.sh word-count.js word_count.js word_count.py"
	if strings.Join(first, " ") != want {
		t.Errorf("there are %v", first)
	}
	if again := provided(t, s, "alice", two); !slices.Equal(first, again) {
		t.Errorf("another session has %v", again)
	}
	script := filepath.Join("word-count", "scripts", "run.sh")
	a, errA := os.Stat(filepath.Join(one, script))
	b, errB := os.Stat(filepath.Join(two, script))
	if errA != nil {
		t.Fatalf("the script: errA: got error %v, want none", errA)
	}
	if errB != nil {
		t.Fatalf("the script: errB: got error %v, want none", errB)
	}
	if !os.SameFile(a, b) {
		t.Errorf("the script is %v, %v and %v, %v", a, errA, b, errB)
	}
	expect.Equal(t, "the script: a.Mode().Perm()", a.Mode().Perm(), 0o755)

	if info, err := os.Stat(filepath.Join(one, "word-count", MainFile)); err != nil {
		t.Errorf("a text: got error %v, want none", err)
	} else if info.Mode().Perm() != 0o644 {
		t.Errorf("a text: info.Mode().Perm(): got %#o, want 0o644", info.Mode().Perm())
	}

	save(t, s, "alice", "mine", "x = 1")
	versions(t, web, "word-count", second("word-count"))
	if _, err := s.Install(t.Context(), "alice", source(t, web.URL+"/word-count.tar.gz", false)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(one, "word-count", "references", "REFERENCE.md")); err != nil {
		t.Errorf("what a session sees changed under it: %v", err)
	}
	next := provided(t, s, "alice", one)
	if !slices.Contains(next, "mine.py") {
		t.Errorf("after an update: next: got %q, want %q among them", next, "mine.py")
	}
	if !slices.Contains(next, "word-count/scripts/new.py") {
		t.Errorf("after an update: next: got %q, want %q among them", next, "word-count/scripts/new.py")
	}
	if slices.Contains(next, "word-count/references/REFERENCE.md") {
		t.Errorf("after an update: next: got %q, want no %q among them", next, "word-count/references/REFERENCE.md")
	}
	var listed map[string]indexEntry
	data, err := os.ReadFile(filepath.Join(one, indexFile))
	if err != nil {
		t.Fatalf("the index: got error %v, want none", err)
	}
	if json.Unmarshal(data, &listed) != nil {
		t.Error("the index: json.Unmarshal(data, &listed): got an error, want none")
	}
	expect.Equal(t, "the index: slices.Sorted(maps.Keys(listed))",
		fmt.Sprint(slices.Sorted(maps.Keys(listed))), "[mine word-count]")
	expect.Equal(t, `the index: listed["mine"].Package`, listed["mine"].Package, "skills.mine")
	for _, name := range []string{"mine", "word-count"} {
		if err := s.Remove("alice", name); err != nil {
			t.Fatal(err)
		}
	}
	if left := provided(t, s, "alice", one); !slices.Equal(left, []string{indexFile}) {
		t.Errorf("after all were removed there are %v", left)
	}
	if entries, err := os.ReadDir(s.folder("alice", shownFolder)); err != nil {
		t.Error(err)
	} else if len(entries) > 0 {
		t.Errorf(`os.ReadDir(s.folder("alice", shownFolder)): got %v, want none`, entries)
	}
}

func TestAFolderThatIsUpToDateIsNotTouched(t *testing.T) {
	s := storeOf(t, nil)
	save(t, s, "alice", "mine", "x = 1")
	dir := t.TempDir()
	provided(t, s, "alice", dir)
	if err := os.Remove(filepath.Join(dir, "mine.py")); err != nil {
		t.Fatal(err)
	}
	if there := provided(t, s, "alice", dir); slices.Contains(there, "mine.py") {
		t.Error("it looked at what has not changed")
	}
	save(t, s, "alice", "other", "x = 1")
	provided(t, s, "alice", dir)
	if err := s.Remove("alice", "other"); err != nil {
		t.Fatal(err)
	}
	provided(t, s, "alice", dir)
	if err := os.RemoveAll(s.folder("alice", recordsFolder)); err != nil { // nor at the records
		t.Fatal(err)
	}
	if there := provided(t, s, "alice", dir); !slices.Contains(there, "mine/SKILL.md") {
		t.Errorf("there are %v", there)
	}
}

func TestAnIndexThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	s := storeOf(t, nil)
	save(t, s, "alice", "mine", "x = 1")
	dir := t.TempDir()
	at := filepath.Join(dir, indexFile)
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Provide(t.Context(), "alice", dir); err == nil {
		t.Error("nobody is told")
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if there := provided(t, s, "alice", dir); !slices.Contains(there, indexFile) {
		t.Errorf("there are %v", there)
	}
}

func TestADamagedSkillIsLeftOutOfFolders(t *testing.T) {
	s := storeOf(t, nil)
	dir := t.TempDir()
	good, bad := save(t, s, "alice", "good", "x = 1"), save(t, s, "alice", "bad", "x = 2")
	if err := os.WriteFile(filepath.Join(s.dir("alice", bad.Record), MainFile), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Provide(t.Context(), "alice", dir); !errors.Is(err, ErrDamaged) {
		t.Errorf("it gives %v", err)
	}
	if there := shownIn(t, dir); !slices.Contains(there, "good.py") {
		t.Errorf("shownIn(t, dir): got %q, want %q among them", there, "good.py")
	} else if slices.ContainsFunc(there, func(name string) bool { return strings.HasPrefix(name, "bad") }) {
		t.Errorf("there are %v beside %s", there, good.Name)
	}
	save(t, s, "alice", "bad", "x = 2")
	if there := provided(t, s, "alice", dir); !slices.Contains(there, "bad.py") {
		t.Errorf("after it was saved again there are %v", there)
	}
}

func TestOwnFilesDoNotKeepASkillFromBeingImported(t *testing.T) {
	s := storeOf(t, nil)
	folder := t.TempDir()
	own := filepath.Join(folder, "own")
	for name, text := range map[string]string{
		MainFile: "---\nname: own\ndescription: x\n---\nRead me.\n", "__init__.py": "raise SystemExit('mine')", "index.js": "throw 1", "lib/__init__.py": "mine = 3\n",
	} {
		if err := os.MkdirAll(filepath.Join(own, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	res, err := s.Install(t.Context(), "alice", source(t, own, true))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(res.Warnings), "__init__.py: programs see paddock's file") {
		t.Fatalf("res.Warnings: got %q, want %q in it",
			fmt.Sprint(res.Warnings), "__init__.py: programs see paddock's file")
	}
	dir := filepath.Join(t.TempDir(), "skills")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	provided(t, s, "alice", dir)
	run(t, filepath.Dir(dir), "python3", "-c", "from skills.own import instructions, mine, lib\nassert instructions() == 'Read me.' and mine == lib.mine == 3\nfrom skills.own.lib import mine\n")
	main := filepath.Join(filepath.Dir(dir), "main.mjs")
	if err := os.WriteFile(main, []byte("import { instructions } from './skills/own/index.js'\nif (instructions !== 'Read me.') throw instructions\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, filepath.Dir(dir), "node", "main.mjs")
}

func TestEverybodyHasWhatIsBuiltIn(t *testing.T) {
	var all []*Installed
	for name, folder := range map[string]fstest.MapFS{
		"files": {MainFile: {Data: []byte(mainOf("files"))}, "scripts/find.py": {Data: []byte("#!/usr/bin/env python3\n")}},
		"words": {MainFile: {Data: []byte(mainOf("words"))}},
	} {
		in, err := ReadBuiltin(name, folder, "")
		if err != nil {
			t.Fatal(err)
		}
		if name == "files" && !in.Files[1].Executable {
			t.Fatalf("%s: got %+v, want its second file executable", name, in.Files[1])
		}
		all = append(all, in)
	}
	s := NewStore(Config{Dir: t.TempDir(), Builtin: func() []*Installed { return all }})
	dir := t.TempDir()
	if there := provided(t, s, "alice", dir); !slices.Contains(there, "files/scripts/find.py") {
		t.Errorf(`provided(t, s, "alice", dir): got %q, want %q among them`, there, "files/scripts/find.py")
	} else if !slices.Contains(there, "words.py") {
		t.Errorf(`provided(t, s, "alice", dir): got %q, want %q among them`, there, "words.py")
	}
	if _, err := s.Save("alice", "words", "", "x = 1", "Mine.", nil); fault.KindOf(err) != fault.Conflict {
		t.Errorf("one of its name gives %v", err)
	}
	if err := s.Remove("alice", "words"); fault.KindOf(err) != fault.Denied {
		t.Errorf("removing it gives %v", err)
	}
	if err := s.Used("alice", "words", true); err != nil {
		t.Error(err)
	}
	save(t, s, "alice", "apples", "x = 1")
	list, err := s.List("alice")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 {
		t.Fatalf("len(list): got %d, want 3: %v", len(list), list)
	}
	expect.Equal(t, "list[0].Name", list[0].Name, "apples")
	expect.Equal(t, "list[2].Counts.Used", list[2].Counts.Used, 1)
	expect.Equal(t, "list[2].Source.Kind", list[2].Source.Kind, Builtin)
	if in, err := s.Open("alice", "words"); err != nil {
		t.Error(err)
	} else {
		expect.Equal(t, "in.Counts.Succeeded", in.Counts.Succeeded, 1)
		if in.Skill.Instructions == "" {
			t.Error("in.Skill.Instructions: got none, want one")
		}
	}
	if _, err := ReadBuiltin("other", fstest.MapFS{MainFile: {Data: []byte(mainOf("words"))}}, ""); err == nil {
		t.Error("one with another name than its folder's was taken")
	}
}

func TestSessionsAreProvidedForAtOnce(t *testing.T) {
	s := storeOf(t, nil)
	var all sync.WaitGroup
	for k := range 4 {
		dir := t.TempDir()
		all.Go(func() {
			for n := range 5 {
				if _, err := s.Save("alice", fmt.Sprintf("s%d-%d", k, n), "", "x = 1", "x", nil); err != nil {
					t.Error(err)
				}
				if err := s.Provide(t.Context(), "alice", dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if there := provided(t, s, "alice", t.TempDir()); len(there) != 20*7+1 {
		t.Errorf("there are %d files", len(there))
	}
}

func TestFrontMatterIsWhatOthersReadToo(t *testing.T) {
	text := "---\nname: words\ndescription: \"Counts <words> & more\"\nlicense: MIT\nmetadata:\n  version: 1.0\n  n: 12\n  hex: 0x10\n  yes: yes\n  on: true\n  none: ~\n  date: 2026-01-02\n  text: '12'\nallowed-tools: [Read, \"Bash(git:*)\"]\nextra:\n  - {a: [1, 2]}\n---\nx\n"
	f := folderOf(t, File{Path: MainFile, Data: []byte(text)})
	s, err := Check(f, "words", true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.FrontMatterJSON()
	const want = `{"name":"words","description":"Counts <words> & more","license":"MIT","metadata":{"version":1,"n":12,"hex":16,"yes":"yes","on":true,"none":null,"date":"2026-01-02","text":"12"},"allowed-tools":["Read","Bash(git:*)"],"extra":[{"a":[1,2]}]}`
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got %q, want %q", string(got), want)
	}
}

func TestSkillsAreFoundByWords(t *testing.T) {
	s := storeOf(t, nil)
	for name, about := range map[string]string{
		"word-count":  "Counts the words of a text.",
		"tax":         "Computes the German VAT of invoices.",
		"stuffed":     strings.Repeat("count words count words ", 40),
		"unit-change": "Converts metres to feet.",
	} {
		tags := []string{}
		if name == "tax" {
			tags = []string{"finance"}
		}
		if _, err := s.Save("alice", name, "", "x = 1", about, tags); err != nil {
			t.Fatal(err)
		}
	}
	for words, want := range map[string]string{"count words": "word-count", "invoice": "tax", "finance": "tax", "converting to feet": "unit-change", "": "stuffed"} {
		found, err := s.Search(t.Context(), "alice", words, 2)
		if err != nil {
			t.Fatalf("%q: got error %v, want none", words, err)
		}
		if len(found) == 0 {
			t.Fatalf("%q: len(found): got 0, want more", words)
		}
		expect.Equal(t, fmt.Sprintf("%q: found[0].Name", words), found[0].Name, want)
		if len(found) > 2 {
			t.Errorf("%q: len(found): got %v, want at most 2", words, len(found))
		}
	}
	if found, err := s.Search(t.Context(), "bob", "count", 10); err != nil {
		t.Errorf("another one: got error %v, want none", err)
	} else if len(found) > 0 {
		t.Errorf("another one: got %v, want none", found)
	}
}
