package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/jsonschema-go/jsonschema"
)

// TestMain lets the test binary be the program that is packed.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "completion":
		fmt.Println("# for", os.Args[2])
		os.Exit(0)
	case len(os.Args) == 4 && os.Args[1] == "man":
		if err := os.WriteFile(filepath.Join(os.Args[3], "paddock.1"), []byte(".TH PADDOCK 1\n"), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "paddock-packed-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// shared is the folder of what tests share.
var shared string

// packed packs the test binary for the platform that it was built for.
func packed(t *testing.T, args ...string) (dir string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	args = append([]string{"-source", "../..", "-out", dir, "-version", "1.2.3"}, args...)
	return dir, run(t.Context(), append(args, fmt.Sprintf("%s-%s=%s", runtime.GOOS, runtime.GOARCH, self)))
}

// pack gives a release that all tests read, and packs it first.
func pack(t *testing.T) string {
	t.Helper()
	to := filepath.Join(shared, "release")
	if _, err := os.Stat(to); err == nil {
		return to
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir, err := packed(t)
	if err == nil {
		err = os.Rename(dir, to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func read(t *testing.T, name ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(name...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// only is the file of a folder that a pattern names.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s names %q (%v), want one file", pattern, found, err)
	}
	return found[0]
}

func TestTheSameBinaryGivesTheSameFiles(t *testing.T) {
	one := pack(t)
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	two, err := packed(t)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(one)
	if err != nil || len(entries) < 8 {
		t.Fatalf("there are %d files (%v)", len(entries), err)
	}
	for _, e := range entries {
		if !bytes.Equal(read(t, one, e.Name()), read(t, two, e.Name())) {
			t.Errorf("%s differs from one packing to the next", e.Name())
		}
	}
}

func TestTheChecksumsAreThoseOfAllFiles(t *testing.T) {
	dir := pack(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	sums := string(read(t, dir, "SHA256SUMS"))
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(read(t, dir, e.Name())), e.Name()); !strings.Contains(sums, line) {
			t.Errorf("%q is not in\n%s", line, sums)
		}
	}
	if got, want := strings.Count(sums, "\n"), len(entries)-1; got != want {
		t.Errorf("there are %d sums of %d files", got, want)
	}
}

func TestAListNamesWhatIsInTheBinary(t *testing.T) {
	var list cdx.BOM
	if err := json.Unmarshal(read(t, only(t, pack(t), "*.cdx.json")), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range *list.Components {
		names = append(names, c.Name)
		if c.Version == "" || c.PackageURL == "" {
			t.Errorf("%s has the version %q and the address %q", c.Name, c.Version, c.PackageURL)
		}
	}
	for _, want := range []string{"std", "github.com/klauspost/compress", "python3.13", "quickjs-wasi", "@jridgewell/trace-mapping", "pypdf"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %q", want, names)
		}
	}
}

// The list has to be what CycloneDX's own schema calls one.
func TestAListFitsItsSchema(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	schemas := filepath.Join(strings.TrimSpace(string(out)), "schema")
	files := map[string]string{"bom-1.6.schema.json": "", "spdx.schema.json": "", "jsf-0.82.schema.json": "jsf-0.82.schemax.json"}
	load := func(at *url.URL) (*jsonschema.Schema, error) {
		name := path.Base(at.Path)
		file, ok := files[name]
		if !ok {
			return nil, fmt.Errorf("there is no schema %s", at)
		}
		var s jsonschema.Schema
		return &s, json.Unmarshal(read(t, schemas, cmp.Or(file, name)), &s)
	}
	schema, err := load(&url.URL{Path: "bom-1.6.schema.json"})
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{Loader: load})
	if err != nil {
		t.Fatal(err)
	}
	var list any
	if err := json.Unmarshal(read(t, only(t, pack(t), "*.cdx.json")), &list); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(list); err != nil {
		t.Error(err)
	}
	list.(map[string]any)["components"].([]any)[0].(map[string]any)["type"] = "nothing"
	if err := resolved.Validate(list); err == nil {
		t.Error("the schema takes any list")
	}
}

func TestAWheelRecordsItsFiles(t *testing.T) {
	archive, err := zip.OpenReader(only(t, pack(t), "*.whl"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	record, err := archive.Open("paddock_sandbox-1.2.3.dist-info/RECORD")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(record).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(archive.File) {
		t.Errorf("%d files are recorded of %d", len(rows), len(archive.File))
	}
	for _, row := range rows {
		content, err := fs.ReadFile(archive, row[0])
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		if want := "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]); row[1] != want && !strings.HasSuffix(row[0], "/RECORD") {
			t.Errorf("%s is recorded with %q, want %q", row[0], row[1], want)
		}
	}
}

func TestCompletionsAndManualPagesAreInTheArchive(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the archive is a zip")
	}
	packed := bytes.NewReader(read(t, only(t, pack(t), "paddock-1.2.3-*.tar.gz")))
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if dir, name, _ := strings.Cut(strings.SplitN(h.Name, "/", 2)[1], "/"); dir == "completions" || dir == "man" {
			names = append(names, name)
		}
	}
	if want := []string{"_paddock", "paddock.bash", "paddock.fish", "paddock.ps1", "man1/paddock.1"}; !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
}

func TestAVersionIsWrittenAsEachKindOfPackageWants(t *testing.T) {
	for text, want := range map[string]version{
		"1.2.3":             {"1.2.3", "1.2.3", "1.2.3"},
		"1.2.3-rc.1":        {"1.2.3-rc.1", "1.2.3rc1", "1.2.3~rc.1"},
		"0.0.0-gabc1-dirty": {"0.0.0-gabc1-dirty", "0.0.0.dev0+gabc1.dirty", "0.0.0~gabc1.dirty"},
		"1.2.3-4-gabc":      {"1.2.3-4-gabc", "1.2.3.dev0+4.gabc", "1.2.3~4.gabc"},
		"1.2":               {}, "v1.2.3": {}, "": {}, "1.2.3+b": {}, "1.2.3/../x": {},
	} {
		got, err := readVersion(text)
		if got != want || (err == nil) != (want != version{}) {
			t.Errorf("%q is read as %+v (%v), want %+v", text, got, err, want)
		}
	}
}

func TestAReleaseThatCannotBePublishedIsRefused(t *testing.T) {
	for about, c := range map[string]struct {
		env, value string
		args       []string
		want       string
	}{
		"a time that is missing":                 {"SOURCE_DATE_EPOCH", "", nil, "SOURCE_DATE_EPOCH is \"\""},
		"a version that is none":                 {"SOURCE_DATE_EPOCH", "1", []string{"-version", "one"}, "want a semantic version"},
		"a platform that is not known":           {"SOURCE_DATE_EPOCH", "1", []string{"plan9-amd64=x"}, "the platform \"plan9-amd64\" is not known"},
		"a name that the registry does not take": {"PADDOCK_REGISTRY_NAME", "paddock", nil, "does not fit the registry's schema"},
	} {
		t.Run(about, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
			t.Setenv(c.env, c.value)
			if _, err := packed(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it says %v, want %q", err, c.want)
			}
		})
	}
	t.Run("a binary for another platform", func(t *testing.T) {
		self, err := os.Executable()
		if err == nil {
			_, err = readBinary(platform{goos: "plan9", goarch: "386"}, self)
		}
		if err == nil || !strings.Contains(err.Error(), "not for plan9-386") {
			t.Errorf("it says %v", err)
		}
	})
}

func TestTheImageIsWhatTheContainerfileDescribes(t *testing.T) {
	b := binary{platform: platform{goos: "linux", goarch: "amd64"}, content: []byte("a program")}
	image, err := (&release{source: "../.."}).imageOf(b)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	list := func(all []string) string { return `["` + strings.Join(all, `", "`) + `"]` }
	got := map[string]string{
		"USER": config.Config.User, "ENV": strings.Join(config.Config.Env, " "),
		"ENTRYPOINT": list(config.Config.Entrypoint), "CMD": list(config.Config.Cmd),
	}
	file := string(read(t, "..", "Containerfile"))
	for instruction, is := range got {
		all := regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(file, -1)
		if len(all) != 1 || all[0][1] != is {
			t.Errorf("the image's %s is %s, and the Containerfile has %q", instruction, is, all)
		}
	}
	for _, v := range []string{"/state", "/cache"} {
		if _, ok := config.Config.Volumes[v]; !ok || !strings.Contains(file, `"`+v+`"`) {
			t.Errorf("%s is not a volume of both", v)
		}
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("there are %d layers (%v)", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	all, err := io.ReadAll(content)
	if err != nil || !bytes.Contains(all, []byte("-----BEGIN CERTIFICATE-----")) {
		t.Errorf("there are no certificates in the image (%v)", err)
	}
}
