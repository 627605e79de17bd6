package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"paddock/internal/archive/archivetest"
	"paddock/internal/fault"
)

// testRegistry is a registry on loopback, of which a test may change what it does.
type testRegistry struct {
	host string
	mu   sync.Mutex
	// answer, if not nil, may answer a request; else the registry does.
	answer func(w http.ResponseWriter, r *http.Request) (done bool)
	blobs  atomic.Int64 // how many were asked for
}

// startRegistry starts a registry.
func startRegistry(t testing.TB) *testRegistry {
	t.Helper()
	s := &testRegistry{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/sha256:") && r.Method == http.MethodGet {
			s.blobs.Add(1)
		}
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		if answer == nil || !answer(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

func (s *testRegistry) answers(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// onLayers changes what is answered for contents that are no JSON.
func (s *testRegistry) onLayers(change func(w http.ResponseWriter, data []byte)) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !isBlob(r) || r.Header.Get("X-Inside") != "" {
			return false
		}
		inside, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+s.host+r.URL.Path, nil)
		inside.Header.Set("X-Inside", "1")
		resp, err := http.DefaultClient.Do(inside)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		if bytes.HasPrefix(data, []byte("{")) {
			_, _ = w.Write(data)
		} else {
			change(w, data)
		}
		return true
	}
}

