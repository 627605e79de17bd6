package worker

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"paddock/internal/sandbox"
)

// blocks is the import, called as a guest would; what it panics with is err.
func blocks(in *instance, stack ...uint64) (err error) {
	for _, f := range (python{}).imports() {
		if f.name == "blocks" {
			defer func() {
				if r := recover(); r != nil {
					err = r.(error)
				}
			}()
			f.fn(in, stack)
			return nil
		}
	}
	return errors.New("there is no such import")
}

// guestState is the state of one of Go's hashes in a guest's form.
func guestState(t *testing.T, h hash.Hash, magic, word, words int) []byte {
	t.Helper()
	saved, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	state := saved[magic:][:word*words]
	for w := range slices.Chunk(state, word) {
		slices.Reverse(w)
	}
	return state
}

func TestBlocksAreHashedIntoAGuestsState(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	for n, c := range map[uint64]struct {
		create func() hash.Hash
		word   int
		words  int
	}{
		1: {sha1.New, 4, 5}, 2: {sha256.New, 4, 8}, 3: {sha512.New, 8, 8},
	} {
		in, _ := newScripted(t, nil)
		in.ends.Control.Begin(0)
		if in.vm.memory.Reallocate(1<<20) == nil {
			t.Fatal("there is no memory")
		}
		// The state lies at an odd address, and the blocks end with the memory.
		const at = 99
		memory, h := in.bytes(), c.create()
		random.Read(memory)
		before := bytes.Clone(memory)
		state := guestState(t, h, 4, c.word, c.words)
		copy(memory[at:], state)
		for _, length := range []int{0, h.BlockSize(), 5 * h.BlockSize(), mostBlocks} {
			data := memory[len(memory)-length:]
			h.Write(data)
			in.vm.setCounter(math.MaxInt32)
			if err := blocks(in, n, at, uint64(len(memory)-length), uint64(length)); err != nil {
				t.Fatalf("hash %d, %d bytes: %v", n, length, err)
			}
			if got, want := memory[at:at+len(state)], guestState(t, h, 4, c.word, c.words); !bytes.Equal(got, want) {
				t.Errorf("hash %d, %d bytes: the state is %x, not %x", n, length, got, want)
			}
			if spent := math.MaxInt32 - in.vm.counter(); int(spent) != length/hashedByFuel {
				t.Errorf("hash %d, %d bytes: it took %d of the fuel", n, length, spent)
			}
		}
		copy(memory[at:], before[at:at+len(state)])
		if !bytes.Equal(memory, before) {
			t.Errorf("hash %d: more changed than the state", n)
		}
	}
}

func TestBlocksOfAHostileGuestAreRefused(t *testing.T) {
	const memory = 1 << 20
	for name, stack := range map[string][]uint64{
		"no hash":                          {0, 0, 0, 64},
		"a hash that there is not":         {4, 0, 0, 64},
		"a negative hash":                  {math.MaxUint32, 0, 0, 64},
		"a part of a block":                {2, 0, 0, 63},
		"a block and a part":               {2, 0, 0, 65},
		"half of a larger block":           {3, 0, 0, 64},
		"a state that ends behind memory":  {2, memory - 31, 0, 64},
		"a state behind memory":            {2, memory, 0, 64},
		"a state at the last address":      {2, math.MaxUint32, 0, 64},
		"a larger state that ends there":   {3, memory - 63, 0, 128},
		"blocks that end behind memory":    {2, 0, memory - 63, 64},
		"blocks behind memory":             {2, 0, memory, 64},
		"blocks at the last address":       {2, 0, math.MaxUint32, 64},
		"blocks of all addresses":          {2, 0, 64, math.MaxUint32 - 63},
		"blocks that end at address 0":     {2, 0, math.MaxUint32 - 63, 64},
		"more than may be hashed at once":  {2, 0, 0, mostBlocks + 64},
		"no blocks, behind memory":         {2, 0, memory + 1, 0},
		"a state and blocks behind memory": {1, memory + 64, memory + 64, 64},
	} {
		t.Run(name, func(t *testing.T) {
			in, _ := newScripted(t, nil)
			in.ends.Control.Begin(0)
			if in.vm.memory.Reallocate(memory) == nil {
				t.Fatal("there is no memory")
			}
			rand.NewChaCha8([32]byte{2}).Read(in.bytes())
			before := bytes.Clone(in.bytes())
			if err := blocks(in, stack...); err == nil {
				t.Error("it was done")
			}
			if !bytes.Equal(in.bytes(), before) {
				t.Error("memory has changed")
			}
		})
	}
}

func TestAGuestThatHashesIsKilled(t *testing.T) {
	in, _ := newScripted(t, nil)
	in.ends.Control.Begin(0)
	in.ends.Control.Force(sandbox.Cancelled)
	if err := blocks(in, 2, 0, 0, 64); !errors.Is(err, errKilled) {
		t.Errorf("it ended with %v", err)
	}
}

func BenchmarkBlocks(b *testing.B) {
	memory := make([]byte, 1<<20)
	for n, name := range []string{1: "SHA-1", 2: "SHA-256", 3: "SHA-512"} {
		for _, length := range []uint32{128, 512, 32 << 10, mostBlocks} {
			if n > 0 {
				b.Run(fmt.Sprint(name, "/", length), func(b *testing.B) {
					b.SetBytes(int64(length))
					for b.Loop() {
						if err := hashBlocks(memory, uint32(n), 0, 1<<10, length); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
