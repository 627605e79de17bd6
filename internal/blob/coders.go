package blob

import "github.com/klauspost/compress/zstd"

// coders are a few encoders or decoders that are used again and again, as they
// cost more to make than to use; they work in the goroutine that calls them.
// They keep channels of their own, and what a test makes in a bubble may not be
// used outside of it: so those that are kept are made at the start, and who finds
// none of them makes one for once.
type coders[T any] struct {
	free chan T
	make func() T
	keep func(T) bool
}

// kept is how many stay: as many as work at once as a rule.
const kept = 4

func newCoders[T comparable](create func() T, warm func(T)) coders[T] {
	all := map[T]bool{}
	c := coders[T]{free: make(chan T, kept), make: create, keep: func(one T) bool { return all[one] }}
	for range kept {
		one := create()
		warm(one)
		all[one] = true
		c.free <- one
	}
	return c
}

func (c coders[T]) get() T {
	select {
	case one := <-c.free:
		return one
	default:
		return c.make()
	}
}

// put gives back what get gave.
func (c coders[T]) put(one T) {
	if c.keep(one) {
		c.free <- one
	}
}

var encoders = newCoders(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
}, func(e *zstd.Encoder) { e.EncodeAll([]byte{0}, nil) })

var decoders = newCoders(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err)
	}
	return d
}, func(*zstd.Decoder) {})
