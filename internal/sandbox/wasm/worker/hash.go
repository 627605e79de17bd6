package worker

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

// mostBlocks is how many bytes a guest may have hashed at once: nothing
// interrupts that.
const mostBlocks = 256 << 10

// hashedByFuel is how many bytes are hashed for as much fuel as a loop round
// takes: it takes 10 to 30 ns, a round on wazero some 10.
const hashedByFuel = 16

// blockHash is an algorithm of which a guest has its own state: that of
// Go's, without what is left of an unfinished block, in little-endian words.
type blockHash struct {
	create func() hash.Hash
	magic  string // begins the state that Go's crypto packages save
	word   int    // bytes
	words  int    // of the state
}

// blockHashes are the algorithms by the number that glue.c gives them.
var blockHashes = [...]blockHash{
	1: {sha1.New, "sha\x01", 4, 5},
	2: {sha256.New, "sha\x03", 4, 8},
	3: {sha512.New, "sha\x07", 8, 8},
}

// hashBlocks hashes whole blocks of a guest's memory into a state in it.
func hashBlocks(memory []byte, algorithm, state, address, length uint32) error {
	if algorithm == 0 || int(algorithm) >= len(blockHashes) {
		return fmt.Errorf("the guest named a hash that there is not: %d", algorithm)
	}
	h := &blockHashes[algorithm]
	s, err := slice(memory, state, uint32(h.word*h.words))
	if err != nil {
		return err
	}
	data, err := slice(memory, address, length)
	if err != nil {
		return err
	}
	if length > mostBlocks {
		return fmt.Errorf("the guest had %d bytes hashed at once", length)
	}
	return h.update(s, data)
}

func (h *blockHash) update(state, data []byte) error {
	d := h.create()
	if len(data)%d.BlockSize() != 0 {
		return errors.New("the guest had a part of a block hashed")
	}
	saved := make([]byte, len(h.magic)+len(state)+d.BlockSize()+8) // and no unfinished block, of no length
	words := saved[copy(saved, h.magic):]
	h.swap(words, state)
	if err := d.(encoding.BinaryUnmarshaler).UnmarshalBinary(saved); err != nil {
		return err
	}
	d.Write(data)
	if _, err := d.(encoding.BinaryAppender).AppendBinary(saved[:0]); err != nil {
		return err
	}
	h.swap(state, words)
	return nil
}

// swap copies a state and turns each word's bytes around.
func (h *blockHash) swap(to, from []byte) {
	for i := 0; i < h.words*h.word; i += h.word {
		if h.word == 4 {
			binary.BigEndian.PutUint32(to[i:], binary.LittleEndian.Uint32(from[i:]))
		} else {
			binary.BigEndian.PutUint64(to[i:], binary.LittleEndian.Uint64(from[i:]))
		}
	}
}
