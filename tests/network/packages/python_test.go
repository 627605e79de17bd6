package packages

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/pkgproxy/pkgproxytest"
	"paddock/tests/paddocktest"
)

// pythons is an index with real packages and simple ones.
func pythons(t *testing.T) *pkgproxytest.Index {
	x := pkgproxytest.NewIndex(t)
	for name, d := range pkgproxytest.Real(t) {
		x.Add(strings.ReplaceAll(name, "_", "-"), d)
	}
	for _, v := range []string{"1.0", "1.5", "2.0"} {
		x.Add("newer", pkgproxytest.Simple(t, "newer", v))
	}
	x.Add("extra", pkgproxytest.Wheel(t, "extra", "1.0", "py3-none-any", []string{"newer==1.5; extra == \"fast\"\nProvides-Extra: fast"}, map[string]string{"extra.py": "", "extra_old/one.py": ""}))
	return x
}

func TestPythonPackagesInWebAssembly(t *testing.T) {
	paddocktest.Require(t, "wasm")
	state := t.TempDir()
	x := pythons(t)
	h := open(t, state, x, nil)
	id := h.create("python", "wasm")
	h.prints(id, "python", "mine = 41\ntry:\n    import newer\nexcept ImportError as e:\n    print('none')\n", "none")
	for _, code := range []string{"import newer", "import requests", "import pip"} {
		h.hints(id, "python", code, "; install_package installs packages")
	}
	if got := h.install(id, "openpyxl>=3").names(); got != "et_xmlfile@2.0.0 openpyxl@3.1.5" {
		t.Errorf("it installs %s", got)
	}
	h.prints(id, "python", "import openpyxl, io\nb = openpyxl.Workbook(); b.active['A1'] = mine + 1; f = io.BytesIO(); b.save(f)\nprint(openpyxl.load_workbook(f).active['A1'].value, openpyxl.__file__.split('/')[2])", "42 .paddock")
	h.prints(id, "python", "import sys; print([m for m in sys.modules if m.split('.')[0] == 'pip'], sorted(n for n in globals() if not n.startswith('_') and n not in ('In', 'Out')))", "[] ['b', 'f', 'io', 'mine', 'openpyxl', 'sys']")
	packages, files := h.info(id)
	switch {
	case !slices.Contains(packages, "openpyxl 3.1.5"):
		t.Errorf(`packages = %v, want "openpyxl 3.1.5" in it`, packages)
	case !slices.Contains(packages, "et_xmlfile 2.0.0"):
		t.Errorf(`packages = %v, want "et_xmlfile 2.0.0" in it`, packages)
	case len(files) != 0:
		t.Errorf("files = %v, want none: %q", files, packages)
	}
	if i := h.install(id, "openpyxl"); !i.AlreadySatisfied {
		t.Errorf("the second time: i.AlreadySatisfied = false, want true: %+v", i)
	} else if len(i.Installed) != 0 {
		t.Errorf("the second time: len(i.Installed) = %d, want none: %+v", len(i.Installed), i.Installed)
	}
	t.Run("versions", func(t *testing.T) {
		h.install(id, "newer==1.0")
		h.prints(id, "python", "import newer; print(newer.version)", "1.0")
		if i := h.install(id, "newer"); !i.AlreadySatisfied {
			t.Errorf("what is there: %+v", i)
		}
		if i := h.install(id, "--upgrade newer<2"); i.names() != "newer@1.5" {
			t.Errorf(`an upgrade: i.names() = %q, want "newer@1.5": %+v`, i.names(), i)
		} else if len(i.Notes) != 1 {
			t.Errorf("an upgrade: len(i.Notes) = %d, want 1: %q", len(i.Notes), i.Notes)
		}
		h.prints(id, "python", "import importlib, importlib.metadata; print(newer.version, importlib.reload(newer).version, importlib.metadata.version('newer'))", "1.0 1.5 1.5")
		packages, _ := h.info(id)
		if !slices.Contains(packages, "newer 1.5") {
			t.Errorf(`there are the packages: packages = %q, want "newer 1.5" in it`, packages)
		} else if slices.Contains(packages, "newer 1.0") {
			t.Errorf(`there are the packages: packages = %q, want no "newer 1.0" in it`, packages)
		}
	})
	t.Run("files of requirements, extras, several lines", func(t *testing.T) {
		other := h.create("python", "wasm")
		h.must("write_file", map[string]any{"session_id": other, "path": "requirements.txt", "content": "# what we need\nextra[fast] >= 1 # and what it needs\n\npypdf==5.4.0\n"}, nil)
		if got := h.install(other, "-r requirements.txt").names(); got != "extra@1.0 newer@1.5 pypdf@5.4.0" {
			t.Errorf("it installs %s", got)
		}
		if got := h.install(other, "et-xmlfile\nopenpyxl==3.1.5").names(); got != "et_xmlfile@2.0.0 openpyxl@3.1.5" {
			t.Errorf("it installs %s", got)
		}
		h.refuses(other, "-r nowhere.txt", "not_found", "nowhere.txt")
		h.refuses(other, "newer==2.0 --hash=sha256:"+pkgproxytest.SumOf(nil), "unavailable")
		right := pkgproxytest.SumOf(x.Projects["newer"][2].Data)
		if got := h.install(other, "newer==2.0 --hash=sha256:"+right).names(); got != "newer@2.0" {
			t.Errorf("it installs %s", got)
		}
	})
	t.Run("forks, checkpoints and later processes have them", func(t *testing.T) {
		var forked struct{ Forks []string }
		h.must("fork_session", map[string]any{"session_id": id}, &forked)
		if len(forked.Forks) != 1 {
			t.Fatalf("%+v", forked)
		}
		h.prints(forked.Forks[0], "python", "import pathlib, openpyxl; print(openpyxl.__version__)", "3.1.5")
		h.must("undo", map[string]any{"session_id": id}, nil)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		later := open(t, state, nil, nil)
		later.prints(id, "python", "import et_xmlfile; print(et_xmlfile.__version__)", "2.0.0")
	})
}

