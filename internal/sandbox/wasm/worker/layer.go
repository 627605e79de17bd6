package worker

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"paddock/internal/sandbox/wasm/linear"
)

// A layer leads from one moment to another, or from nothing to one. It is
//
//	the magic, whose digit is the format's version
//	the length of the head (u32), and the head as JSON
//	chunks: how many pages (u16, not 0), how they are written (u8), the length
//	  of what follows the numbers (u32), the pages' numbers (u32 each), ascending
//	  in all of the layer, and the pages' changes
//	the end: 0 pages (u16), and the CRC-32C of all that went before (u32)
//
// all numbers little-endian. A page's change is the page XORed with what it was
// before, in blocks of 64 bytes: first comes for each page which of them are not
// zeros (u64, a bit for each, the lowest for the first), then come those.
const layerMagic = "paddock layer 1\n"

// How the pages of a chunk are written.
const (
	asTheyAre = iota
	asZstd
	asS2
)

// fastPages is from how many pages on a layer is compressed by S2: that takes a third of
// zstd's time, and a call waits for it. What it makes is half as large again. See RATIONALE.
const fastPages = 8 << 20 / linear.PageSize

// chunkPages is how many pages are compressed together.
const chunkPages = 64

const (
	blockBytes = linear.PageSize / 64
	chunkMaps  = 8 * chunkPages
	chunkBytes = chunkMaps + chunkPages*linear.PageSize // at most
	chunkHead  = 7
	maxHead    = 4 << 10
	// chunkWindow is zstd's, a power of two that a chunk fits in.
	chunkWindow = 512 << 10
)

