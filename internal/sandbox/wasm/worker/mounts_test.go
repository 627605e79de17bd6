package worker

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"paddock/internal/sandbox/wire"
)

// newMounter makes a worker that has an owner's folder and nothing else; it
// gives the folder.
func newMounter(t *testing.T, folders_ ...string) (*worker, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "owner")
	for _, f := range append(folders_, ".") {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &worker{root: root, folders: folders{}}, dir
}

func TestOneFolderIsOpenedOnceForAllThatMountIt(t *testing.T) {
	w, _ := newMounter(t, "a", "b")
	body := wire.MountBody{Guest: "/workspace", Aliases: []string{"/app"}, Host: "a", DiskBytes: 100}
	first, err := w.openMounts([]wire.MountBody{body, {Guest: "/skills", Host: "b", ReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	body.Guest = "/elsewhere" // another place in the guest, the same folder
	second, err := w.openMounts([]wire.MountBody{body})
	if err != nil {
		t.Fatal(err)
	}
	if first[0].Dir != second[0].Dir {
		t.Error("it has two counts of what lies in it")
	}
	if first[0].Guest != "/workspace" || first[0].Aliases[0] != "/app" || second[0].Guest != "/elsewhere" {
		t.Errorf("they are mounted as %+v and %+v", first[0], second[0])
	}
	if len(w.folders) != 2 {
		t.Errorf("%d folders are open", len(w.folders))
	}
	w.closeMounts(first)
	if len(w.folders) != 1 {
		t.Error("the folder that is still used was closed, or the other was not")
	}
	w.closeMounts(second)
	if len(w.folders) != 0 {
		t.Error("a folder that nobody uses is open")
	}
	again, err := w.openMounts([]wire.MountBody{body})
	if err != nil || again[0].Dir == second[0].Dir {
		t.Errorf("a closed folder is used again (%v)", err)
	}
	w.closeMounts(again)
}

func TestFoldersWithOtherRightsAreOthers(t *testing.T) {
	w, _ := newMounter(t, "a")
	mounts, err := w.openMounts([]wire.MountBody{
		{Guest: "/1", Host: "a", DiskBytes: 100}, {Guest: "/2", Host: "a", DiskBytes: 200}, {Guest: "/3", Host: "a", DiskBytes: 100, ReadOnly: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.folders) != 3 {
		t.Errorf("%d folders are open", len(w.folders))
	}
	w.closeMounts(mounts)
}

func TestAMountThatCannotBeOpenedLeavesNothingOpen(t *testing.T) {
	w, dir := newMounter(t, "a")
	outside := filepath.Join(filepath.Dir(dir), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	hosts := map[string]string{
		"one that is not there": "missing", "a file": "file", "one beside the owner's": "../outside", "one by its whole path": outside,
		"one of somewhere else": "/etc", "one through a way round": "a/../../outside", "no name": "",
	}
	for name, target := range map[string]string{"absolute": outside, "relative": "../outside", "root": "/"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Logf("links cannot be made here: %v", err)
			continue
		}
		hosts["a link out, "+name] = name
	}
	for name, host := range hosts {
		t.Run(name, func(t *testing.T) {
			mounts, err := w.openMounts([]wire.MountBody{{Guest: "/workspace", Host: "a"}, {Guest: "/other", Host: host}})
			if err == nil || mounts != nil {
				t.Errorf("it was opened: %+v", mounts)
			}
			if len(w.folders) != 0 {
				t.Errorf("%d folders are left open", len(w.folders))
			}
		})
	}
}

func TestFoldersAreOpenedAndClosedByManyAtOnce(t *testing.T) {
	w, _ := newMounter(t, "a", "b")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				mounts, err := w.openMounts([]wire.MountBody{{Guest: "/1", Host: "a"}, {Guest: "/2", Host: "b"}})
				if err != nil {
					t.Error(err)
					return
				}
				w.closeMounts(mounts)
			}
		})
	}
	all.Wait()
	if len(w.folders) != 0 {
		t.Errorf("%d folders are left open", len(w.folders))
	}
}

func TestFoldersThatAreSharedCanOnlyBeRead(t *testing.T) {
	w, dir := newMounter(t, "a")
	shared := filepath.Join(filepath.Dir(dir), "shared")
	if err := os.MkdirAll(filepath.Join(shared, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	body := wire.MountBody{Guest: "/skills", Host: "a", ReadOnly: true, Shared: true}
	if _, err := w.openMounts([]wire.MountBody{body}); err == nil {
		t.Error("there is one where none was named")
	}
	root, err := os.OpenRoot(shared)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	w.shared = root
	own := body
	own.Shared = false
	mounts, err := w.openMounts([]wire.MountBody{body, own})
	if err != nil || mounts[0].Dir == mounts[1].Dir {
		t.Fatalf("they are %+v, %v", mounts, err)
	}
	w.closeMounts(mounts)
	for _, bad := range []wire.MountBody{
		{Guest: "/skills", Host: "a", Shared: true}, {Guest: "/skills", Host: "../owner/a", ReadOnly: true, Shared: true}, {Guest: "/skills", Host: "b", ReadOnly: true, Shared: true},
	} {
		if _, err := w.openMounts([]wire.MountBody{bad}); err == nil || len(w.folders) != 0 {
			t.Errorf("%+v was opened: %v", bad, err)
		}
	}
	setup := Setup{Owner: dir, Shared: shared, Cache: "/cache"}
	if p := policy(setup); !slices.Equal(p.Writable, []string{dir}) || !slices.Equal(p.Readable, []string{"/cache", shared}) {
		t.Errorf("its walls are %+v", p)
	}
	setup.Shared = ""
	if p := policy(setup); !slices.Equal(p.Readable, []string{"/cache"}) {
		t.Errorf("without one they are %+v", p)
	}
}
