package skills_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/sandbox/wasm/worker"
	"paddock/internal/skill"
	"paddock/skills"
)

// TestMain lets the test binary be its own worker.
func TestMain(m *testing.M) {
	if worker.Requested(os.Args) {
		os.Exit(worker.Main(os.Args))
	}
	os.Exit(m.Run())
}

// shown makes the folder /skills as programs see it.
func shown(t *testing.T, below string) string {
	t.Helper()
	dir := filepath.Join(below, "skills")
	for _, name := range skills.Names() {
		in := read(t, name)
		for _, file := range in.Skill.Modules() {
			put(t, filepath.Join(dir, filepath.FromSlash(file.Path)), file.Data)
		}
		for _, file := range in.Skill.Folder {
			put(t, filepath.Join(dir, name, filepath.FromSlash(file.Path)), file.Data)
		}
	}
	return dir
}

func read(t *testing.T, name string) *skill.Installed {
	t.Helper()
	sandboxtest.Require(t, "wasm", slices.Contains(skills.Available(), name), "what the skill "+name+" needs was not packed (make skills)")
	folder, err := skills.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	in, err := skill.ReadBuiltin(name, folder, "")
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func put(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEverySkillHoldsToTheFormat(t *testing.T) {
	for _, name := range skills.Names() {
		in := read(t, name)
		if in.Name != name || len(in.Skill.Warnings) > 0 || len(in.Skill.Instructions) > 6000 {
			t.Errorf("%s: it is %s with %d bytes of instructions, %v", name, in.Name, len(in.Skill.Instructions), in.Skill.Warnings)
		}
		if len(in.Manifest.Hosts)+len(in.Manifest.Tools)+len(in.Manifest.Secrets) > 0 {
			t.Errorf("%s wants %+v", name, in.Manifest)
		}
		for _, file := range in.Skill.Folder {
			if strings.Contains(file.Path, "__pycache__") {
				t.Errorf("%s holds %s", name, file.Path)
			}
		}
	}
}

func TestAFolderIsWhatWasWrittenAndWhatWasPacked(t *testing.T) {
	read(t, "documents")
	folder, err := skills.Open("documents")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fs.ReadDir(folder, "lib")
	if err != nil || !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "packages.zip" }) || !slices.IsSortedFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }) {
		t.Errorf("lib has %v, %v", entries, err)
	}
	if _, err := fs.Stat(folder, "none"); err == nil {
		t.Error("there is what is nowhere")
	}
	if _, err := fs.ReadDir(folder, "none"); err == nil {
		t.Error("there is a folder that is nowhere")
	}
	for _, name := range []string{"none", "../skills", "dist", ""} {
		if _, err := skills.Open(name); err == nil {
			t.Errorf("%q is a skill", name)
		}
	}
}

// program is one that is run by itself, in an empty folder.
type program struct {
	name, code string
	check      func(t *testing.T, dir string)
}

