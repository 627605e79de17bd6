package pkgproxy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox/sandboxtest"
)

// install gives what is installed for some wishes, or the error's message and hint.
func install(t testing.TB, r *registry, wanted ...string) ([]string, *pkgproxy.Scripts, *fault.Error) {
	t.Helper()
	made, err := npmOf(t, r).JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: wanted})
	if err != nil {
		return nil, nil, fault.Of(err)
	}
	return names(made.Installed), made, nil
}

var index0 = file{Name: "package/index.js", Text: "export default 1"}

func TestVersionsAreChosenAsNpmDoes(t *testing.T) {
	r := newRegistry(t)
	for _, v := range []string{"1.0.0", "1.2.0", "1.3.0-beta.1", "2.0.0"} {
		r.Add(`{"name":"a","version":"`+v+`"}`, index0)
	}
	r.Add(`{"name":"a","version":"1.2.5","deprecated":"broken"}`, index0)
	r.Tags["a"] = map[string]string{"latest": "1.2.0", "next": "1.3.0-beta.1", "gone": "9.9.9"}
	for _, m := range []string{
		`{"name":"wants-old","version":"1.0.0","dependencies":{"a":"^1.0.0"}}`,
		`{"name":"wants-new","version":"1.0.0","dependencies":{"a":"^2.0.0"}}`,
		`{"name":"aliased","version":"1.0.0","dependencies":{"b":"npm:a@2"}}`,
		`{"name":"optional","version":"1.0.0","optionalDependencies":{"nowhere":"1","a":"1.0.0"},"dependencies":{"nowhere":"1"}}`,
		`{"name":"git","version":"1.0.0","dependencies":{"a":"git+ssh://git@127.0.0.1/a.git"}}`,
		`{"name":"url","version":"1.0.0","dependencies":{"a":"http://127.0.0.1/a.tgz"}}`,
		`{"name":"path","version":"1.0.0","dependencies":{"a":"file:../../etc"}}`,
		`{"name":"short","version":"1.0.0","dependencies":{"a":"owner/repo"}}`,
		`{"name":"lost","version":"1.0.0","dependencies":{"nowhere":"1"}}`,
		`{"name":"evil","version":"1.0.0","dependencies":{"../../etc":"1"}}`,
		`{"name":"plugin","version":"1.0.0","peerDependencies":{"a":"^1.0.0"}}`,
		`{"name":"maybe","version":"1.0.0","peerDependencies":{"a":"^1.0.0"},"peerDependenciesMeta":{"a":{"optional":true}}}`,
		`{"name":"wide","version":"1.0.0","dependencies":{"a":">=1"}}`,
		`{"name":"linux-only","version":"1.0.0","os":["linux"],"cpu":"x64"}`,
		`{"name":"with-parts","version":"1.0.0","optionalDependencies":{"linux-only":"1"}}`,
		`{"name":"x","version":"1.0.0","dependencies":{"y":"1"}}`, `{"name":"y","version":"1.0.0","dependencies":{"x":"1"}}`,
	} {
		r.Add(m, index0)
	}
	for wanted, want := range map[string]string{
		"a": "a@1.2.0", "a@^1": "a@1.2.0", "a@>1.2": "a@2.0.0", "a@next": "a@1.3.0-beta.1", "a@1.2.5": "a@1.2.5", "a@1.2.x": "a@1.2.0", "a@^1.3.0-beta": "a@1.3.0-beta.1",
		"wants-old": "a@1.2.0 wants-old@1.0.0", "wants-new wants-old": "a@1.2.0 a@2.0.0 wants-new@1.0.0 wants-old@1.0.0", "aliased": "a@2.0.0 aliased@1.0.0",
		"optional": "a@1.0.0 optional@1.0.0", "plugin": "a@1.2.0 plugin@1.0.0", "maybe": "maybe@1.0.0", "with-parts": "with-parts@1.0.0", "x": "x@1.0.0 y@1.0.0",
		"wide plugin": "a@1.2.0 plugin@1.0.0 wide@1.0.0", "a@2 plugin": "", "a@gone": "", "a@7": "", "git": "", "url": "", "path": "", "short": "", "lost": "", "evil": "", "linux-only": "",
	} {
		got, _, err := install(t, r, strings.Fields(wanted)...)
		switch {
		case strings.Join(got, " ") != want:
			t.Errorf("%s: got = %q, want %q", wanted, strings.Join(got, " "), want)
		case (want == "") != (err != nil):
			t.Errorf(`%s: want == "" = %v, want %v: %v, %v`, wanted, want == "", err != nil, got, err)
		case fault.KindOf(errOf(err)) == fault.Internal:
			t.Errorf("%s: error %v, want other than kind %v", wanted, errOf(err), fault.Internal)
		}
	}
}

