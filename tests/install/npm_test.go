package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fromNPM starts paddock by npx, which has the packages from a registry that has nothing
// else.
func fromNPM(t *testing.T, dir string) tool {
	t.Helper()
	programs := map[string]string{}
	for _, name := range []string{"node", "npm", "npx"} {
		programs[name] = where(t, "node", name)
	}
	programs["sh"] = where(t, "node", "sh")
	env := append(bare(t, programs), "npm_config_registry="+registry(t, dir), "npm_config_update_notifier=false")
	return tool{[]string{programs["npx"], "--yes", "paddock-sandbox"}, env}
}

// registry serves the npm packages of a release, and gives its address.
func registry(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "paddock-sandbox*.tgz"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the npm packages are %q (%v)", files, err)
	}
	packages := map[string][]byte{} // descriptions, by name
	served := http.NewServeMux()
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		manifest := packageOf(t, content)
		if _, has := manifest["scripts"]; has {
			t.Errorf("%s runs scripts when it is installed", file)
		}
		sum := sha512.Sum512(content)
		manifest["dist"] = map[string]string{
			"tarball":   server.URL + "/-/" + filepath.Base(file),
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}
		name, version := manifest["name"].(string), manifest["version"].(string)
		if packages[name], err = json.Marshal(map[string]any{
			"name": name, "dist-tags": map[string]string{"latest": version}, "versions": map[string]any{version: manifest},
		}); err != nil {
			t.Fatal(err)
		}
	}
	served.Handle("/-/", http.StripPrefix("/-/", http.FileServer(http.Dir(dir))))
	served.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if description, ok := packages[strings.Trim(r.URL.Path, "/")]; ok {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(description) // npm says what it did not get
			return
		}
		http.NotFound(w, r)
	})
	return server.URL
}

// packageOf reads the package.json of a package.
func packageOf(t *testing.T, content []byte) (manifest map[string]any) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("there is no package.json")
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "package/package.json" {
			if err := json.NewDecoder(archive).Decode(&manifest); err != nil {
				t.Fatal(err)
			}
			return manifest
		}
	}
}

// TestTheBundlesAreWhatTheOfficialToolTakes has Anthropic's mcpb read each bundle.
func TestTheBundlesAreWhatTheOfficialToolTakes(t *testing.T) {
	where(t, "node", "npm")
	out, err := exec.CommandContext(t.Context(), "bash", "../../packaging/npm/install.sh").Output()
	if err != nil {
		t.Fatalf("installing mcpb: %v", err)
	}
	mcpb := filepath.Join(strings.TrimSpace(string(out)), "node_modules", ".bin", "mcpb")
	bundles, err := filepath.Glob(filepath.Join(release(t), "*.mcpb"))
	if err != nil || len(bundles) == 0 {
		t.Fatalf("the bundles are %q (%v)", bundles, err)
	}
	for _, bundle := range bundles {
		at := t.TempDir()
		for _, args := range [][]string{{"info", bundle}, {"unpack", bundle, at}, {"validate", filepath.Join(at, "manifest.json")}} {
			if out, err := exec.CommandContext(t.Context(), mcpb, args...).CombinedOutput(); err != nil {
				t.Errorf("mcpb %q: %v\n%s", args, err, out)
			}
		}
	}
}

func TestALauncherWithoutItsBinarySaysWhatIsMissing(t *testing.T) {
	node := where(t, "node", "node")
	at := t.TempDir()
	launcher, err := os.ReadFile(filepath.Join("..", "..", "packaging", "release", "launcher.js"))
	if err == nil {
		err = os.WriteFile(filepath.Join(at, "launcher.js"), launcher, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), node, filepath.Join(at, "launcher.js"), "mcp").CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 1 || !strings.Contains(string(out), "is not installed") || !strings.Contains(string(out), "paddock: hint: ") {
		t.Errorf("it prints %q (%v)", out, err)
	}
}