// push puts an image into the registry and gives its reference.
func (s *testRegistry) push(t testing.TB, called string, img v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(s.host + "/" + called)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

// hasty makes a store try again at once.
func hasty(c *Config) {
	c.retry = remote.Backoff{Duration: time.Microsecond, Factor: 1, Steps: 3}
	c.Entries, c.Bytes = 10_000, 64<<20
}

// twoLayers has a whiteout, an opaque folder, and files of both layers.
func twoLayers(t testing.TB) v1.Image {
	return imageWith(t,
		tarOf(t, file("a", "1"), file("b/c", "2"), file("b/d", "3"), dirOf("o"), file("o/old", "4"), symlink("l", "b"), file("f", "5")),
		tarOf(t, file("a", "new"), file("b/.wh.d", ""), file("o/.wh..wh..opq", ""), file("o/new", "6"), file(".wh.f", ""), dirOf("l"), file("l/x", "7")))
}

var twoLayersTree = []string{
	"a -rw-r--r-- new", "b drwxr-xr-x", "b/c -rw-r--r-- 2", "l drwxr-xr-x", "l/x -rw-r--r-- 7", "o drwxr-xr-x", "o/new -rw-r--r-- 6",
}

func isBlob(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
}

func TestAnImageIsPulled(t *testing.T) {
	reg, s := startRegistry(t), store(t, hasty)
	made := twoLayers(t)
	ref := reg.push(t, "team/tools:1", made)
	digest, err := made.Digest()
	if err != nil {
		t.Fatal(err)
	}
	var last Progress
	img, err := s.Pull(t.Context(), Request{Reference: ref, Progress: func(p Progress) { last = p }})
	if err != nil {
		t.Fatal(err, cause(err))
	}
	checkTree(t, rootTree(t, s, img), twoLayersTree...)
	switch {
	case img.Digest != digest.String():
		t.Errorf("img.Digest = %q, want %q", img.Digest, digest.String())
	case !slices.Equal(img.Names, []string{ref}):
		t.Errorf("img.Names = %v, want %v: %+v", img.Names, []string{ref}, img)
	case len(img.Layers) != 2:
		t.Errorf("len(img.Layers) = %d, want 2: %+v", len(img.Layers), img.Layers)
	case img.Entries != 13:
		t.Errorf("img.Entries = %v, want 13: %+v", img.Entries, img)
	}
	switch {
	case last.Done != last.Total:
		t.Errorf("the last progress: last.Done = %v, want %v: %+v", last.Done, last.Total, last)
	case last.Total == 0:
		t.Errorf("the last progress: last.Total = %v, want other than 0: %+v", last.Total, last)
	case last.LayersDone != 2:
		t.Errorf("the last progress: last.LayersDone = %v, want 2: %+v", last.LayersDone, last)
	case last.Layers != 2:
		t.Errorf("the last progress: last.Layers = %v, want 2: %+v", last.Layers, last)
	}
	for _, called := range []string{ref, reg.host + "/team/tools@" + digest.String(), img.ID} {
		r, release, err := s.Rootfs(t.Context(), called)
		if err != nil {
			t.Errorf("%s: %v", called, err)
			continue
		}
		release()
		release()
		switch {
		case r.ID != img.ID:
			t.Errorf("%s: r.ID = %v, want %v: %+v", called, r.ID, img.ID, r)
		case r.Settings.User != "1000:1000":
			t.Errorf(`%s: r.Settings.User = %q, want "1000:1000"`, called, r.Settings.User)
		case r.Settings.WorkingDir != "/w":
			t.Errorf(`%s: r.Settings.WorkingDir = %q, want "/w"`, called, r.Settings.WorkingDir)
		case r.Settings.Env[0] != "A=1":
			t.Errorf(`%s: r.Settings.Env[0] = %q, want "A=1"`, called, r.Settings.Env[0])
		case r.Settings.Labels["l"] != "1":
			t.Errorf(`%s: r.Settings.Labels["l"] = %q, want "1"`, called, r.Settings.Labels["l"])
		}
	}
	_, _, err = s.Rootfs(t.Context(), reg.host+"/team/tools:2")
	switch f := fault.Of(err); {
	case f == nil:
		t.Errorf("another tag is %v: no fault, want one", err)
	case f.Kind != fault.NotFound:
		t.Errorf("another tag is %v: f.Kind = %v, want %v", err, f.Kind, fault.NotFound)
	case !strings.Contains(f.Hint, "paddock image pull "+reg.host+"/team/tools:2"):
		t.Errorf("another tag is %v: f.Hint = %q, want %q in it",
			err, f.Hint, "paddock image pull "+reg.host+"/team/tools:2")
	}
	asked := reg.blobs.Load()
	again, err := s.Pull(t.Context(), Request{Reference: ref})
	if err != nil {
		t.Fatalf("the second time: got error %v, want none", err)
	}
	if again.ID != img.ID {
		t.Errorf("the second time: again.ID: got %v, want %v", again.ID, img.ID)
	}
	if n := reg.blobs.Load() - asked; n > 1 { // the configuration
		t.Errorf("the second pull asked for %d contents", n)
	}
}

func TestADigestPins(t *testing.T) {
	reg, s := startRegistry(t), store(t, hasty)
	old := imageWith(t, tarOf(t, file("a", "old")))
	ref := reg.push(t, "tools:1", old)
	oldDigest, _ := old.Digest()
	reg.push(t, "tools:1", imageWith(t, tarOf(t, file("a", "new"))))
	img, err := s.Pull(t.Context(), Request{Reference: ref, Digest: oldDigest.String()})
	if err != nil {
		t.Fatal(err, cause(err))
	}
	checkTree(t, rootTree(t, s, img), "a -rw-r--r-- old")
	pinned := reg.host + "/tools@" + oldDigest.String()
	switch img, err = s.Pull(t.Context(), Request{Reference: pinned}); {
	case err != nil:
		t.Error(err)
	case !slices.Contains(img.Names, pinned):
		t.Errorf("img.Names = %v, want %q in it", img.Names, pinned)
	case !slices.Contains(img.Names, ref):
		t.Errorf("img.Names = %v, want %q in it", img.Names, ref)
	}
	other := digestPrefix + strings.Repeat("0", 64)
	if _, err := s.Pull(t.Context(), Request{Reference: pinned, Digest: other}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("two digests give %v", err)
	}
	if _, err := s.Pull(t.Context(), Request{Reference: ref, Digest: other}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a digest that is not there gives %v", err)
	}
	reg.answers(func(w http.ResponseWriter, r *http.Request) bool { // the registry lies
		if strings.HasSuffix(r.URL.Path, "/manifests/"+other) {
			http.Redirect(w, r, "/v2/tools/manifests/1", http.StatusFound)
			return true
		}
		return false
	})
	if _, err := s.Pull(t.Context(), Request{Reference: ref, Digest: other}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a registry that lies gives %v: %v", err, cause(err))
	}
}

func TestAnIndexGivesTheImageOfThisMachine(t *testing.T) {
	reg, s := startRegistry(t), store(t, hasty)
	mine, other := imageWith(t, tarOf(t, file("a", "mine"))), imageWith(t, tarOf(t, file("a", "other")))
	c, _ := mine.ConfigFile()
	ref, _ := name.ParseReference(reg.host + "/many:1")
	push := func(adds ...mutate.IndexAddendum) {
		if err := remote.WriteIndex(ref, mutate.AppendManifests(empty.Index, adds...)); err != nil {
			t.Fatal(err)
		}
	}
	foreign := mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}}
	push(foreign, mutate.IndexAddendum{Add: mine, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: c.Architecture}}})
	img, err := s.Pull(t.Context(), Request{Reference: ref.Name()})
	if err != nil {
		t.Fatal(err, cause(err))
	}
	checkTree(t, rootTree(t, s, img), "a -rw-r--r-- mine")
	push(foreign)
	if _, err := s.Pull(t.Context(), Request{Reference: ref.Name()}); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("without one for this machine it is %v: %v", err, cause(err))
	}
}

// misbehaviour is how a registry answers wrongly: its result answers a request, or leaves
// it to the registry.
type misbehaviour func(*testRegistry) func(http.ResponseWriter, *http.Request) bool