func errOf(f *fault.Error) error {
	if f == nil {
		return nil
	}
	return f
}

// What npm itself decides for real packages is the measure.
func TestTheTreeIsNpms(t *testing.T) {
	npm, err := exec.LookPath("npm")
	sandboxtest.Require(t, "node", err == nil, "npm is not installed")
	r := newRegistry(t).WithReal()
	front := httptest.NewServer(npmOf(t, r).Handler(""))
	defer front.Close()
	wanted := []string{"ajv-formats", "react-reconciler", "qs", "jszip", "minimatch", "express", "pino", "hono"}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), npm, append([]string{"install", "--ignore-scripts", "--cache", t.TempDir()}, wanted...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "npm_config_userconfig=" + filepath.Join(dir, "user"), "npm_config_globalconfig=" + filepath.Join(dir, "global")}
	for name, value := range pkgproxy.Environment(front.URL) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, Resolved string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	var want []string
	for at, p := range lock.Packages {
		if at != "" {
			want = append(want, at+"@"+p.Version)
		}
	}
	slices.Sort(want)
	got, err := npmOf(t, r).TreeOf(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the tree is\n%s\nand npm's\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(want) < 80 {
		t.Errorf("npm installed %d packages", len(want))
	}
}

// No file of a tarball gets out of the package's folder, and none is anything else
// than a file.
func TestHostileTarballs(t *testing.T) {
	manifest := file{Name: "package/package.json", Text: `{"name":"evil","version":"1.0.0"}`}
	outside := t.TempDir()
	for name, entries := range map[string][]file{
		"up":              {manifest, {Name: "package/../../../x.js", Text: "x"}},
		"absolute":        {manifest, {Name: outside + "/x.js", Text: "x"}},
		"backslashes":     {manifest, {Name: `package\..\..\x.js`, Text: "x"}},
		"a drive":         {manifest, {Name: `package/C:/x.js`, Text: "x"}},
		"a symlink":       {manifest, {Name: "package/l", Kind: tar.TypeSymlink, Link: outside}, {Name: "package/l/x.js", Text: "x"}},
		"a hard link":     {manifest, {Name: "package/l", Kind: tar.TypeLink, Link: "/etc/passwd"}},
		"a device":        {manifest, {Name: "package/d", Kind: tar.TypeChar}},
		"a pipe":          {manifest, {Name: "package/p", Kind: tar.TypeFifo}},
		"a file as a dir": {manifest, {Name: "package/f", Text: "x"}, {Name: "package/f/g", Text: "x"}},
	} {
		r := newRegistry(t)
		r.Publish(manifest.Text, "evil", "1.0.0", tarball(t, entries...))
		if _, _, err := install(t, r, "evil"); err == nil {
			t.Errorf("%s: got no error, want one", name)
		} else if err.Kind != fault.Denied {
			t.Errorf("%s: err.Kind: got %v, want %v", name, err.Kind, fault.Denied)
		}
	}
	if list, err := os.ReadDir(outside); err != nil {
		t.Errorf("outside: got error %v, want none", err)
	} else if len(list) > 0 {
		t.Errorf("outside: got %v, want none", list)
	}
	r := newRegistry(t)
	r.Publish(manifest.Text, "evil", "1.0.0", bomb(t, manifest, 200))
	if _, _, err := install(t, r, "evil"); err == nil {
		t.Error("a bomb: got no error, want one")
	} else if err.Kind != fault.Exhausted {
		t.Errorf("a bomb: err.Kind: got %v, want %v", err.Kind, fault.Exhausted)
	}
	r = newRegistry(t)
	r.Publish(manifest.Text, "evil", "1.0.0", []byte("no archive"))
	if _, _, err := install(t, r, "evil"); err == nil {
		t.Error("no archive: got no error, want one")
	} else if err.Kind != fault.Denied {
		t.Errorf("no archive: err.Kind: got %v, want %v", err.Kind, fault.Denied)
	}
	r = newRegistry(t)
	r.Publish(`{"name":"evil","version":"1.0.0","dist":{"tarball":"`+r.Server.URL+`/files/evil-1.0.0.tgz","integrity":"sha512-`+strings.Repeat("A", 86)+`=="}}`, "evil", "1.0.0", tarball(t, manifest))
	switch _, _, err := install(t, r, "evil"); {
	case err == nil:
		t.Error("another digest: no error, want one")
	case err.Kind != fault.Denied:
		t.Errorf("another digest: err.Kind = %v, want %v", err.Kind, fault.Denied)
	case !strings.Contains(err.Message, "sha512"):
		t.Errorf(`another digest: err.Message = %q, want "sha512" in it`, err.Message)
	}
}

