package image

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
)

// helperEnv makes the test binary a process that uses the store, for the tests of
// several processes: its value is the command.
const helperEnv = "PADDOCK_IMAGE_HELPER"

func TestMain(m *testing.M) {
	if command := os.Getenv(helperEnv); command != "" {
		os.Exit(helper(command, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// helper is that process: pull DIR REFERENCE, or hold DIR NAME until stdin ends.
func helper(command string, args []string) int {
	c := Config{Dir: args[0]}
	hasty(&c)
	s, err := Open(c)
	if err == nil {
		switch command {
		case "pull":
			var img Image
			img, err = s.Pull(context.Background(), Request{Reference: args[1]})
			fmt.Println(img.ID)
		case "hold":
			_, _, err = s.Rootfs(context.Background(), args[1])
			fmt.Println("held")
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err, cause(err))
		return 1
	}
	return 0
}

func process(t *testing.T, command string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+command)
	return cmd
}

func TestLayersAreOnTheDiskOnce(t *testing.T) {
	s := store(t, nil)
	base := tarOf(t, file("base", "x"), symlink("l", "base"))
	one := mustPut(t, s, "one", base, tarOf(t, file("one", "1")))
	two := mustPut(t, s, "two", base, tarOf(t, file("two", "2")))
	for _, name := range []string{"base", "l"} {
		a, err := os.Lstat(filepath.Join(s.root(one.ID), treeFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.Lstat(filepath.Join(s.root(two.ID), treeFolder, name))
		if err != nil {
			t.Fatalf("%s: got error %v, want none", name, err)
		}
		if !os.SameFile(a, b) {
			t.Errorf("%s: got two files, want one with two names", name)
		}
	}
	if layers, _ := os.ReadDir(s.path(layersFolder)); len(layers) != 3 {
		t.Errorf("there are %d layers", len(layers))
	}
	checkTree(t, rootTree(t, s, two), "base -rw-r--r-- x", "l -> base", "two -rw-r--r-- 2")
}

func TestWhiteouts(t *testing.T) {
	below := tarOf(t, file("d/a", "1"), file("d/b", "2"), file("d/e/f", "3"), file("g", "4"), symlink("link", "d"), file("h/i", "5"))
	for name, test := range map[string]struct {
		above []entry
		want  []string
	}{
		"of a file":                              {[]entry{file("d/.wh.a", "")}, []string{"d drwxr-xr-x", "d/b -rw-r--r-- 2", "d/e drwxr-xr-x", "d/e/f -rw-r--r-- 3", "g -rw-r--r-- 4", "h drwxr-xr-x", "h/i -rw-r--r-- 5", "link -> d"}},
		"of a folder, and a new one of its name": {[]entry{file(".wh.d", ""), file("d/new", "n")}, []string{"d drwxr-xr-x", "d/new -rw-r--r-- n", "g -rw-r--r-- 4", "h drwxr-xr-x", "h/i -rw-r--r-- 5", "link -> d"}},
		"that comes after the new one":           {[]entry{file("d/new", "n"), file(".wh.d", "")}, []string{"d drwxr-xr-x", "d/new -rw-r--r-- n", "g -rw-r--r-- 4", "h drwxr-xr-x", "h/i -rw-r--r-- 5", "link -> d"}},
		"of all in a folder":                     {[]entry{file("d/new", "n"), file("d/.wh..wh..opq", "")}, []string{"d drwxr-xr-x", "d/new -rw-r--r-- n", "g -rw-r--r-- 4", "h drwxr-xr-x", "h/i -rw-r--r-- 5", "link -> d"}},
		"of all":                                 {[]entry{file(".wh..wh..opq", ""), file("new", "n")}, []string{"new -rw-r--r-- n"}},
		"of what is not there":                   {[]entry{file("none/.wh.a", ""), file(".wh.b", ""), file("none/.wh..wh..opq", "")}, []string{"d drwxr-xr-x", "d/a -rw-r--r-- 1", "d/b -rw-r--r-- 2", "d/e drwxr-xr-x", "d/e/f -rw-r--r-- 3", "g -rw-r--r-- 4", "h drwxr-xr-x", "h/i -rw-r--r-- 5", "link -> d"}},
		"through a link, which changes nothing":  {[]entry{file("link/.wh.a", ""), file("link/.wh..wh..opq", "")}, []string{"d drwxr-xr-x", "d/a -rw-r--r-- 1", "d/b -rw-r--r-- 2", "d/e drwxr-xr-x", "d/e/f -rw-r--r-- 3", "g -rw-r--r-- 4", "h drwxr-xr-x", "h/i -rw-r--r-- 5", "link -> d"}},
		"of a link":                              {[]entry{file(".wh.link", "")}, []string{"d drwxr-xr-x", "d/a -rw-r--r-- 1", "d/b -rw-r--r-- 2", "d/e drwxr-xr-x", "d/e/f -rw-r--r-- 3", "g -rw-r--r-- 4", "h drwxr-xr-x", "h/i -rw-r--r-- 5"}},
		"and other kinds under the names": {[]entry{file("d", "file"), dirOf("g"), file("link/x", "through"), symlink("h", "/etc")},
			[]string{"d -rw-r--r-- file", "g drwxr-xr-x", "h -> /etc", "link drwxr-xr-x", "link/x -rw-r--r-- through"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t, nil)
			img := mustPut(t, s, "x", below, tarOf(t, test.above...))
			checkTree(t, rootTree(t, s, img), test.want...)
			layer := tree(t, filepath.Join(s.layer(img.Layers[0]), treeFolder))
			if len(layer) != 9 {
				t.Fatalf("the layer itself: len(layer): got %d, want 9: %v", len(layer), layer)
			}
			if !slices.Contains(layer, "d/a -rw-r--r-- 1") {
				t.Errorf("the layer itself: layer: got %q, want %q among them", layer, "d/a -rw-r--r-- 1")
			}
		})
	}
}

// TestAnUpperFolderSaysWhatItIs has permissions that change from layer to layer.
func TestAnUpperFolderSaysWhatItIs(t *testing.T) {
	s := store(t, nil)
	img := mustPut(t, s, "x", tarOf(t, dirOf("d"), file("d/a", "1")), tarOf(t, dirOf("d").with(func(h *tar.Header) { h.Mode = 0o700 })), tarOf(t, dirOf("./").with(func(h *tar.Header) { h.Mode = 0o711 })))
	checkTree(t, rootTree(t, s, img), "d drwx------", "d/a -rw-r--r-- 1")
	if info, err := os.Stat(filepath.Join(s.root(img.ID), treeFolder)); err != nil {
		t.Errorf("the root: got error %v, want none", err)
	} else if info.Mode().Perm() != 0o711 {
		t.Errorf("the root: info.Mode().Perm(): got %#o, want 0o711", info.Mode().Perm())
	}
}

func TestAnImageInUseStays(t *testing.T) {
	s := store(t, nil)
	img := mustPut(t, s, "x", tarOf(t, file("a", "x")))
	r, release, err := s.Rootfs(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(s.config) // as another process has it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Remove(t.Context(), "x"); fault.KindOf(err) != fault.Conflict {
		t.Errorf("it is removed while it is used: %v", err)
	}
	if _, _, err := s.Rootfs(t.Context(), "x"); err != nil {
		t.Errorf("it cannot be used a second time: %v", err)
	}
	mustPut(t, s, "x", tarOf(t, file("a", "new")))
	switch removed, err := other.Prune(t.Context(), nil); {
	case err != nil:
		t.Errorf("what is in use was pruned: %v", err)
	case len(removed.Images) != 0:
		t.Errorf("what is in use was pruned: removed.Images = %v, want none: %+v", removed.Images, removed)
	case removed.Layers != 0:
		t.Errorf("what is in use was pruned: removed.Layers = %v, want 0: %+v", removed.Layers, removed)
	}
	if got, err := os.ReadFile(filepath.Join(r.Dir, "a")); err != nil {
		t.Error(err)
	} else if string(got) != "x" {
		t.Errorf(`os.ReadFile(filepath.Join(r.Dir, "a")): got %q, want %q`, string(got), "x")
	}
	release()
	release()
	if again, done, err := s.Rootfs(t.Context(), img.ID); err != nil {
		t.Errorf("by its id: got error %v, want none", err)
	} else {
		if again.Dir != r.Dir {
			t.Errorf("its folder by its id: got %s, want %s", again.Dir, r.Dir)
		}
		done()
	}
}

func TestAnImageThatAnotherProcessUsesStays(t *testing.T) {
	s := store(t, nil)
	mustPut(t, s, "x", tarOf(t, file("a", "x")))
	cmd := process(t, "hold", s.config.Dir, "x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatal(line, err)
	}
	if _, err := s.Remove(t.Context(), "x"); fault.KindOf(err) != fault.Conflict {
		t.Errorf("it is removed: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil { // its lock dies with it
		t.Fatal(err)
	}
	_ = cmd.Wait()
	in.Close()
	removed, err := s.Remove(t.Context(), "x")
	switch {
	case err != nil:
		t.Error(err)
	case len(removed.Images) != 1:
		t.Errorf("len(removed.Images) = %d, want 1: %+v", len(removed.Images), removed.Images)
	case removed.Layers != 1:
		t.Errorf("removed.Layers = %v, want 1: %+v", removed.Layers, removed)
	case removed.Bytes == 0:
		t.Errorf("removed.Bytes = %v, want other than 0: %+v", removed.Bytes, removed)
	}
	checkClean(t, s)
}

func TestRemoveAndPrune(t *testing.T) {
	s := store(t, nil)
	base := tarOf(t, file("base", "x"))
	first := mustPut(t, s, "a", base, tarOf(t, file("one", "1")))
	mustPut(t, s, "b", base, tarOf(t, file("one", "1")))
	second := mustPut(t, s, "c", base)
	switch removed, err := s.Remove(t.Context(), "a"); {
	case err != nil:
		t.Errorf("one of two names took: %v", err)
	case len(removed.Images) != 0:
		t.Errorf("one of two names took: removed.Images = %v, want none: %+v", removed.Images, removed)
	case removed.Layers != 0:
		t.Errorf("one of two names took: removed.Layers = %v, want 0: %+v", removed.Layers, removed)
	}
	switch removed, err := s.Remove(t.Context(), "b"); {
	case err != nil:
		t.Errorf("the last name took: %v", err)
	case !slices.Equal(removed.Images, []string{first.ID}):
		t.Errorf("the last name took: removed.Images = %v, want %v: %+v",
			removed.Images, []string{first.ID}, removed)
	case removed.Layers != 1:
		t.Errorf("the last name took: removed.Layers = %v, want 1: %+v", removed.Layers, removed)
	}
	checkTree(t, rootTree(t, s, second), "base -rw-r--r-- x")
	if _, err := s.Remove(t.Context(), "a"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("what is gone is %v", err)
	}
	mustPut(t, s, "c", tarOf(t, file("new", "x"))) // the second has no name now
	switch all, err := s.List(); {
	case err != nil:
		t.Error(err)
	case len(all) != 2:
		t.Errorf("len(all) = %d, want 2: %+v", len(all), all)
	case len(all[1].Names) != 0:
		t.Errorf("all[1].Names = %v, want none: %+v", all[1].Names, all)
	case all[1].ID != second.ID:
		t.Errorf("all[1].ID = %v, want %v: %+v", all[1].ID, second.ID, all)
	}
	keep := func(id string) bool { return id == second.ID }
	if removed, err := s.Prune(t.Context(), keep); err != nil {
		t.Error(err)
	} else if len(removed.Images) != 0 {
		t.Errorf("removed.Images: got %v, want none", removed.Images)
	}
	if err := os.MkdirAll(s.path(tempFolder, "half", "of", "it"), 0o700); err != nil {
		t.Fatal(err)
	}
	switch removed, err := s.Prune(t.Context(), nil); {
	case err != nil:
		t.Error(err)
	case !slices.Equal(removed.Images, []string{second.ID}):
		t.Errorf("removed.Images = %v, want %v: %+v", removed.Images, []string{second.ID}, removed)
	case removed.Layers != 1:
		t.Errorf("removed.Layers = %v, want 1: %+v", removed.Layers, removed)
	}
	if removed, err := s.Remove(t.Context(), second.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("%+v, %v", removed, err)
	}
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("len(all): got %d, want 1: %v", len(all), all)
	}
	if removed, err := s.Remove(t.Context(), all[0].ID); err != nil {
		t.Errorf("by its id: got error %v, want none", err)
	} else if len(removed.Images) != 1 {
		t.Errorf("by its id: len(removed.Images): got %d, want 1: %v", len(removed.Images), removed.Images)
	}
	checkClean(t, s)
}

func TestAnEmptyStore(t *testing.T) {
	s := store(t, nil)
	if all, err := s.List(); err != nil {
		t.Error(err)
	} else if len(all) != 0 {
		t.Errorf("s.List(): got %v, want none", all)
	}
	if r, err := s.Prune(t.Context(), nil); err != nil {
		t.Error(err)
	} else if len(r.Images) != 0 {
		t.Errorf("r.Images: got %v, want none", r.Images)
	}
	if _, err := s.Remove(t.Context(), "x"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(s.config.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("looking made a folder: %v", err)
	}
}

// TestTwoProcessesPullTheSame has each layer fetched once.
func TestTwoProcessesPullTheSame(t *testing.T) {
	reg, s := startRegistry(t), store(t, hasty)
	ref := reg.push(t, "tools:1", twoLayers(t))
	begun, goOn := make(chan struct{}, 4), make(chan struct{})
	reg.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if isBlob(r) {
			select {
			case begun <- struct{}{}:
			default:
			}
			<-goOn
		}
		return false
	})
	var all []*exec.Cmd
	var outs []*strings.Builder
	for range 2 {
		cmd, out := process(t, "pull", s.config.Dir, ref), new(strings.Builder)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all, outs = append(all, cmd), append(outs, out)
	}
	<-begun
	<-begun // both ask for the configuration
	close(goOn)
	for i, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, outs[i])
		}
	}
	if outs[0].String() != outs[1].String() {
		t.Errorf("they have %s and %s", outs[0], outs[1])
	}
	if n := reg.blobs.Load(); n != 4 { // two configurations, two layers
		t.Errorf("%d contents were asked for", n)
	}
	images, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 1 {
		t.Fatalf("len(images): got %d, want 1: %v", len(images), images)
	}
	checkTree(t, rootTree(t, s, images[0]), twoLayersTree...)
}

