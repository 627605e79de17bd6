package pkgproxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/internal/membudget"
	"paddock/internal/pkgproxy"
)

// heavyEnv makes the test binary a server whose sandboxes ask for packages with large
// descriptions, of a registry.
const heavyEnv = "PADDOCK_TEST_HEAVY"

// heavyMost is what that server may have, in bytes; it ends with more.
const heavyMost = 128 << 20

const (
	heavyPackages = 10
	heavyVersions = 200
	heavyReadme   = 100 << 10 // of a version
	unread        = 12        // a third of each kind
)

func takeDescriptions(registry string) {
	go func() {
		has := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		for range time.Tick(5 * time.Millisecond) {
			if metrics.Read(has); has[0].Value.Uint64()-has[1].Value.Uint64() > heavyMost {
				fmt.Println("more than", heavyMost>>20, "MiB of memory")
				os.Exit(1)
			}
		}
	}()
	if err := heavyInstall(registry); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
	os.Exit(0)
}

func heavyInstall(registry string) error {
	dir, err := os.MkdirTemp("", "paddock-test-heavy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all := []string{"*"}
	p, err := pkgproxy.Open(pkgproxy.Config{
		Dir: dir, Budget: membudget.New(256<<20, 64<<20),
		NPM:    pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: registry + "/npm"}}, Allow: all},
		Python: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: registry + "/simple"}}, Allow: all},
	})
	if err != nil {
		return err
	}
	if tree, err := p.TreeOf(context.Background(), []string{"root"}); err != nil {
		return err
	} else if len(tree) != heavyPackages+1 {
		return fmt.Errorf("packages of the tree: got %d, want %d", len(tree), heavyPackages+1)
	}
	fmt.Println("resolved")
	front := httptest.NewServer(p.Handler("ann"))
	for k := range unread {
		at := []string{"/npm/dep-%d", "/npm/dep-%d/-/dep-%[1]d-1.0.%[1]d.tgz.none", "/pypi/simple/dep-%d/"}[k%3]
		conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET "+at+" HTTP/1.1\r\nHost: x\r\n\r\n", k); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return err
		}
	}
	return nil
}

// heavyRegistry describes packages at length, as a registry and as an index.
func heavyRegistry(w http.ResponseWriter, r *http.Request) {
	out := bufio.NewWriter(w)
	defer out.Flush()
	name := path.Base(r.URL.Path)
	if strings.HasPrefix(r.URL.Path, "/simple/") {
		w.Header().Set("Content-Type", "text/html")
		for k := range 20_000 { // 8 MB
			fmt.Fprintf(out, "<p>%s</p><a href=\"%s-1.%d-py3-none-any.whl#sha256=%064x\">x</a>\n", strings.Repeat("x", 250), strings.ReplaceAll(name, "-", "_"), k, k)
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if name == "root" {
		var deps []string
		for k := range heavyPackages {
			deps = append(deps, fmt.Sprintf(`"dep-%d":"^1.0.%d"`, k, k))
		}
		fmt.Fprintf(out, `{"name":"root","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"root","version":"1.0.0","dependencies":{%s},"dist":{"tarball":"x","shasum":"%040x"}}}}`, strings.Join(deps, ","), 1)
		return
	}
	readme := strconv.Quote(strings.Repeat("r", heavyReadme))
	fmt.Fprintf(out, `{"name":%q,"dist-tags":{"latest":"1.0.%d"},"versions":{`, name, heavyVersions-1)
	for k := range heavyVersions {
		if k > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(out, `"1.0.%[1]d":{"name":%[2]q,"version":"1.0.%[1]d","readme":%[3]s,"dist":{"tarball":"x","shasum":"%040[1]x"}}`, k, name, readme)
	}
	out.WriteString("}}")
}

// Ten dependencies whose descriptions have 20 MB each, and connections to the front
// whose answers are not read, cost the server's process less than a stated figure.
func TestDescriptionsDoNotFillTheServersMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs several times the memory")
	}
	registry := httptest.NewServer(http.HandlerFunc(heavyRegistry))
	t.Cleanup(registry.Close)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), heavyEnv+"="+registry.URL)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		out = append(out, exit.Stderr[:min(len(exit.Stderr), 2000)]...)
	}
	if err != nil {
		t.Fatalf("got error %v, want none: %s", err, out)
	}
	if !strings.HasSuffix(string(out), "ok\n") {
		t.Errorf("out: got %q, want it to end with %q", string(out), "ok\n")
	}
}