// bomb is a tarball with a file of so many MiB of zeros, each a part that gzip packed by
// itself: packing them one after the other takes the race detector longer than all else.
func bomb(t *testing.T, manifest file, size int) []byte {
	t.Helper()
	pack := func(text []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	for _, h := range []*tar.Header{{Name: manifest.Name, Size: int64(len(manifest.Text)), Mode: 0o644}, {Name: "package/z.js", Size: int64(size) << 20, Mode: 0o644}} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Name == manifest.Name {
			if _, err := w.Write([]byte(manifest.Text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := append(pack(head.Bytes()), bytes.Repeat(pack(make([]byte, 1<<20)), size)...)
	return append(all, pack(make([]byte, 1024))...)
}

// The bundler reads no file of the host, whatever a package imports or names as its own.
func TestPackagesReadNothingOfTheHost(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"k":"sEcReT"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20)
	for name, files := range map[string][]file{
		"an import":     {{Name: "package/index.js", Text: `export * from "` + secret + `"; import x from "` + up + secret[1:] + `"; export default x`}},
		"a require":     {{Name: "package/index.js", Text: `module.exports = require("` + up + secret[1:] + `")`}},
		"an URL":        {{Name: "package/index.js", Text: `import x from "file://` + secret + `"; export default x`}},
		"a main":        {{Name: "package/package.json", Text: `{"name":"evil","version":"1.0.0","main":"` + up + secret[1:] + `"}`}},
		"exports":       {{Name: "package/package.json", Text: `{"name":"evil","version":"1.0.0","exports":{".":"./` + up + secret[1:] + `","./x":"./` + up + secret[1:] + `"}}`}},
		"a browser map": {{Name: "package/package.json", Text: `{"name":"evil","version":"1.0.0","browser":{"./index.js":"` + up + secret[1:] + `"}}`}, {Name: "package/index.js", Text: `import "http"`}},
		"a tsconfig":    {{Name: "package/tsconfig.json", Text: `{"extends":"` + secret + `"}`}, {Name: "package/index.ts", Text: "export default 1"}},
		"a source map":  {{Name: "package/index.js", Text: "export default 1\n//# sourceMappingURL=" + secret}},
	} {
		r := newRegistry(t)
		if files[0].Name != "package/package.json" {
			files = append([]file{{Name: "package/package.json", Text: `{"name":"evil","version":"1.0.0"}`}}, files...)
		}
		r.Publish(`{"name":"evil","version":"1.0.0"}`, "evil", "1.0.0", tarball(t, files...))
		_, made, err := install(t, r, "evil")
		if err != nil && (err.Kind == fault.Internal || strings.Contains(err.Message, "sEcReT")) {
			t.Errorf("%s: %v", name, err)
		}
		if made == nil {
			continue
		}
		for file, text := range made.Files {
			if strings.Contains(string(text), "sEcReT") {
				t.Errorf("%s: it is in %s", name, file)
			}
		}
	}
}

func TestScriptsOfPackagesAreNotRun(t *testing.T) {
	flag := filepath.Join(t.TempDir(), "flag")
	r := newRegistry(t)
	r.Add(`{"name":"s","version":"1.0.0","scripts":{"preinstall":"touch `+flag+`","install":"touch `+flag+`","postinstall":"touch `+flag+`","prepare":"touch `+flag+`"}}`, index0)
	_, made, err := install(t, r, "s")
	switch {
	case err != nil:
		t.Error(err)
	case len(made.Notes) != 1:
		t.Errorf("len(made.Notes) = %d, want 1: %+v", len(made.Notes), made.Notes)
	case !strings.Contains(made.Notes[0], "they were not run"):
		t.Errorf(`made.Notes[0] = %q, want "they were not run" in it`, made.Notes[0])
	}
	if _, err := os.Stat(flag); err == nil {
		t.Error("one was run")
	}
}

// What is there stays as it is until somebody asks for more, and a record that a guest
// wrote can only wish.
func TestInstallingAgain(t *testing.T) {
	r := newRegistry(t)
	r.Add(`{"name":"a","version":"1.0.0"}`, index0)
	p := npmOf(t, r)
	made, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	have := made.Files[pkgproxy.ModulesRecord]
	again, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"a"}, Record: have})
	if err != nil {
		t.Fatalf("again: got error %v, want none", err)
	}
	if !again.Already {
		t.Error("again: again.Already: got false, want true")
	}
	r.Add(`{"name":"a","version":"1.1.0"}`, index0)
	r.Add(`{"name":"b","version":"1.0.0","dependencies":{"a":"^1"}}`, index0)
	p = npmOf(t, r)
	for _, step := range []struct {
		upgrade bool
		want    string
	}{{false, "a@1.0.0 b@1.0.0"}, {true, "a@1.1.0 b@1.0.0"}} {
		made, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"b"}, Record: have, Upgrade: step.upgrade})
		switch {
		case err != nil:
			t.Errorf("upgrade: %v", err)
		case strings.Join(names(made.Installed), " ") != step.want:
			t.Errorf("upgrade: names(made.Installed) = %q, want %q",
				strings.Join(names(made.Installed), " "), step.want)
		case packOf(made, "a") == nil:
			t.Errorf(`upgrade: packOf(made, "a") is nil, want an error: %v, %v`,
				step.upgrade, names(made.Installed))
		}
	}
	for _, text := range []string{"", "{", `{"wanted":{"../x":"1","c":"git+ssh://x"},"locked":{"a":"../../x"}}`, `[]`, strings.Repeat("[", 1<<20)} {
		if _, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"a"}, Record: []byte(text)}); err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("%.50s: %v", text, err)
		}
	}
}