// TestAPullThatIsKilledLeavesNothingHalf kills a process at each step of a pull, as
// the registry sees them.
func TestAPullThatIsKilledLeavesNothingHalf(t *testing.T) {
	reg, s := startRegistry(t), store(t, hasty)
	ref := reg.push(t, "tools:1", imageWith(t, tarOf(t, many(400, "x")...), tarOf(t, file("b", strings.Repeat("y", 3<<20)))))
	for _, sent := range []int64{0, 1, 2, 3} {
		cmd := process(t, "pull", s.config.Dir, ref)
		var n atomic.Int64 // several contents are asked for at once
		reached := make(chan struct{})
		reg.answers(func(w http.ResponseWriter, r *http.Request) bool {
			if isBlob(r) && n.Add(1) == sent+1 {
				w.Header().Set("Content-Length", "1000000")
				_, _ = w.Write([]byte("\x1f\x8b"))
				w.(http.Flusher).Flush()
				close(reached)
				<-r.Context().Done()
				return true
			}
			return false
		})
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-reached:
			_ = cmd.Process.Kill()
			<-ended
		case <-ended: // it had nothing more to ask for
		}
		images, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, img := range images {
			if len(rootTree(t, s, img)) != 401 {
				t.Errorf("after %d contents there is half an image", sent)
			}
		}
		layers, _ := os.ReadDir(s.path(layersFolder))
		for _, l := range layers {
			if n := len(tree(t, s.path(layersFolder, l.Name(), treeFolder))); n != 400 && n != 1 {
				t.Errorf("after %d contents a layer has %d files", sent, n)
			}
		}
	}
	reg.answers(nil)
	img, err := s.Pull(t.Context(), Request{Reference: ref})
	if err != nil {
		t.Fatalf("at last: got error %v, want none", err)
	}
	if got := len(rootTree(t, s, img)); got != 401 {
		t.Errorf("entries at last: got %d, want 401", got)
	}
	if left, _ := os.ReadDir(s.path(tempFolder)); len(left) != 0 {
		t.Errorf("%d things are left", len(left))
	}
}

