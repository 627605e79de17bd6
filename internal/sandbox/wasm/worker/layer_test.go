package worker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"paddock/internal/sandbox/wasm/linear"
)

// layerOf writes pages, by number, each with what it was before.
func layerOf(t testing.TB, head layerHead, numbers []uint32, before, now map[uint32][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	pages := changes{len(numbers), func(i int) (uint32, []byte, []byte) { return numbers[i], before[numbers[i]], now[numbers[i]] }}
	if err := writeLayer(&b, head, pages); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readLayer gives the changes in a layer.
func readLayer(layer []byte) (layerHead, map[uint32][]byte, error) {
	l, err := openLayer(bytes.NewReader(layer))
	if err != nil {
		return layerHead{}, nil, err
	}
	var mu sync.Mutex
	changes := map[uint32][]byte{}
	err = l.each(func(n uint32, change []byte) {
		mu.Lock()
		defer mu.Unlock()
		if changes[n] != nil {
			panic("a page comes twice")
		}
		changes[n] = bytes.Clone(change)
	})
	return l.head, changes, err
}

// somePages gives pages of several kinds: of zeros, nearly so, of text, of noise.
func somePages(r *rand.Rand, numbers []uint32) map[uint32][]byte {
	all := map[uint32][]byte{}
	for _, n := range numbers {
		page := make([]byte, linear.PageSize)
		switch r.IntN(4) {
		case 0:
			page[r.IntN(len(page))] = 1
		case 1:
			copy(page, bytes.Repeat([]byte("some text "), 400))
		case 2:
			for i := range page {
				page[i] = byte(r.Uint32())
			}
		}
		all[n] = page
	}
	return all
}

func TestALayerIsReadAsItWasWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, count := range []int{0, 1, chunkPages - 1, chunkPages, chunkPages + 1, 5 * chunkPages, 3*spreadFrom + 7} {
		var numbers []uint32
		for n := uint32(0); len(numbers) < count; n += 1 + r.Uint32N(3) {
			numbers = append(numbers, n)
		}
		before, now := somePages(r, numbers), somePages(r, numbers)
		for i, n := range numbers {
			if i%3 == 0 {
				delete(before, n)
			}
		}
		want := layerHead{From: "a", To: "b", Bytes: 1 << 26, PageSize: linear.PageSize}
		head, changes, err := readLayer(layerOf(t, want, numbers, before, now))
		if err != nil || head != want || len(changes) != count {
			t.Fatalf("%d pages: %+v with %d pages, %v", count, head, len(changes), err)
		}
		for n, change := range changes {
			for i := range change {
				if old := before[n]; old != nil {
					change[i] ^= old[i]
				}
			}
			if !bytes.Equal(change, now[n]) {
				t.Fatalf("page %d of %d is another", n, count)
			}
		}
	}
}

// What cannot be written ends all who write it.
func TestALayerThatCannotBeWritten(t *testing.T) {
	page := make([]byte, linear.PageSize)
	pages := changes{4 * spreadFrom, func(i int) (uint32, []byte, []byte) { return uint32(i), nil, page }}
	var size counting
	if err := writeLayer(&size, layerHead{To: "b"}, pages); err != nil {
		t.Fatal(err)
	}
	for _, most := range []int{0, 1, int(size) / 2, int(size) - 1} {
		if err := writeLayer(&narrow{most}, layerHead{To: "b"}, pages); !errors.Is(err, errNarrow) {
			t.Errorf("after %d bytes it gives %v", most, err)
		}
	}
}

// narrow is a writer that takes no more than so many bytes.
type narrow struct{ left int }

var errNarrow = errors.New("there is no room")

func (n *narrow) Write(p []byte) (int, error) {
	if n.left -= len(p); n.left < 0 {
		return 0, errNarrow
	}
	return len(p), nil
}

func TestNoiseIsNotMadeLarger(t *testing.T) {
	const count = 10 * chunkPages
	r, numbers, now := rand.NewChaCha8([32]byte{}), []uint32{}, map[uint32][]byte{}
	for n := range uint32(count) {
		numbers, now[n] = append(numbers, n), make([]byte, linear.PageSize)
		_, _ = r.Read(now[n]) // never fails
	}
	if got, most := len(layerOf(t, layerHead{To: "b", Bytes: 1 << 24}, numbers, nil, now)), count*(linear.PageSize+16); got > most {
		t.Errorf("it takes %d bytes, more than %d", got, most)
	}
}

// Whatever is done to a layer, it is refused: nothing that it gives until then
// is kept.
func TestADamagedLayerIsRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var numbers []uint32
	for n := range uint32(100) {
		numbers = append(numbers, n)
	}
	whole := layerOf(t, layerHead{To: "b", Bytes: 1 << 24}, numbers, nil, somePages(r, numbers))
	for n := range 1000 {
		layer := bytes.Clone(whole)
		switch n % 3 {
		case 0:
			layer[r.IntN(len(layer))] ^= 1 << r.IntN(8)
		case 1:
			layer = layer[:r.IntN(len(layer))]
		case 2:
			at := r.IntN(len(layer))
			layer = append(layer[:at:at], layer[min(at+1+r.IntN(20), len(layer)):]...)
		}
		if _, _, err := readLayer(layer); !errors.Is(err, errDamaged) {
			t.Fatalf("round %d: %v", n, err)
		}
	}
}