// Attacks 13, 23 and 87.
func TestHostilePythonPackages(t *testing.T) {
	paddocktest.Require(t, "wasm")
	x := pythons(t)
	wheel := func(name string, files map[string]string) pkgproxytest.Distribution {
		return pkgproxytest.Wheel(t, name, "1.0", "py3-none-any", nil, files)
	}
	x.Add("climber", wheel("climber", map[string]string{"climber.py": "", "../../../../../up.py": "x = 1", "/workspace/absolute.py": "x = 1"}))
	x.Add("autorun", wheel("autorun", map[string]string{"autorun.py": "", "autorun.pth": "import os; os.mkdir('/workspace/owned')\n", "sitecustomize.py": "import os; os.mkdir('/workspace/owned')\n"}))
	forged := wheel("forged", map[string]string{"forged.py": "evil = 1"})
	forged.Sum = pkgproxytest.SumOf([]byte("what was promised"))
	x.Add("forged", forged)
	native := wheel("native", map[string]string{"native.py": ""})
	native.Name = "native-1.0-cp313-cp313-manylinux_2_17_x86_64.whl"
	x.Add("native", native)
	sdist := pkgproxytest.Distribution{Name: "built-1.0.tar.gz", Data: pkgproxytest.Tarball(t, pkgproxytest.File{Name: "built-1.0/setup.py", Text: "import os; os.mkdir('/workspace/owned')"}), Uploaded: pkgproxytest.Old}
	x.Add("built", sdist)
	young := wheel("young", map[string]string{"young.py": ""})
	young.Uploaded = time.Now().Add(-time.Hour)
	x.Add("young", young)
	x.Add("requestz", wheel("requestz", map[string]string{"requestz.py": ""}))
	h := open(t, t.TempDir(), x, nil, "PADDOCK_PACKAGES_PYPI_COOLDOWN_DAYS=7", "PADDOCK_PACKAGES_PYPI_ALLOW=climber,autorun,forged,native,built,young,newer")
	id := h.create("python", "wasm")
	h.prints(id, "python", "mine = 1\nopen('kept.txt', 'w').write('kept')", "")
	h.refuses(id, "climber", "unavailable")
	h.refuses(id, "forged", "unavailable")
	h.refuses(id, "native", "unsupported", `isolation "linux"`, "compiled parts")
	h.refuses(id, "built", "unsupported", `isolation "linux"`, "no wheel")
	h.refuses(id, "young", "not_found", "cooldown_days")
	h.refuses(id, "requestz", "denied", "packages.pypi.allow")
	h.refuses(id, "nowhere", "denied")
	h.refuses(id, "newer==9", "not_found", "2.0")
	for _, what := range []string{"--index-url http://127.0.0.1/ newer", "newer @ http://127.0.0.1/newer.whl", "git+https://127.0.0.1/a.git", "./kept.txt", "../x", "newer --target=/tmp"} {
		h.refuses(id, what, "denied")
	}
	h.refuses(id, "", "invalid", "no package")
	packages, files := h.info(id)
	if len(packages) != 0 {
		t.Errorf("there are the packages: len(packages) = %d, want none: %q", len(packages), packages)
	} else if !slices.Equal(files, []string{"kept.txt"}) {
		t.Errorf("there are the packages: files = %q, want %q", files, []string{"kept.txt"})
	}
	h.prints(id, "python", "import os; print(mine, os.path.exists('.paddock/python'))", "1 False")
	h.install(id, "autorun")
	h.prints(id, "python", "import autorun, os; print(os.path.exists('owned'))", "False")
}