// layerHead says what a layer is.
type layerHead struct {
	// From and To are moments. Without From it is whole: its pages build on the
	// image with this digest, or on zeros where Image is empty.
	From  string `json:"from,omitempty"`
	To    string `json:"to"`
	Image string `json:"image,omitempty"`
	// PageSize is linear.PageSize, Bytes the memory's length.
	PageSize int    `json:"page_size"`
	Bytes    uint64 `json:"bytes"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// changes are the pages of a layer. page gives the i-th of them, in ascending
// order of their numbers: what it was before, nil for zeros, and what it is. It
// is called from several goroutines.
type changes struct {
	count int
	page  func(i int) (n uint32, before, now []byte)
}

// writeLayer writes a layer. Its chunks are made by several goroutines where
// there are many, and written in order.
func writeLayer(w io.Writer, head layerHead, pages changes) error {
	head.PageSize = linear.PageSize
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	begin := binary.LittleEndian.AppendUint32([]byte(layerMagic), uint32(len(text)))
	l := &layerWriter{w: w}
	if pages.count <= chunkPages {
		c := chunkers.Get().(*chunker)
		defer chunkers.Put(c)
		c.fast = false
		c.out = append(append(c.out[:0], begin...), text...)
		if pages.count > 0 {
			c.addChunk(pages, 0)
		}
		return l.end(c.out)
	}
	if err := l.write(append(begin, text...)); err != nil {
		return err
	}
	count := (pages.count + chunkPages - 1) / chunkPages
	if err := l.chunks(pages, count); err != nil {
		return err
	}
	return l.end(nil)
}

// layerWriter writes the parts of a layer.
type layerWriter struct {
	w   io.Writer
	sum uint32

	mu   sync.Mutex // guards what follows, and the writing of chunks
	turn *sync.Cond
	next int // the chunk that is to be written
	err  error
}

func (l *layerWriter) write(p []byte) error {
	l.sum = crc32.Update(l.sum, castagnoli, p)
	_, err := l.w.Write(p)
	return err
}

// chunks makes and writes all of a layer's.
func (l *layerWriter) chunks(pages changes, count int) error {
	l.turn = sync.NewCond(&l.mu)
	var taken atomic.Int64
	work := func() {
		c := chunkers.Get().(*chunker)
		defer chunkers.Put(c)
		c.fast, c.dense = pages.count >= fastPages, false
		for i := int(taken.Add(1)) - 1; i < count; i = int(taken.Add(1)) - 1 {
			c.out = c.out[:0]
			c.addChunk(pages, i)
			if !l.inTurn(i, c.out) {
				return
			}
		}
	}
	var all sync.WaitGroup
	for range helpers(pages.count) {
		all.Go(work)
	}
	work()
	all.Wait()
	return l.err
}

// inTurn writes chunk i after those before it, and tells whether to go on.
func (l *layerWriter) inTurn(i int, chunk []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.next != i && l.err == nil {
		l.turn.Wait()
	}
	if l.err == nil {
		l.err = l.write(chunk)
	}
	l.next++
	l.turn.Broadcast()
	return l.err == nil
}

// end completes the layer, of which last has still to be written.
func (l *layerWriter) end(last []byte) error {
	last = append(last, 0, 0)
	sum := crc32.Update(l.sum, castagnoli, last)
	_, err := l.w.Write(binary.LittleEndian.AppendUint32(last, sum))
	return err
}

// chunker makes chunks. Its buffers are used again.
type chunker struct {
	encoder *zstd.Encoder
	blocks  []uint64 // which are in the chunk, for each page
	change  []byte   // a page's
	chunk   []byte   // room for blocks, and then those
	out     []byte
	fast    bool // by S2
	dense   bool // the last chunk could not be made smaller
}

var chunkers = sync.Pool{New: func() any {
	// It can only fail for options that are wrong.
	e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(chunkWindow), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true))
	return &chunker{
		encoder: e, change: make([]byte, linear.PageSize), chunk: make([]byte, 0, chunkBytes), out: make([]byte, 0, chunkBytes+chunkBytes/64),
	}
}}

// addChunk appends chunk i of a layer to what is put out.
func (c *chunker) addChunk(pages changes, i int) {
	le := binary.LittleEndian
	first := i * chunkPages
	n := min(pages.count-first, chunkPages)
	head := len(c.out)
	c.out = append(c.out, make([]byte, chunkHead+4*n)...)
	c.blocks, c.chunk = c.blocks[:0], c.chunk[:chunkMaps]
	for k := range n {
		number, before, now := pages.page(first + k)
		le.PutUint32(c.out[head+chunkHead+4*k:], number)
		c.add(before, now)
	}
	chunk := c.chunk[chunkMaps-8*n:]
	for k, b := range c.blocks {
		le.PutUint64(chunk[8*k:], b)
	}
	data := len(c.out)
	kind := c.compress(chunk)
	le.PutUint16(c.out[head:], uint16(n))
	c.out[head+2] = kind
	le.PutUint32(c.out[head+3:], uint32(len(c.out)-data))
}

// add adds a page's change to the chunk.
func (c *chunker) add(before, now []byte) {
	if before != nil {
		subtle.XORBytes(c.change, before, now)
		now = c.change
	}
	blocks := uint64(0)
	for i := range 64 {
		if block := (*[blockBytes]byte)(now[i*blockBytes:]); *block != [blockBytes]byte{} {
			blocks |= 1 << i
			c.chunk = append(c.chunk, block[:]...)
		}
	}
	c.blocks = append(c.blocks, blocks)
}

// compress puts the chunk out, smaller if it can be, and tells how.
func (c *chunker) compress(chunk []byte) byte {
	at := len(c.out)
	if c.worthIt(chunk) {
		kind := c.encode(chunk)
		c.dense = len(c.out)-at > len(chunk)-len(chunk)/32
		if !c.dense {
			return kind
		}
	}
	c.out = append(c.out[:at], chunk...)
	return asTheyAre
}

// encode puts data out, compressed.
func (c *chunker) encode(data []byte) (kind byte) {
	if !c.fast {
		c.out = c.encoder.EncodeAll(data, c.out)
		return asZstd
	}
	at := len(c.out)
	c.out = slices.Grow(c.out, s2.MaxEncodedLen(len(data)))
	n := len(s2.Encode(c.out[at:cap(c.out)], data))
	c.out = c.out[:at+n]
	return asS2
}

// worthIt tells whether compressing the chunk is tried: after one that could
// not be made smaller, only when a part of it can be.
func (c *chunker) worthIt(chunk []byte) bool {
	if !c.dense {
		return true
	}
	part := chunk[len(chunk)-min(len(chunk), linear.PageSize):]
	at := len(c.out)
	c.encode(part)
	small := len(c.out)-at < len(part)*7/8
	c.out = c.out[:at]
	return small
}

// errDamaged is for a layer that is not what was written.
var errDamaged = errors.New("a layer of the state is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// layerReader reads a layer from anybody.
type layerReader struct {
	r    io.Reader
	sum  uint32
	head layerHead
	next uint64 // the lowest number that the next page may have
}

var decoder = sync.OnceValue(func() *zstd.Decoder {
	// It can only fail for options that are wrong.
	d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(chunkBytes), zstd.WithDecoderMaxWindow(chunkWindow))
	return d
})

// openLayer reads a layer's head. An error of r comes back as it is.
func openLayer(r io.Reader) (*layerReader, error) {
	l := &layerReader{r: r}
	begin := make([]byte, len(layerMagic)+4)
	if err := l.read(begin); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(begin[len(layerMagic):])
	if string(begin[:len(layerMagic)]) != layerMagic || n > maxHead {
		return nil, damaged("it is not one of this version")
	}
	text := make([]byte, n)
	if err := l.read(text); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &l.head); err != nil || l.head.PageSize != linear.PageSize || l.head.To == "" {
		return nil, damaged("its head is not one")
	}
	return l, nil
}

// read fills p. The end of r in between is damage.
func (l *layerReader) read(p []byte) error {
	_, err := io.ReadFull(l.r, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return damaged("it ends too early")
	}
	l.sum = crc32.Update(l.sum, castagnoli, p)
	return err
}

// each calls put with every page, for put to keep nothing of it, and checks
// what is left. It calls from several goroutines where there are many pages.
// Until it has returned without an error nothing of the layer may be trusted.
func (l *layerReader) each(put func(n uint32, change []byte)) error {
	var others sync.WaitGroup
	var failed atomic.Pointer[error]
	free := make(chan struct{}, min(mostSpread, runtime.GOMAXPROCS(0))-1) // takes one for each helper
	for first := true; ; first = false {
		c, err := l.readChunk()
		if err == nil && c == nil {
			others.Wait()
			if e := failed.Load(); e != nil {
				return *e
			}
			return l.finish()
		}
		apply := func() {
			defer readers.Put(c)
			if e := c.apply(put); e != nil {
				failed.Store(&e)
			}
		}
		switch {
		case err != nil || failed.Load() != nil:
			others.Wait()
			if e := failed.Load(); e != nil {
				err = *e
			}
			return err
		case first:
			apply()
		default:
			select {
			case free <- struct{}{}:
				others.Go(func() { apply(); <-free })
			default:
				apply()
			}
		}
	}
}

// readChunk reads the next chunk and checks its numbers; nil at the end.
func (l *layerReader) readChunk() (*chunkReader, error) {
	var head [chunkHead]byte
	if err := l.read(head[:2]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint16(head[:]))
	if n == 0 {
		return nil, nil
	}
	if n > chunkPages {
		return nil, damaged("a chunk of %d pages", n)
	}
	if err := l.read(head[2:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(head[3:])
	if size > chunkBytes {
		return nil, damaged("a chunk of %d bytes", size)
	}
	c := readers.Get().(*chunkReader)
	c.pages, c.kind, c.read = n, head[2], c.read[:4*n+int(size)]
	if err := l.read(c.read); err != nil {
		return nil, err
	}
	for i := range n {
		page := c.number(i)
		if uint64(page) < l.next || (uint64(page)+1)*linear.PageSize > l.head.Bytes {
			return nil, damaged("page %d", page)
		}
		l.next = uint64(page) + 1
	}
	return c, nil
}

// chunkReader is a chunk that was read. Its buffers are used again.
type chunkReader struct {
	pages  int
	kind   byte
	read   []byte // the numbers and the data
	plain  []byte
	change []byte // a page's
}

var readers = sync.Pool{New: func() any {
	return &chunkReader{read: make([]byte, 4*chunkPages+chunkBytes), plain: make([]byte, 0, chunkBytes), change: make([]byte, linear.PageSize)}
}}

func (c *chunkReader) number(i int) uint32 { return binary.LittleEndian.Uint32(c.read[4*i:]) }

// apply puts the chunk's pages.
func (c *chunkReader) apply(put func(n uint32, change []byte)) error {
	data := c.read[4*c.pages:]
	switch c.kind {
	case asTheyAre:
	case asZstd:
		var err error
		if data, err = decoder().DecodeAll(data, c.plain[:0]); err != nil {
			return damaged("a chunk cannot be decompressed")
		}
	case asS2:
		n, err := s2.DecodedLen(data)
		if err != nil || n > chunkBytes {
			return damaged("a chunk of %d bytes, compressed", n)
		}
		if data, err = s2.Decode(c.plain[:cap(c.plain)], data); err != nil {
			return damaged("a chunk cannot be decompressed")
		}
	default:
		return damaged("a chunk of kind %d", c.kind)
	}
	if len(data) < 8*c.pages {
		return damaged("a chunk ends too early")
	}
	maps, blocks := data[:8*c.pages], data[8*c.pages:]
	for i := range c.pages {
		var ok bool
		if blocks, ok = cutChange(blocks, binary.LittleEndian.Uint64(maps[8*i:]), c.change); !ok {
			return damaged("a chunk ends too early")
		}
		put(c.number(i), c.change)
	}
	if len(blocks) != 0 {
		return damaged("a chunk is too long")
	}
	return nil
}

// cutChange takes a page's change off the blocks; ok is false where they end
// before.
func cutChange(blocks []byte, which uint64, change []byte) (rest []byte, ok bool) {
	if len(blocks) < bits.OnesCount64(which)*blockBytes {
		return nil, false
	}
	clear(change)
	for ; which != 0; which &= which - 1 {
		copy(change[bits.TrailingZeros64(which)*blockBytes:], blocks[:blockBytes])
		blocks = blocks[blockBytes:]
	}
	return blocks, true
}

// finish checks the sum, and that nothing comes behind it.
func (l *layerReader) finish() error {
	want := l.sum
	var sum, more [4]byte
	if err := l.read(sum[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(sum[:]) != want {
		return damaged("its checksum is another")
	}
	n, err := io.ReadFull(l.r, more[:])
	if err == io.EOF {
		return nil
	}
	if n > 0 {
		return damaged("something comes behind it")
	}
	return err
}

// isZero tells whether a page holds nothing.
func isZero(page []byte) bool { return bytes.Equal(page, zeros[:len(page)]) }
