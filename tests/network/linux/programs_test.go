//go:build linux && (amd64 || arm64)

package linux

import (
	"strings"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
)

// program is one that gets out by itself: what it is called in the image, and what it has
// to print.
type program struct{ name, runtime, needs, code, want string }

// programs are what is run; {HTTPS} and {HTTP} stand for the addresses of the two
// servers, {HOST} and {PLAIN} for their hosts.
var programs = []program{
	{"curl over TLS", "bash", "curl", "curl -sS {HTTPS}/text", "GET for {HOST}"},
	{"curl", "bash", "curl", "curl -sS {HTTP}/text", "GET for {PLAIN}"},
	{"curl sends much", "bash", "curl", "head -c 3000000 /dev/zero | curl -sS --data-binary @- {HTTPS}/echo | wc -c", "3000000"},
	{"wget", "bash", "wget", "wget -q -O - {HTTPS}/text", "GET for {HOST}"},
	{"urllib", "python", "python3", "import urllib.request; print(urllib.request.urlopen('{HTTPS}/text').read().decode())", "GET for {HOST}"},
	{"urllib without TLS", "python", "python3", "import urllib.request; print(urllib.request.urlopen('{HTTP}/text').read().decode())", "GET for {PLAIN}"},
	{"requests", "python", "pip", "from pip._vendor import requests; print(requests.get('{HTTPS}/text').text); print(len(requests.Session().post('{HTTPS}/echo', data=b'x' * 100000).content))", "GET for {HOST}\n100000"},
	{"fetch", "javascript", "node", "console.log(await (await fetch('{HTTPS}/text')).text()); console.log(await (await fetch('{HTTP}/text')).text())", "GET for {HOST}\nGET for {PLAIN}"},
	{"fetch sends", "javascript", "node", "console.log((await (await fetch('{HTTPS}/echo', { method: 'POST', body: 'x'.repeat(100000) })).text()).length)", "100000"},
	{"many fetches", "javascript", "node", "console.log((await Promise.all(Array.from({ length: 100 }, async () => (await (await fetch('{HTTPS}/text')).text()).length > 10))).every(Boolean))", "true"},
	{"https", "javascript", "node", "console.log(await new Promise((done, failed) => require('https').get('{HTTPS}/text', (r) => r.setEncoding('utf8').on('data', done)).on('error', failed)))", "GET for {HOST}"},
	{"a program of Node's", "bash", "node", "node -e \"fetch('{HTTPS}/text').then((r) => r.text()).then(console.log)\"", "GET for {HOST}"},
	{"git", "bash", "git", "git clone -q {HTTPS}/git/hello.git repo && git -C repo log --format=%s && cd repo && git -c user.name=ann -c user.email=ann@example.com commit -q --allow-empty -m back && git push -q && cd .. && rm -rf repo", "from a repository"},
	{"pip", "bash", "pip", "python3 -m pip -q --disable-pip-version-check install --no-cache-dir --index-url {HTTPS}/simple/ --target site hello && PYTHONPATH=site python3 -c 'import hello; print(hello.print_me)'", "from a wheel"},
	{"npm", "bash", "npm", "mkdir -p app && cd app && npm install --silent --no-audit --no-fund --no-update-notifier --registry {HTTPS}/npm/ hello && node -p 'require(\"hello\")'; cd /workspace", "from a tarball"},
	{"what is in the sandbox itself", "python", "python3", `
import http.server, threading, urllib.request
class Here(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'here')
    def log_message(self, *args): pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Here)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen('http://127.0.0.1:8000/').read().decode())`, "here"},
	{"it by fetch", "javascript", "node", "console.log(await (await fetch('http://127.0.0.1:8000/')).text())", "here"},
}

func (m *machine) fill(text string) string {
	return strings.NewReplacer("{HTTPS}", m.https, "{HTTP}", m.http, "{HOST}", strings.TrimPrefix(m.https, "https://"), "{PLAIN}", strings.TrimPrefix(m.http, "http://")).Replace(text)
}

func runPrograms(t *testing.T, c linux.Config) {
	w := newFixture(t, c)
	m := w.machine(t, w.proxy(t))
	bash := m.start(t, "bash")
	has := run(t, bash, "for p in curl wget git node npm python3; do command -v $p > /dev/null && echo -n \"$p \"; done; python3 -m pip --version > /dev/null 2>&1 && echo pip")
	t.Logf("it has %s", has)
	// Interpreters stay: what serves in one is asked from another.
	all := map[string]sandbox.Instance{"bash": bash}
	for _, runtime := range []string{"python", "javascript"} {
		all[runtime] = m.start(t, runtime)
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			if !strings.Contains(" "+has+" ", " "+p.needs+" ") {
				t.Skip("the image has no " + p.needs)
			}
			if got := run(t, all[p.runtime], m.fill(p.code)); got != m.fill(p.want) {
				t.Errorf("it printed %q", got)
			}
		})
	}
}

func TestProgramsOfThisMachineGetOutWithoutSettings(t *testing.T) { runPrograms(t, linux.Config{}) }

func TestProgramsOfAnImageGetOutWithoutSettings(t *testing.T) { runPrograms(t, full(t)) }
