package joined

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"paddock/tests/paddocktest"
)

// asksOften are programs that print, by their own clock, the milliseconds for a request on
// a connection that is kept, and for an answer of 4 MiB.
var asksOften = map[string]string{
	"python": `
import http.client, os, time
at = %q
way = os.environ.get("http_proxy", "").removeprefix("http://").rstrip("/") # in a machine
c = http.client.HTTPConnection(way or at)
def get(path):
    c.request("GET", ("http://" + at if way else "") + path)
    r, n = c.getresponse(), 0
    while piece := r.read(1 << 20): n += len(piece)
    return n
get("/")
began = time.perf_counter()
for k in range(100): get("/")
each = (time.perf_counter() - began) * 10
began = time.perf_counter()
assert get("/much") == 4 << 20
print(each, (time.perf_counter() - began) * 1000)`,
	"javascript": `
const base = "http://" + %q;
async function get(path) {
  let n = 0;
  for await (const piece of (await fetch(base + path)).body) n += piece.length;
  return n;
}
await get("/");
let began = performance.now();
for (let k = 0; k < 100; k++) await get("/");
const each = (performance.now() - began) / 100;
began = performance.now();
if (await get("/much") !== 4 << 20) throw new Error("it is cut");
console.log(each, performance.now() - began);`,
}

// twoNumbers reads what such a program printed.
func twoNumbers(b *testing.B, out string) (each, much float64) {
	b.Helper()
	words := strings.Fields(out)
	if len(words) != 2 {
		b.Fatalf("it prints %q", out)
	}
	each, err := strconv.ParseFloat(words[0], 64)
	much, err2 := strconv.ParseFloat(words[1], 64)
	if err != nil {
		b.Fatalf("it prints %q: got error %v, want none", out, err)
	}
	if err2 != nil {
		b.Fatalf("it prints %q: got error %v, want none", out, err2)
	}
	return each, much
}

// BenchmarkNetwork is what the way out costs: the same program in a sandbox, through its
// session's proxy, and by this machine's own interpreter, without anything between, in turns.
func BenchmarkNetwork(b *testing.B) {
	for _, isolation := range isolations {
		for language, own := range map[string][]string{"python": {"python3", "-c"}, "javascript": {"node", "--input-type=module", "-e"}} {
			b.Run(isolation+"/"+language, func(b *testing.B) {
				paddocktest.Require(b, isolation)
				s := open(b, "plain", false)
				m := start(b, b.TempDir(), isolation, []string{s.address + "!private"})
				id := m.create(b, nil)
				code := fmt.Sprintf(asksOften[language], s.address)
				var inside, outside [2][]float64
				for b.Loop() {
					cmd := exec.CommandContext(b.Context(), own[0], append(own[1:], code)...)
					out, err := cmd.Output()
					if err != nil {
						b.Fatal(err)
					}
					each, much := twoNumbers(b, string(out))
					outside = [2][]float64{append(outside[0], each), append(outside[1], much)}
					each, much = twoNumbers(b, m.run(b, id, language, code).Stdout)
					inside = [2][]float64{append(inside[0], each), append(inside[1], much)}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(median(inside[0]), "ms/request")
				b.ReportMetric(median(inside[0])/median(outside[0]), "x-direct")
				b.ReportMetric(4*1000/median(inside[1]), "MiB/s")
				b.ReportMetric(median(inside[1])/median(outside[1]), "x-direct-4MiB")
			})
		}
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