func TestAFullDiskTakesNothingAway(t *testing.T) {
	dir := sandboxtest.SmallDisk(t, 4)
	s := store(t, func(c *Config) { c.Dir = filepath.Join(dir, "images") })
	kept := mustPut(t, s, "kept", tarOf(t, file("a", "x")))
	for range 3 {
		_, err := put(t, s, "large", tarOf(t, file("a", strings.Repeat("x", 1<<20))), tarOf(t, file("b", strings.Repeat("y", 5<<20))))
		if fault.KindOf(err) != fault.Exhausted {
			t.Fatalf("got %v, want one of kind %v", err, fault.Exhausted)
		}
		if !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("got error %v, want %q in it", err, "disk is full")
		}
		if !emptyFolder(s.path(tempFolder)) {
			t.Error("something is left")
		}
	}
	checkTree(t, rootTree(t, s, kept), "a -rw-r--r-- x")
	if removed, err := s.Prune(t.Context(), nil); err != nil {
		t.Error(err)
	} else if removed.Layers != 1 {
		t.Errorf("removed.Layers: got %v, want 1", removed.Layers)
	}
	img := mustPut(t, s, "small", tarOf(t, file("a", strings.Repeat("x", 1<<20))))
	if len(rootTree(t, s, img)) != 1 {
		t.Error("it is not there")
	}
}