// A package of the first index is never taken from the second.
func TestAPackageBelongsToTheFirstIndex(t *testing.T) {
	paddocktest.Require(t, "wasm")
	own, public := pkgproxytest.NewIndex(t), pkgproxytest.NewIndex(t)
	own.Add("house", pkgproxytest.Simple(t, "house", "1.0"))
	public.Add("house", pkgproxytest.Simple(t, "house", "9.0"))
	public.Add("newer", pkgproxytest.Simple(t, "newer", "1.0")).Add("other", pkgproxytest.Simple(t, "other", "1.0"))
	h := open(t, t.TempDir(), nil, nil, "PADDOCK_PACKAGES_PYPI_INDEX="+own.Server.URL+"/simple,"+public.Server.URL+"/simple")
	id := h.create("python", "wasm")
	if got := h.install(id, "house\nnewer").names(); got != "house@1.0 newer@1.0" {
		t.Errorf("it installs %s", got)
	}
	own.Mu.Lock()
	own.Status = 503
	own.Mu.Unlock()
	other := h.create("python", "wasm")
	h.refuses(other, "other", "unavailable")
	public.Mu.Lock()
	defer public.Mu.Unlock()
	for _, r := range public.Asked {
		if strings.Contains(r.URL.Path, "house") {
			t.Errorf(`the second index was asked for: r.URL.Path = %q, want no "house" in it`, r.URL.Path)
		} else if strings.Contains(r.URL.Path, "other") {
			t.Errorf(`the second index was asked for: r.URL.Path = %q, want no "other" in it`, r.URL.Path)
		}
	}
}

func TestWithoutAnIndexNothingIsInstalled(t *testing.T) {
	paddocktest.Require(t, "wasm")
	h := open(t, t.TempDir(), nil, nil)
	h.refuses(h.create("python", "wasm"), "newer", "unsupported", "packages.pypi.index")
	h.refuses(h.create("javascript", "wasm"), "zod", "unsupported", "packages.npm.index")
}

// What is broken off, and what there is no room for, leaves nothing behind.
func TestAnInstallationIsWholeOrNotThere(t *testing.T) {
	paddocktest.Require(t, "wasm")
	x := pkgproxytest.NewIndex(t)
	x.Add("newer", pkgproxytest.Simple(t, "newer", "1.0"))
	big := map[string]string{"big.py": ""}
	for k := range 40 {
		big[fmt.Sprintf("big_data/%d.txt", k)] = strings.Repeat(fmt.Sprint(k), 50_000)
	}
	x.Add("big", pkgproxytest.Wheel(t, "big", "1.0", "py3-none-any", []string{"newer"}, big))
	asked, end := make(chan struct{}), make(chan struct{})
	folder := "/" + rand.Text() // what the cache has of another index that had the same port is not of this one
	never := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, folder+"/simple/never/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		close(asked)
		<-end
	}))
	t.Cleanup(never.Close)
	t.Cleanup(func() { close(end) })
	h := open(t, t.TempDir(), nil, nil, "PADDOCK_PACKAGES_PYPI_INDEX="+never.URL+folder+"/simple,"+x.Server.URL+"/simple", "PADDOCK_SESSIONS_MAX_DISK_MB=2")
	id := h.create("python", "wasm")
	h.prints(id, "python", "mine = 1\nopen('kept.txt', 'w').write('kept')", "")
	ctx, cancel := context.WithCancel(t.Context())
	var broken sync.WaitGroup
	broken.Go(func() {
		if _, err := h.CallTool(ctx, &sdk.CallToolParams{Name: "install_package", Arguments: map[string]any{"session_id": id, "package_name": "newer\nnever"}}); err == nil {
			t.Error("what never comes is installed")
		}
	})
	given := make(chan struct{})
	go func() { broken.Wait(); close(given) }()
	select {
	case <-asked:
	case <-given:
		t.Fatal("it ended before the index was asked")
	}
	cancel()
	<-given
	h.refuses(id, "big", "exhausted", "disk")
	packages, files := h.info(id)
	if len(packages) != 0 {
		t.Errorf("there are the packages: len(packages) = %d, want none: %q", len(packages), packages)
	} else if !slices.Equal(files, []string{"kept.txt"}) {
		t.Errorf("there are the packages: files = %q, want %q", files, []string{"kept.txt"})
	}
	h.prints(id, "python", "import os; print(mine, os.path.exists('.paddock'))", "1 False")
	var twice sync.WaitGroup
	for range 2 {
		twice.Go(func() { h.install(id, "newer") })
	}
	twice.Wait()
	h.prints(id, "python", "import newer; print(mine, newer.version)", "1 1.0")
	if packages, _ := h.info(id); !slices.Equal(packages, []string{"newer 1.0"}) {
		t.Errorf("there are the packages %q", packages)
	}
}
