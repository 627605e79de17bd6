package service

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// floorEnv makes this program a bare net/http server that answers with its value.
const floorEnv = "PADDOCK_TEST_FLOOR"

func TestMain(m *testing.M) {
	answer := os.Getenv(floorEnv)
	if answer == "" {
		os.Exit(m.Run())
	}
	floor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m map[string]any
		got, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(got, &m)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	fmt.Println(floor.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // until who started it has gone
}

// startFloor gives a floor's address.
func startFloor(b *testing.B, answer string) string {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), floorEnv+"="+answer)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// BenchmarkServe tells what a call of a tool that does next to nothing costs
// through all of `paddock serve`, with its token, limits, log and measurements,
// beyond a bare net/http server that decodes the request and answers as much.
// Both are processes of their own and take turns.
func BenchmarkServe(b *testing.B) {
	s := start(b, "--config", soakSettings(b))
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_runtimes","arguments":{}}}`
	_, _, answer := s.ask(http.MethodPost, "/mcp", s.Token, body)
	floor := startFloor(b, answer)
	for _, clients := range []int{1, 8, 32} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
			defer client.CloseIdleConnections()
			var took [2][]time.Duration
			var whole [2]time.Duration
			for range 4 {
				for k, url := range []string{floor, s.URL} {
					each, all := load(b, client, clients, max(b.N/4, clients), url, s.Token, body)
					took[k], whole[k] = append(took[k], each...), whole[k]+all
				}
			}
			p50 := func(d []time.Duration) float64 { slices.Sort(d); return float64(d[len(d)/2].Nanoseconds()) / 1e3 }
			b.ReportMetric(p50(took[0]), "floor-p50-µs")
			b.ReportMetric(p50(took[1])-p50(took[0]), "p50-over-µs")
			b.ReportMetric(whole[0].Seconds()/whole[1].Seconds(), "of-floor")
		})
	}
}

func load(b *testing.B, client *http.Client, clients, calls int, url, token, body string) (each []time.Duration, whole time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	for range clients {
		all.Go(func() {
			var own []time.Duration
			for range calls / clients {
				r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Content-Type", "application/json")
				at := time.Now()
				resp, err := client.Do(r)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if own = append(own, time.Since(at)); resp.StatusCode != http.StatusOK {
					b.Error(resp.Status)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			each = append(each, own...)
		})
	}
	all.Wait()
	return each, time.Since(began)
}