// TestAReadOnlyRootKeepsTheSharedFiles shows what keeps a box from changing other
// images: its root is mounted read-only, and what it writes goes above it.
func TestAReadOnlyRootKeepsTheSharedFiles(t *testing.T) {
	s := store(t, nil)
	base := tarOf(t, file("a", "shared"), dirOf("d"), file("d/b", "too"))
	one := mustPut(t, s, "one", base, tarOf(t, file("one", "1")))
	two := mustPut(t, s, "two", base, tarOf(t, file("two", "2")))
	before, twoBefore := rootTree(t, s, one), rootTree(t, s, two)
	r, release, err := s.Rootfs(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	box, top := t.TempDir(), t.TempDir()
	err = syscall.Mount("tmpfs", top, "tmpfs", 0, "")
	sandboxtest.Require(t, "mount", err == nil, fmt.Sprintf("nothing can be mounted: %v", err))
	t.Cleanup(func() { _ = syscall.Unmount(top, 0) })
	for _, d := range []string{"up", "work"} {
		if err := os.Mkdir(filepath.Join(top, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mounts := map[string]func() error{
		"read-only": func() error {
			if err := syscall.Mount(r.Dir, box, "", syscall.MS_BIND, ""); err != nil {
				return err
			}
			return syscall.Mount("", box, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
		},
		"with an overlay": func() error {
			return syscall.Mount("overlay", box, "overlay", 0, "lowerdir="+r.Dir+",upperdir="+top+"/up,workdir="+top+"/work")
		},
	}
	for name, mount := range mounts {
		t.Run(name, func(t *testing.T) {
			err := mount()
			sandboxtest.Require(t, "mount", err == nil, fmt.Sprintf("it cannot be mounted: %v", err))
			defer func() {
				if err := syscall.Unmount(box, 0); err != nil {
					t.Error(err)
				}
			}()
			path := filepath.Join(box, "a")
			changes := []error{
				os.WriteFile(path, []byte("changed"), 0o600), os.Truncate(path, 0), os.Chmod(path, 0o777), os.Chown(path, 1, 1),
				os.Rename(filepath.Join(box, "d", "b"), filepath.Join(box, "c")), os.Remove(path), os.WriteFile(filepath.Join(box, "new"), nil, 0o600),
			}
			for i, err := range changes {
				if name == "read-only" && !errors.Is(err, syscall.EROFS) {
					t.Errorf("change %d gives %v", i, err)
				} else if name != "read-only" && err != nil {
					t.Errorf("change %d gives %v", i, err)
				}
			}
			checkTree(t, rootTree(t, s, one), before...)
			checkTree(t, rootTree(t, s, two), twoBefore...)
		})
	}
}