func TestNamesThatAreNone(t *testing.T) {
	for _, text := range []string{"", "../x", "/etc", "-g", "--registry=x", "http://x/y.tgz", "git+ssh://x", "a/b", "file:x", "@a", "@a/", "a@npm:b", "a@file:x", "a@../x", "a b", "node_modules", ".hidden", strings.Repeat("a", 300), "a\x00", "fs", "node:fs"} {
		switch _, _, err := install(t, newRegistry(t), text); {
		case err == nil:
			t.Errorf("%q: no error, want one", text)
		case err.Kind == fault.Internal:
			t.Errorf("%q: err.Kind = %v, want other than %v", text, err.Kind, fault.Internal)
		case err.Kind == fault.NotFound:
			t.Errorf("%q: err.Kind = %v, want other than %v", text, err.Kind, fault.NotFound)
		}
	}
}

// The front's own paths, both forms of a description, cool-down and digests.
func TestTheFrontOfNpm(t *testing.T) {
	now := old.AddDate(1, 0, 0)
	r := newRegistry(t)
	r.Add(`{"name":"@s/p","version":"1.0.0","scripts":{"postinstall":"x"},"readme":"long","dependencies":{"q":"1"}}`, index0)
	r.Add(`{"name":"@s/p","version":"2.0.0"}`, index0)
	r.Times["@s/p@2.0.0"] = now.Add(-time.Hour).Format(time.RFC3339)
	p := open(t, pkgproxy.Config{Now: func() time.Time { return now }, NPM: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: r.Server.URL + "/"}}, Allow: []string{"@s/*"}, Cooldown: 24 * time.Hour}})
	front := httptest.NewServer(p.Handler(""))
	defer front.Close()
	for _, at := range []string{"/npm/@s%2fp", "/npm/@s/p"} {
		long, short := get(t, front.URL+at), get(t, front.URL+at, "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*")
		switch {
		case !strings.Contains(long.body, `"readme"`):
			t.Errorf("long.body = %q, want %q in it", long.body, `"readme"`)
		case strings.Contains(short.body, `"readme"`):
			t.Errorf("short.body = %q, want no %q in it", short.body, `"readme"`)
		case !strings.Contains(short.body, `"hasInstallScript":true`):
			t.Errorf("short.body = %q, want %q in it", short.body, `"hasInstallScript":true`)
		}
		for _, a := range []answer{long, short} {
			switch {
			case strings.Contains(a.body, "2.0.0"):
				t.Errorf(`a.body = %q, want no "2.0.0" in it`, a.body)
			case !strings.Contains(a.body, `"latest":"1.0.0"`):
				t.Errorf("a.body = %q, want %q in it", a.body, `"latest":"1.0.0"`)
			case strings.Contains(a.body, r.Server.URL):
				t.Errorf("a.body = %q, want no %q in it", a.body, r.Server.URL)
			case !strings.Contains(a.body, front.URL+"/npm/@s/p/-/p-1.0.0.tgz"):
				t.Errorf("a.body = %q, want %q in it", a.body, front.URL+"/npm/@s/p/-/p-1.0.0.tgz")
			}
		}
	}
	for at, status := range map[string]int{"/npm/@s/p/-/p-1.0.0.tgz": 200, "/npm/@s%2fp/-/p-1.0.0.tgz": 200, "/npm/@s/p/-/p-2.0.0.tgz": 404, "/npm/@s/p/latest": 200, "/npm/@s/p/2.0.0": 404, "/npm/q": 403,
		"/npm/-/v1/search": 404, "/npm/-/npm/v1/security/audits": 404, "/npm/": 400, "/npm/@s/none": 404, "/npm/@s/..%2f..": 400, "/npm/-/ping": 200} {
		if a := get(t, front.URL+at); a.status != status {
			t.Errorf("%s: %d and not %d: %s", at, a.status, status, a.body)
		}
	}
	if n := r.Count("/q"); n > 0 {
		t.Errorf("the registry was asked for what is not allowed, %d times", n)
	}
	if a := get(t, front.URL+"/npm/@s/p/-/p-1.0.0.tgz"); a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf(`a.header.Get("X-Content-Type-Options"): got %q, want %q`,
			a.header.Get("X-Content-Type-Options"), "nosniff")
	} else if http.DetectContentType([]byte(a.body)) != "application/x-gzip" {
		t.Errorf("http.DetectContentType([]byte(a.body)): got %q, want %q",
			http.DetectContentType([]byte(a.body)), "application/x-gzip")
	}
}