func always(f func(http.ResponseWriter, *http.Request) bool) misbehaviour {
	return func(*testRegistry) func(http.ResponseWriter, *http.Request) bool { return f }
}

func onLayers(change func(w http.ResponseWriter, data []byte)) misbehaviour {
	return func(s *testRegistry) func(http.ResponseWriter, *http.Request) bool { return s.onLayers(change) }
}

// onBlobs answers requests for layers and configurations.
func onBlobs(answer http.HandlerFunc) misbehaviour {
	return always(func(w http.ResponseWriter, r *http.Request) bool {
		if isBlob(r) {
			answer(w, r)
		}
		return isBlob(r)
	})
}

func status(code int) misbehaviour {
	return always(func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(code); return true })
}

// changedManifest serves the image's manifest with a change.
func changedManifest(t *testing.T, change func(*v1.Manifest)) misbehaviour {
	m, err := twoLayers(t).Manifest()
	if err != nil {
		t.Fatal(err)
	}
	m = m.DeepCopy()
	change(m)
	return always(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", string(m.MediaType))
			_ = json.NewEncoder(w).Encode(m)
			return true
		}
		return false
	})
}

// wrongAnswer is what a registry does wrong, and what a pull says of it.
type wrongAnswer struct {
	name   string
	answer misbehaviour
	want   fault.Kind
}

func wrongAnswers(t *testing.T) []wrongAnswer {
	var tries atomic.Int64
	manifest := func(change func(*v1.Manifest)) misbehaviour { return changedManifest(t, change) }
	return []wrongAnswer{
		{"a configuration that says it is huge", manifest(func(m *v1.Manifest) { m.Config.Size = maxConfig + 1 }), fault.Invalid},
		{"layers that are somewhere else", manifest(func(m *v1.Manifest) { m.Layers[0].URLs = []string{"https://elsewhere.test/layer"} }), fault.Invalid},
		{"a layer too few", manifest(func(m *v1.Manifest) { m.Layers = m.Layers[:1] }), fault.Invalid},
		{"layers in another order", manifest(func(m *v1.Manifest) { slices.Reverse(m.Layers) }), fault.Invalid},
		{"500 for everything", status(500), fault.Unavailable},
		{"503 for layers", onLayers(func(w http.ResponseWriter, _ []byte) { w.WriteHeader(503) }), fault.Unavailable},
		{"429 for everything", status(429), fault.Unavailable},
		{"403 for everything", status(403), fault.Denied},
		{"404 for layers", onLayers(func(w http.ResponseWriter, _ []byte) { w.WriteHeader(404) }), fault.NotFound},
		{"layers that are cut", onLayers(func(w http.ResponseWriter, data []byte) {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data[:len(data)/2])
		}), fault.Unavailable},
		{"layers that end early without saying so", onLayers(func(w http.ResponseWriter, data []byte) {
			w.(http.Flusher).Flush()
			_, _ = w.Write(data[:len(data)/2])
		}), fault.Invalid},
		{"layers with one byte changed", onLayers(func(w http.ResponseWriter, data []byte) {
			data = bytes.Clone(data)
			data[len(data)-5] ^= 1
			_, _ = w.Write(data)
		}), fault.Invalid},
		{"layers of others", onLayers(func(w http.ResponseWriter, data []byte) {
			_, _ = w.Write(archivetest.Gzip(t, tarOf(t, file("evil", "x"))))
		}), fault.Invalid},
		{"layers that never end", onLayers(func(w http.ResponseWriter, data []byte) {
			w.(http.Flusher).Flush()
			for range 1000 {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}), fault.Invalid},
		{"a manifest that is HTML", always(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				fmt.Fprint(w, "<html>")
				return true
			}
			return false
		}), fault.Invalid},
		{"a configuration of others", onBlobs(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, `{"rootfs":{"diff_ids":[]}}`)
		}), fault.Invalid},
		{"redirects without an end", onBlobs(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"?"+fmt.Sprint(tries.Add(1)), http.StatusFound)
		}), fault.Unavailable},
		{"a redirect to plain http elsewhere", onBlobs(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.test/blob", http.StatusFound)
		}), fault.Denied},
		{"a redirect to where machines keep credentials", onBlobs(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		}), fault.Unavailable},
		{"a token from plain http elsewhere", always(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://elsewhere.test/token"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}), fault.Denied},
	}
}