// forged makes a layer of these chunks, with the right checksum.
func forged(head any, chunks ...[]byte) []byte {
	text, err := json.Marshal(head)
	if err != nil {
		panic(err)
	}
	le := binary.LittleEndian
	b := append(le.AppendUint32([]byte(layerMagic), uint32(len(text))), text...)
	for _, c := range chunks {
		b = append(b, c...)
	}
	b = append(b, 0, 0)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func chunkOf(kind byte, data []byte, numbers ...uint32) []byte {
	le := binary.LittleEndian
	b := append(le.AppendUint16(nil, uint16(len(numbers))), kind)
	b = le.AppendUint32(b, uint32(len(data)))
	for _, n := range numbers {
		b = le.AppendUint32(b, n)
	}
	return append(b, data...)
}

func TestALayerThatLiesIsRefused(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	none, ones := make([]byte, 8), append(bytes.Repeat([]byte{255}, 8), bytes.Repeat([]byte{1}, linear.PageSize)...)
	head := layerHead{To: "b", PageSize: linear.PageSize, Bytes: 16 * linear.PageSize}
	many := make([]uint32, chunkPages+1)
	for i := range many {
		many[i] = uint32(i)
	}
	bomb := e.EncodeAll(make([]byte, 64<<20), nil)
	for name, layer := range map[string][]byte{
		"a page beyond the memory":           forged(head, chunkOf(asTheyAre, none, 16)),
		"the last page there can be":         forged(head, chunkOf(asTheyAre, none, 1<<32-1)),
		"a page twice":                       forged(head, chunkOf(asTheyAre, append(none, none...), 1, 1)),
		"a page twice, in two chunks":        forged(head, chunkOf(asTheyAre, none, 1), chunkOf(asTheyAre, none, 1)),
		"pages in another order":             forged(head, chunkOf(asTheyAre, append(none, none...), 2, 1)),
		"more pages than a chunk has":        forged(layerHead{To: "b", PageSize: linear.PageSize, Bytes: 1 << 30}, chunkOf(asTheyAre, make([]byte, 8*len(many)), many...)),
		"no data":                            forged(head, chunkOf(asTheyAre, nil, 1)),
		"too little data":                    forged(head, chunkOf(asTheyAre, ones[:len(ones)-1], 1)),
		"too much data":                      forged(head, chunkOf(asTheyAre, append(ones, 1), 1)),
		"a kind that there is not":           forged(head, chunkOf(7, none, 1)),
		"compressed data that is none":       forged(head, chunkOf(asZstd, []byte("nonsense"), 1)),
		"compressed data that is too little": forged(head, chunkOf(asZstd, e.EncodeAll(none[:7], nil), 1)),
		"a bomb":                             forged(head, chunkOf(asZstd, bomb, 1)),
		"S2 data that is none":               forged(head, chunkOf(asS2, []byte("nonsense"), 1)),
		"S2 data that is too little":         forged(head, chunkOf(asS2, s2.Encode(nil, none[:7]), 1)),
		"a bomb of S2":                       forged(head, chunkOf(asS2, s2.Encode(nil, make([]byte, 64<<20)), 1)),
		"a length that is none":              forged(head, append(chunkOf(asTheyAre, nil, 1)[:3], 255, 255, 255, 255)),
		"another page size":                  forged(layerHead{To: "b", PageSize: 1, Bytes: 1 << 20}),
		"nowhere to lead to":                 forged(layerHead{PageSize: linear.PageSize, Bytes: 1 << 20}),
		"a head of another shape":            forged([]int{1}),
		"a head that is too long":            forged(layerHead{To: string(make([]byte, maxHead)), PageSize: linear.PageSize}),
		"no head":                            []byte(layerMagic + "\xff\xff\xff\xff"),
		"another version":                    append([]byte("paddock layer 9\n"), forged(head)[len(layerMagic):]...),
	} {
		if _, _, err := readLayer(layer); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, changes, err := readLayer(forged(head, chunkOf(asTheyAre, ones, 15))); err != nil || len(changes) != 1 || changes[15][0] != 1 {
		t.Errorf("an honest one: %v, %v", changes, err)
	}
}

// What a reader of the layer says is not taken for damage.
func TestALayerThatCannotBeReadIsNotDamaged(t *testing.T) {
	layer := layerOf(t, layerHead{To: "b", Bytes: 1 << 20}, []uint32{1}, nil, map[uint32][]byte{1: make([]byte, linear.PageSize)})
	broken := errors.New("the disk is gone")
	for _, at := range []int{0, 5, 20, len(layer) - 10, len(layer)} {
		l, err := openLayer(io.MultiReader(bytes.NewReader(layer[:at]), failing{broken}))
		if err == nil {
			err = l.each(func(uint32, []byte) {})
		}
		if !errors.Is(err, broken) || errors.Is(err, errDamaged) {
			t.Errorf("after %d bytes it is %v", at, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzLayer(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	numbers := []uint32{0, 1, 5}
	f.Add(layerOf(f, layerHead{To: "b", Bytes: 1 << 16}, numbers, nil, somePages(r, numbers)))
	f.Add(forged(layerHead{From: "a", To: "b", PageSize: linear.PageSize, Bytes: 1 << 16}, chunkOf(asTheyAre, make([]byte, 8), 3)))
	f.Add([]byte(layerMagic))
	f.Fuzz(func(t *testing.T, layer []byte) {
		fixed := bytes.Clone(layer) // as it is, and with a checksum that is right
		if n := len(fixed) - 4; n > 0 {
			binary.LittleEndian.PutUint32(fixed[n:], crc32.Checksum(fixed[:n], castagnoli))
		}
		for _, layer := range [][]byte{layer, fixed} {
			head, changes, err := readLayer(layer)
			for n, change := range changes {
				if err == nil && ((uint64(n)+1)*linear.PageSize > head.Bytes || len(change) != linear.PageSize) {
					t.Fatalf("page %d of %d bytes", n, len(change))
				}
			}
			if err != nil && !errors.Is(err, errDamaged) {
				t.Fatalf("it is %v", err)
			}
		}
	})
}