// Without any network a folder of tarballs will do.
func TestAFolderIsARegistry(t *testing.T) {
	dir := t.TempDir()
	for name, m := range map[string]string{"s-p-1.0.0.tgz": `{"name":"@s/p","version":"1.0.0","dependencies":{"q":"^1"}}`, "q-1.2.0.tgz": `{"name":"q","version":"1.2.0"}`, "q-9.tgz": "none"} {
		if err := os.WriteFile(filepath.Join(dir, name), tarball(t, file{Name: "package/package.json", Text: m}, index0), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, pkgproxy.Config{NPM: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: dir}}, Allow: []string{"*"}}})
	made, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"@s/p"}})
	if err != nil {
		t.Fatal(err)
	}
	if !has(made.Installed, "@s/p@1.0.0", "q@1.2.0") {
		t.Errorf("got %v, want @s/p@1.0.0 and q@1.2.0 in it", made.Installed)
	}
}

// What is unpacked is what the registry names, also where the cache was written to so that
// nothing shows it.
func TestAChangedFileOfTheCacheIsNotInstalled(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t)
	r.Add(`{"name":"a","version":"1.0.0"}`, index0)
	p := open(t, pkgproxy.Config{Dir: dir, NPM: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: r.Server.URL}}, Allow: []string{"*"}}})
	wanted := pkgproxy.ScriptInstall{Wanted: []string{"a"}}
	if _, err := p.JavaScript(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "files", "sha512-*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 1 {
		t.Fatalf("len(kept): got %d, want 1: %v", len(kept), kept)
	}
	info, err := os.Stat(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "builds")); err != nil { // what was made of it before needs it no more
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "builds"), 0o700); err != nil {
		t.Fatal(err)
	}
	data[4]++ // gzip's time: what it unpacks to is the same
	if err := errors.Join(os.WriteFile(kept[0], data, 0o600), os.Chtimes(kept[0], info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	if _, err := p.JavaScript(t.Context(), wanted); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a changed file: got %v, want one of kind %v", err, fault.Unavailable)
	} else if !strings.Contains(err.Error(), "changed on the disk") {
		t.Errorf("a changed file: got error %v, want %q in it", err, "changed on the disk")
	}
	if _, err := p.JavaScript(t.Context(), wanted); err != nil {
		t.Errorf("after that: %v", err)
	}
}