// TestWhatARegistryMayDoWrong leaves nothing, or whole layers, and says what it is.
func TestWhatARegistryMayDoWrong(t *testing.T) {
	for _, test := range wrongAnswers(t) {
		t.Run(test.name, func(t *testing.T) {
			reg, s := startRegistry(t), store(t, hasty)
			ref := reg.push(t, "tools:1", twoLayers(t))
			reg.answers(test.answer(reg))
			if _, err := s.Pull(t.Context(), Request{Reference: ref}); fault.KindOf(err) != test.want {
				t.Errorf("got %v, want one of kind %v", err, test.want)
			} else if fault.Of(err).Hint == "" {
				t.Error("fault.Of(err).Hint: got none, want one")
			}
			if n := reg.blobs.Load(); n > 0 && strings.Contains(test.name, "huge") {
				t.Errorf("%d contents were asked for", n) // it would be read into memory
			}
			checkClean(t, s)
			reg.answers(nil)
			img, err := s.Pull(t.Context(), Request{Reference: ref})
			if err != nil {
				t.Fatalf("when all is well again it is %v: %v", err, cause(err))
			}
			checkTree(t, rootTree(t, s, img), twoLayersTree...)
		})
	}
}

func TestAConnectionThatBreaksOnceIsTriedAgain(t *testing.T) {
	reg, s := startRegistry(t), store(t, hasty)
	ref := reg.push(t, "tools:1", twoLayers(t))
	var broke atomic.Bool
	reg.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if !isBlob(r) || broke.Swap(true) {
			return false
		}
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write([]byte("short"))
		return true
	})
	// The first content that is asked for is the configuration, which is small.
	if _, err := s.Pull(t.Context(), Request{Reference: ref}); err == nil {
		t.Error("a configuration of another length was taken")
	}
	broke.Store(false)
	reg.answers(reg.onLayers(func(w http.ResponseWriter, data []byte) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if !broke.Swap(true) {
			data = data[:len(data)/2]
		}
		_, _ = w.Write(data)
	}))
	var mu sync.Mutex
	var last Progress
	img, err := s.Pull(t.Context(), Request{Reference: ref, Progress: func(p Progress) { mu.Lock(); last = p; mu.Unlock() }})
	if err != nil {
		t.Fatal(err)
	}
	if !broke.Load() {
		t.Fatal("broke.Load(): got false, want true")
	}
	checkTree(t, rootTree(t, s, img), twoLayersTree...)
	if last.Done != last.Total {
		t.Errorf("at the end it is %+v", last)
	}
}

func TestNothingComesForTooLong(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"not even an answer":          func(http.ResponseWriter) {},
		"an answer, and nothing more": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			reg := startRegistry(t)
			s := store(t, func(c *Config) { hasty(c); c.stall = 50 * time.Millisecond })
			ref := reg.push(t, "tools:1", twoLayers(t))
			reg.answers(func(w http.ResponseWriter, r *http.Request) bool {
				if isBlob(r) {
					begin(w)
					<-r.Context().Done()
				}
				return isBlob(r)
			})
			if _, err := s.Pull(t.Context(), Request{Reference: ref}); fault.Of(err) != errStalled {
				t.Errorf("it is %v: %v", err, cause(err))
			}
			checkClean(t, s)
		})
	}
}

func TestAPullThatIsCancelledLeavesWholeLayersAlone(t *testing.T) {
	reg, s := startRegistry(t), store(t, hasty)
	img := imageWith(t, tarOf(t, file("a", "1")), tarOf(t, file("b", strings.Repeat("2", 1<<20))))
	ref := reg.push(t, "tools:1", img)
	layers, _ := img.Layers()
	second, _ := layers[1].Digest()
	first := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	reg.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if !isBlob(r) || !strings.HasSuffix(r.URL.Path, second.Hex) {
			return false
		}
		<-first
		cancel()
		<-r.Context().Done()
		return true
	})
	var once sync.Once
	_, err := s.Pull(ctx, Request{Reference: ref, Progress: func(p Progress) {
		if p.LayersDone == 1 {
			once.Do(func() { close(first) })
		}
	}})
	if fault.KindOf(err) != fault.Cancelled {
		t.Errorf("it is %v", err)
	}
	left, _ := os.ReadDir(s.path(layersFolder))
	temp, _ := os.ReadDir(s.path(tempFolder))
	if len(left) != 1 {
		t.Errorf("len(left): got %d, want 1: %v", len(left), left)
	}
	if len(temp) != 0 {
		t.Errorf("temp: got %v, want none", temp)
	}
	reg.answers(nil)
	asked := reg.blobs.Load()
	if _, err := s.Pull(t.Context(), Request{Reference: ref}); err != nil {
		t.Errorf("again: got error %v, want none", err)
	}
	if got := reg.blobs.Load() - asked; got != 2 { // the configuration, and one layer
		t.Errorf("contents that were asked for again: got %d, want 2", got)
	}
}

func TestAnArtifactIsNoImage(t *testing.T) {
	reg, s := startRegistry(t), store(t, hasty)
	ref := reg.push(t, "nothing:1", empty.Image)
	if _, err := s.Pull(t.Context(), Request{Reference: ref}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("an image without layers is %v", err)
	}
	checkClean(t, s)
}