// programs are those of testdata, and for each text of a skill the examples in it, one
// after the other, as a reader would try them.
func programs(t *testing.T) (all []program) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.py")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, program{filepath.Base(file), string(code), wellFormed})
	}
	for _, name := range skills.Names() {
		err := skills.Walk(name, func(file string, data []byte) error {
			if path.Ext(file) == ".md" {
				code := examples(string(data))
				if code == "" {
					t.Errorf("%s/%s shows nothing", name, file)
				}
				all = append(all, program{name + "/" + file, code, wellFormed})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// examples are the pieces of Python in a text.
func examples(text string) string {
	var b strings.Builder
	within := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			within = strings.TrimSpace(line) == "```python"
		case within:
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestOnThisMachine runs every program in the CPython of the guest's build, and where
// another one is installed those of testdata in that, too.
func TestOnThisMachine(t *testing.T) {
	interpreters := map[string]string{"built": nativePython(t)}
	if other, err := exec.LookPath("python3"); err == nil && exec.Command(other, "-c", "import sys; sys.exit(sys.version_info < (3, 9))").Run() == nil {
		interpreters["installed"] = other
	}
	root := t.TempDir()
	shown(t, root)
	for kind, python := range interpreters {
		for _, p := range programs(t) {
			if kind == "installed" && path.Ext(p.name) != ".py" {
				continue
			}
			t.Run(kind+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				cmd := exec.CommandContext(t.Context(), python, "-B", "-X", "utf8", "-W", "error::SyntaxWarning", "-c", p.code)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONPATH="+root)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, tail(out))
				}
				p.check(t, dir)
			})
		}
	}
}

func nativePython(t *testing.T) string {
	t.Helper()
	at, err := os.ReadFile(filepath.Join(sandboxtest.BuildCache(t), "out", "python", "native.path"))
	sandboxtest.Require(t, "wasm", err == nil, "the guest was not built on this machine (make guests)")
	return filepath.Join(strings.TrimSpace(string(at)), "bin", "python3.13")
}

func tail(out []byte) string { return string(out[max(0, len(out)-4000):]) }

// guest gives what starts an interpreter with /skills to be read alone, and a
// workspace of its own.
func guest(t *testing.T) (start func(t *testing.T, memory int64) (in sandbox.Instance, dir string)) {
	t.Helper()
	owners := t.TempDir()
	b, err := wasm.New(wasm.Config{CacheDir: sandboxtest.PreparedCache(t), OwnersDir: owners, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	found := b.Probe(t.Context())
	sandboxtest.Require(t, "wasm", found.Available, found.Reason)
	lib := shown(t, filepath.Join(owners, "o"))
	return func(t *testing.T, memory int64) (sandbox.Instance, string) {
		t.Helper()
		dir, err := os.MkdirTemp(filepath.Join(owners, "o"), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil { // whatever the umask says
			t.Fatal(err)
		}
		in, err := b.Start(t.Context(), sandbox.Spec{Owner: "o", Runtime: "python", Dir: "/workspace", Limits: sandbox.Limits{MemoryBytes: memory},
			Mounts: []sandbox.Mount{{Guest: "/workspace", Host: dir, DiskBytes: 64 << 20}, {Guest: "/skills", Host: lib, ReadOnly: true}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close() })
		return in, dir
	}
}

// TestInTheGuest runs every program where models run theirs.
func TestInTheGuest(t *testing.T) {
	start := guest(t)
	for _, p := range programs(t) {
		t.Run(p.name, func(t *testing.T) {
			in, dir := start(t, 256<<20)
			var out bytes.Buffer
			exit, err := in.Run(t.Context(), sandbox.Command{Code: p.code, Stdout: &out, Stderr: &out})
			if err != nil || exit.Error != nil || exit.Code != 0 {
				t.Fatalf("%v, %+v\n%s", err, exit, tail(out.Bytes()))
			}
			t.Logf("%v of processor time, %d MiB", exit.Usage.CPU, exit.Usage.Memory>>20)
			p.check(t, dir)
		})
	}
}

// A PDF of some kilobytes whose text is 400 MiB ends at the limit of memory, and the
// interpreter goes on.
func TestADocumentThatGrowsEndsAtTheLimitOfMemory(t *testing.T) {
	in, _ := guest(t)(t, 128<<20)
	for _, step := range []struct{ code, want string }{
		{`
import zlib
from skills.documents import pdf, to_text
c = zlib.compressobj(9)
text = b"".join([c.compress(b" " * (1 << 20)) for _ in range(400)]) + c.flush()
objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
           b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources << >> /Contents 4 0 R >>",
           b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(text), text)]
data, offsets = b"%PDF-1.7\n", []
for k, o in enumerate(objects, 1):
    offsets.append(len(data))
    data += b"%d 0 obj\n%s\nendobj\n" % (k, o)
at = len(data)
data += b"xref\n0 5\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % o for o in offsets)
data += b"trailer << /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % at
open("bomb.pdf", "wb").write(data)
print(len(data) < 1 << 20)`, "True\n"},
		{"to_text('bomb.pdf')", "MemoryError"},
		{"pdf.from_markdown('# on', 'on.pdf'); print(to_text('on.pdf').split()[0])", "on\n"},
	} {
		var out bytes.Buffer
		exit, err := in.Run(t.Context(), sandbox.Command{Code: step.code, Stdout: &out, Stderr: &out})
		if err != nil || !strings.Contains(out.String(), step.want) {
			t.Errorf("%v, %+v\n%s", err, exit, tail(out.Bytes()))
		}
	}
}

// What `make skills` wrote down is what the skills are: paddock believes it.
func TestTheWrittenDigestsAreThoseOfTheFiles(t *testing.T) {
	for _, name := range skills.Names() {
		in := read(t, name)
		written := skills.Digest(name)
		sandboxtest.Require(t, "wasm", written != "", "no digests were written (make skills)")
		if written != in.Skill.Folder.Digest() {
			t.Errorf("of %s is written %s, and it is %s: make skills", name, written, in.Skill.Folder.Digest())
		}
		if known, err := skills.Open(name); err != nil {
			t.Error(err)
		} else if as, err := skill.ReadBuiltin(name, known, written); err != nil || as.Digest != in.Digest || len(as.Files) != len(in.Files) {
			t.Errorf("as written %s is %+v, %v", name, as, err)
		}
	}
	if got := skills.Digest("none"); got != "" {
		t.Errorf("what is no skill has %s", got)
	}
}
