//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// keptSpec is an interpreter in a box with a folder of the host.
func keptSpec(t testing.TB, runtime string) sandbox.Spec {
	return sandbox.Spec{
		Owner: "alice", Runtime: runtime, Box: "one", Dir: "/workspace",
		Mounts: []sandbox.Mount{{Guest: "/workspace", Host: folderFor(t, "workspace"), DiskBytes: 1 << 30}},
	}
}

// says runs a program and gives its result, or what it printed.
func says(t testing.TB, in sandbox.Instance, code string) string {
	t.Helper()
	var out bytes.Buffer
	exit, err := in.Run(t.Context(), sandbox.Command{Code: code, Stdout: &out})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v, %v", code, exit.Error, err)
	}
	if exit.Result != "" {
		return exit.Result
	}
	return strings.TrimSpace(out.String())
}

// saved is a box that was saved.
func saved(t testing.TB, b *Backend) *sandbox.MachineState {
	t.Helper()
	var data bytes.Buffer
	s, err := b.SaveMachine(t.Context(), "alice", "one", 1<<30, &data, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return &sandbox.MachineState{State: s.State, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil }}
}

func TestABoxGoesOnWhereItWasSaved(t *testing.T) {
	b := newBackend(t)
	spec := keptSpec(t, "python")
	first := map[string]sandbox.Instance{}
	for _, r := range []string{"python", "javascript", "bash", sandbox.CommandRuntime} {
		spec.Runtime = r
		first[r] = start(t, b, spec)
	}
	says(t, first["python"], "x = 41; import subprocess; p = subprocess.Popen(['sleep', '1000']); f = open('/workspace/log', 'w'); f.write('one\\n'); f.flush()")
	says(t, first["javascript"], "var y = [1, 2]; var ticks = 0; setInterval(() => ticks++, 10).unref()")
	says(t, first["bash"], "cd /usr; z=three; f() { echo $z; }")
	says(t, first["bash"], "echo 'upon the root' > /dev/shm/mine")
	began := time.Now()
	state := saved(t, b)
	t.Log("saved in", time.Since(began))
	if got := says(t, first["python"], "x += 1; f.write('two\\n'); f.flush(); x"); got != "42" {
		t.Errorf("it does not go on: %s", got)
	}
	for _, in := range first {
		in.Close()
	}
	began = time.Now()
	spec.Machine = state
	again := map[string]sandbox.Instance{}
	for _, r := range []string{"python", "javascript", "bash", sandbox.CommandRuntime} {
		spec.Runtime = r
		again[r] = start(t, b, spec)
		if !again[r].(sandbox.Survivor).Survived() {
			t.Errorf("%s is a fresh one", r)
		}
	}
	t.Log("restored in", time.Since(began))
	if got := says(t, again["python"], "f.write('three\\n'); f.flush(); x, p.poll(), open('/workspace/log').read()"); got != `(41, None, 'one\nthree\n')` {
		t.Errorf("python has %s", got)
	}
	t.Log("first result in", time.Since(began))
	if got := says(t, again["javascript"], "y.push(3); y.length"); got != "3" {
		t.Errorf("node has %s", got)
	}
	if got := says(t, again["bash"], "pwd; f; cat /dev/shm/mine"); got != "/usr\nthree\nupon the root" {
		t.Errorf("bash has %s", got)
	}
}

// draws has each runtime draw random numbers in every way that programs do.
var draws = map[string]string{
	"python":     "import random, uuid, secrets, tempfile, ssl, os; [random.random(), str(uuid.uuid4()), secrets.token_hex(8), next(tempfile._get_candidate_names()), ssl.RAND_bytes(8).hex(), os.urandom(8).hex()]",
	"javascript": "var c = require('crypto'); JSON.parse(JSON.stringify([Math.random(), c.randomUUID(), c.randomBytes(8).toString('hex'), c.randomInt(2**40), c.generatePrimeSync(64, {bigint: true}).toString(), crypto.getRandomValues(new Uint32Array(2)).join(), await new Promise(d => c.randomBytes(8, (e, b) => d(b.toString('hex')))), c.generateKeyPairSync('ec', {namedCurve: 'P-256'}).publicKey.export({format: 'jwk'}).x]))",
	"bash":       "echo $RANDOM.$RANDOM.$RANDOM $SRANDOM $(head -c 8 /dev/urandom | od -An -tx1 | tr -d ' ')",
}

func TestTwoThatGoOnFromOneStateDrawOtherNumbers(t *testing.T) {
	b := newBackend(t)
	for runtime, code := range draws {
		t.Run(runtime, func(t *testing.T) {
			spec := keptSpec(t, runtime)
			in := start(t, b, spec)
			says(t, in, code) // so that all of it is there
			state := saved(t, b)
			in.Close()
			seen := map[string]bool{}
			for _, anew := range []bool{true, true, false} {
				spec.Machine = &sandbox.MachineState{State: state.State, Open: state.Open, Anew: anew}
				in := start(t, b, spec)
				got := says(t, in, code)
				t.Log(anew, got)
				for word := range strings.FieldsFuncSeq(got, func(r rune) bool { return strings.ContainsRune(" [],'\n", r) }) {
					if anew && len(word) > 5 && seen[word] {
						t.Errorf("both drew %s", word)
					}
					seen[word] = true
				}
				in.Close()
			}
		})
	}
}
