package wasm_test

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/sandbox"
)

// hashes are the algorithms that Python always has and Go has as well.
var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
	"sha3_224": func() hash.Hash { return sha3.New224() }, "sha3_256": func() hash.Hash { return sha3.New256() },
	"sha3_384": func() hash.Hash { return sha3.New384() }, "sha3_512": func() hash.Hash { return sha3.New512() },
}

// hashing is a part of a file that is hashed in pieces.
type hashing struct {
	Name   string
	Begin  int
	Pieces []int
}

// hash is its digest after each piece, and then that of all of it under a key.
func (c hashing) hash(data []byte) string {
	h, all := hashes[c.Name](), data[c.Begin:c.Begin]
	keyed := hmac.New(hashes[c.Name], data[:200])
	var line strings.Builder
	for _, n := range c.Pieces {
		piece := data[c.Begin+len(all):][:n]
		h.Write(piece)
		all = data[c.Begin:][:len(all)+n]
		fmt.Fprintf(&line, "%x ", h.Sum(nil))
	}
	keyed.Write(all)
	return line.String() + hex.EncodeToString(keyed.Sum(nil))
}

// hashEach prints what hashing.hash gives for each, with every second piece
// going into a copy, and has all other ways agree with it.
const hashEach = `
import hashlib, hmac, io, json
data = open('data', 'rb').read()
for n, case in enumerate(json.load(open('cases'))):
    name, begin, at, line = case['Name'], case['Begin'], case['Begin'], []
    h = hashlib.new(name, usedforsecurity=False)
    for k, size in enumerate(case['Pieces']):
        before, old = h.hexdigest(), h
        if k % 2:
            h = h.copy()
        h.update((data, memoryview(data))[n % 2][at:at + size])
        if k % 2:
            assert old.hexdigest() == before
        at += size
        line.append(h.hexdigest())
        assert line[-1] == h.hexdigest() == h.digest().hex()
    whole = data[begin:at]
    assert getattr(hashlib, name)(whole).digest() == h.digest()
    assert hashlib.file_digest(io.BytesIO(whole), name).digest() == h.digest()
    print(*line, hmac.new(data[:200], whole, name).hexdigest())
`

func TestHashesAreThoseOfEverybody(t *testing.T) {
	owners := t.TempDir()
	dir := folder(t, owners, "o/w")
	in := startIn(t, newBackend(t, owners), "python", dir)
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 4<<20)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	var cases []hashing
	for name := range hashes {
		add := func(pieces ...int) { cases = append(cases, hashing{name, random.IntN(1 << 20), pieces}) }
		for _, n := range []int{0, 1, 55, 56, 63, 64, 65, 111, 112, 127, 128, 129, 511, 512, 513, 575, 576, 640, 10000} {
			add(n)
			add(1, n, n)
		}
		for range 60 {
			pieces := make([]int, 1+random.IntN(6))
			for i := range pieces {
				pieces[i] = random.IntN(10001 / len(pieces))
			}
			add(pieces...)
		}
		add(256 << 10)
		add(256<<10, 256<<10+64, 1)
		add(256<<10+128, 256<<10-1)
		add(3 << 20)
		add(random.IntN(1<<20), random.IntN(1<<20), random.IntN(1<<20))
	}
	var want strings.Builder
	for _, c := range cases {
		want.WriteString(c.hash(data) + "\n")
	}
	list, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"data": data, "cases": list} {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, exit := outputOf(t, in, sandbox.Command{Code: hashEach})
	if exit.Error != nil {
		t.Fatalf("%+v", exit.Error)
	}
	got, lines := strings.Split(out, "\n"), strings.Split(want.String(), "\n")
	if len(got) != len(lines) {
		t.Fatalf("%d lines, not %d", len(got), len(lines))
	}
	for i, c := range cases {
		if got[i] != lines[i] {
			t.Errorf("%+v\ngives %.300s\nnot   %.300s", c, got[i], lines[i])
		}
	}
}

func TestHashObjectsRefuseAsEverywhere(t *testing.T) {
	owners := t.TempDir()
	in := startIn(t, newBackend(t, owners), "python", folder(t, owners, "o/w"))
	prints(t, in, `
import hashlib, pickle
for f in (lambda: pickle.dumps(hashlib.sha256(b'x' * 1000)), lambda: hashlib.sha256('x' * 1000), lambda: hashlib.new('sha257'), lambda: hashlib.md5().update(None)):
    try: f()
    except Exception as e: print(type(e).__name__, e)`, `TypeError cannot pickle '_sha2.SHA256Type' object
TypeError Strings must be encoded before hashing
ValueError unsupported hash type sha257
TypeError object supporting the buffer API required`)
}

// TestTheHostHashesWhatIsLong counts fuel: the host takes one for 16 bytes, and
// the guest's own code one or two for 64 (SHA-1: 160).
func TestTheHostHashesWhatIsLong(t *testing.T) {
	owners := t.TempDir()
	in, err := newBackend(t, owners).Start(t.Context(), sandbox.Spec{Owner: "o", Runtime: "python", Limits: sandbox.Limits{Metered: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	const each = 4 << 20
	prints(t, in, fmt.Sprintf("import hashlib; data = bytes(16 * %d)", each), "")
	for _, name := range []string{"sha1", "sha224", "sha256", "sha384", "sha512"} {
		_, exit := outputOf(t, in, sandbox.Command{Code: "hashlib." + name + "(data).digest()"})
		if exit.Error != nil || exit.Usage.Fuel < each-each/10 || exit.Usage.Fuel > each+each/10 {
			t.Errorf("%s of 16 times %d bytes took %d of the fuel, error %+v", name, each, exit.Usage.Fuel, exit.Error)
		}
	}
	_, exit := outputOf(t, in, sandbox.Command{Code: "while True: hashlib.sha256(data)", Limits: sandbox.RunLimits{Fuel: 8 * each}})
	if exit.Cause != sandbox.OutOfFuel || exit.Usage.Fuel > 8*each+each/10 {
		t.Errorf("it ended as %+v, error %+v", exit, exit.Error)
	}
}
