package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What makes the test binary a hostile client, or the hostile servers.
const (
	orderEnv = "PADDOCK_HOSTILE_CLIENT"
	siteEnv  = "PADDOCK_HOSTILE_SITE"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(orderEnv); text != "" {
		attackUntilTheEnd(text)
		return
	}
	if address := os.Getenv(siteEnv); address != "" {
		serveSite(address)
		return
	}
	os.Exit(m.Run())
}

// order is what a hostile client is told.
type order struct {
	URL, Token, Site string
	Names            []string // of attacks
}

// every names all attacks.
func every() []string { return slices.Sorted(maps.Keys(attacks)) }

// attackUntilTheEnd makes attacks at once, again and again, until standard input ends.
func attackUntilTheEnd(text string) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	c := newClient(nil, o.URL, o.Token, o.Site)
	counts := map[string]int64{}
	var mu sync.Mutex // guards counts
	var all sync.WaitGroup
	for _, name := range o.Names {
		a := attacks[name]
		for range a.times {
			all.Go(func() {
				for ctx.Err() == nil {
					one, stop := context.WithTimeout(ctx, 20*time.Second)
					a.run(one, c)
					stop()
					mu.Lock()
					counts[name]++
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(counts); err != nil {
		log.Fatal(err)
	}
}

// startSite starts the hostile servers in a process of their own, which gives way to all
// others, and tells where they are.
func startSite(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nice", "-n", "19", exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), siteEnv+"=127.0.0.2:0"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the hostile servers do not serve: %v", err)
	}
	return strings.TrimSpace(line)
}

func serveSite(address string) {
	l, err := net.Listen("tcp4", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	log.Fatal((&http.Server{Handler: hostileSite(), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}).Serve(l))
}
