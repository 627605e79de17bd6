package packages

import (
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/pkgproxy/pkgproxytest"
	"paddock/tests/paddocktest"
)

func TestPipInALinuxMachine(t *testing.T) {
	paddocktest.Require(t, "linux")
	h := open(t, t.TempDir(), pythons(t), nil)
	id := h.create("python", "linux")
	h.prints(id, "python", "import subprocess, sys\nmine = 41\nprint(subprocess.run([sys.executable, '-m', 'pip', '--version'], capture_output=True).returncode)", "0")
	if got := h.install(id, "openpyxl>=3\nnewer==1.0").names(); got != "et_xmlfile@2.0.0 newer@1.0 openpyxl@3.1.5" {
		t.Errorf("it installs %s", got)
	}
	h.prints(id, "python", "import openpyxl, newer; print(mine + 1, openpyxl.__version__, newer.version)", "42 3.1.5 1.0")
	if i := h.install(id, "openpyxl"); !i.AlreadySatisfied {
		t.Errorf("the second time: %+v", i)
	}
	if got := h.install(id, "--upgrade newer").names(); got != "newer@2.0" {
		t.Errorf("it upgrades to %s", got)
	}
	packages, files := h.info(id)
	switch {
	case !slices.Contains(packages, "openpyxl 3.1.5"):
		t.Errorf(`packages = %v, want "openpyxl 3.1.5" in it`, packages)
	case !slices.Contains(packages, "newer 2.0"):
		t.Errorf(`packages = %v, want "newer 2.0" in it`, packages)
	case len(files) != 0:
		t.Errorf("files = %v, want none: %q", files, packages)
	}
	h.refuses(id, "nowhere", "not_found")
	h.refuses(id, "newer==9", "not_found")
	h.prints(id, "bash", "pip install -q pypdf==5.4.0 2>&1; python3 -c 'import pypdf; print(pypdf.__version__)'", "5.4.0")
	var forked struct{ Forks []string }
	h.must("fork_session", map[string]any{"session_id": id}, &forked)
	h.prints(forked.Forks[0], "python", "import openpyxl, pypdf; print(openpyxl.__version__)", "3.1.5")
}

// What the host happens to have is not an answer to what a session asks for: pip itself is
// what every host with pip has.
func TestPackagesOfTheHostAreNotTheSessions(t *testing.T) {
	paddocktest.Require(t, "linux")
	x := pkgproxytest.NewIndex(t)
	x.Add("pip", pkgproxytest.Wheel(t, "pip", "0.1", "py3-none-any", nil, map[string]string{"not_the_hosts.py": "mine = 42"}))
	h := open(t, t.TempDir(), x, nil)
	id := h.create("python", "linux")
	h.prints(id, "python", "import importlib.metadata; print(importlib.metadata.version('pip') != '0.1')", "True")
	if got := h.install(id, "pip").names(); got != "pip@0.1" {
		t.Errorf("it installs %s", got)
	}
	h.prints(id, "python", "import importlib.metadata, not_the_hosts; print(importlib.metadata.version('pip'), not_the_hosts.mine)", "0.1 42")
	if i := h.install(id, "pip>=0.1"); !i.AlreadySatisfied {
		t.Errorf("the second time: %+v", i)
	}
}

func TestNPMInALinuxMachine(t *testing.T) {
	paddocktest.Require(t, "linux")
	r := pkgproxytest.NewRegistry(t).WithReal()
	index := pkgproxytest.File{Name: "package/index.js", Text: "exports.version = require('./package.json').version"}
	r.Add(`{"name":"newer","version":"1.0.0"}`, index)
	r.Add(`{"name":"newer","version":"2.0.0"}`, index)
	h := open(t, t.TempDir(), nil, r)
	id := h.create("javascript", "linux")
	h.prints(id, "javascript", "globalThis.mine = 41", "")
	if got := h.install(id, "zod newer@1").names(); !strings.Contains(got, "newer@1.0.0 zod@") {
		t.Errorf("it installs %s", got)
	}
	h.prints(id, "javascript", `import { z } from "zod"; console.log(z.string().parse("a"), require("newer").version, mine + 1)`, "a 1.0.0 42")
	if i := h.install(id, "newer@1"); !i.AlreadySatisfied {
		t.Errorf("the second time: %+v", i)
	}
	packages, files := h.info(id)
	if !slices.Contains(packages, "newer 1.0.0") {
		t.Errorf(`there are the packages %q, want "newer 1.0.0" among them`, packages)
	}
	if slices.ContainsFunc(files, func(f string) bool { return strings.Contains(f, "node_modules") }) {
		t.Errorf("there are the files %q, want none of node_modules", files)
	}
	h.refuses(id, "nowhere", "not_found", "nowhere")
	h.refuses(id, "newer@7", "not_found")
	h.prints(id, "bash", "cd /tmp && mkdir a && cd a && npm install --silent newer@2 >/dev/null && node -p 'require(\"newer\").version'", "2.0.0")
}

// What a hostile index gives is refused by pip or by the front of the index, or stays in
// the machine.
func TestHostilePythonPackagesInALinuxMachine(t *testing.T) {
	paddocktest.Require(t, "linux")
	x := pythons(t)
	wheel := func(name string, files map[string]string) pkgproxytest.Distribution {
		return pkgproxytest.Wheel(t, name, "1.0", "py3-none-any", nil, files)
	}
	x.Add("climber", wheel("climber", map[string]string{"climber.py": "", "../../../../../../../../etc/owned.py": "x = 1"}))
	forged := wheel("forged", map[string]string{"forged.py": "evil = 1"})
	forged.Sum = pkgproxytest.SumOf([]byte("what was promised"))
	x.Add("forged", forged)
	young := wheel("young", map[string]string{"young.py": ""})
	young.Uploaded = time.Now().Add(-time.Hour)
	x.Add("young", young)
	x.Add("requestz", wheel("requestz", map[string]string{"requestz.py": ""}))
	h := open(t, t.TempDir(), x, nil, "PADDOCK_PACKAGES_PYPI_COOLDOWN_DAYS=7", "PADDOCK_PACKAGES_PYPI_ALLOW=climber,forged,young,newer")
	id := h.create("python", "linux")
	h.prints(id, "python", "mine = 1\nopen('kept.txt', 'w').write('kept')", "")
	h.refuses(id, "climber", "unavailable")
	h.refuses(id, "forged", "unavailable")
	h.refuses(id, "young", "not_found")
	h.refuses(id, "requestz", "denied", "packages.pypi.allow")
	for _, what := range []string{"--index-url http://127.0.0.1/ newer", "newer @ http://127.0.0.1/newer.whl", "git+https://127.0.0.1/a.git", "newer --target=/etc"} {
		h.refuses(id, what, "denied")
	}
	packages, files := h.info(id)
	if len(packages) != 0 {
		t.Errorf("there are the packages: len(packages) = %d, want none: %q", len(packages), packages)
	} else if !slices.Equal(files, []string{"kept.txt"}) {
		t.Errorf("there are the packages: files = %q, want %q", files, []string{"kept.txt"})
	}
	h.install(id, "newer==1.0")
	h.prints(id, "python", "import newer, os; print(mine, newer.version, os.path.exists('/etc/owned.py'))", "1 1.0 False")
}
