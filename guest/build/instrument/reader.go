package instrument

import (
	"errors"
	"fmt"
)

var errShort = errors.New("the module ends too early")

// reader walks over the binary format. After an error it gives zeros, and err
// says what was wrong.
type reader struct {
	b   []byte
	err error
}

func (r *reader) byte() byte {
	b := r.take(1)
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b) {
		r.err, r.b = errShort, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u32() uint32 {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << min(shift, 63)
		if b < 0x80 {
			return uint32(v)
		}
	}
	r.err = errors.New("a number is too long")
	return 0
}

func (r *reader) s32() int32 {
	var v int64
	for shift := 0; shift < 70; {
		b := r.byte()
		v |= int64(b&0x7f) << min(shift, 63)
		shift += 7
		if b < 0x80 {
			if b&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			return int32(v)
		}
	}
	r.err = errors.New("a number is too long")
	return 0
}

func (r *reader) limits() {
	flags := r.byte()
	r.u32()
	if flags&1 != 0 {
		r.u32()
	}
}

// skipImmediates passes over what follows the opcode op.
func (r *reader) skipImmediates(op byte) error {
	switch {
	case op == 0x0e: // br_table
		for n := r.u32() + 1; n > 0 && r.err == nil; n-- {
			r.u32()
		}
	case op == 0x11, op == 0x13: // call_indirect
		r.u32()
		r.u32()
	case op == 0x1c: // select with types
		r.take(int(r.u32()))
	case op >= 0x28 && op <= 0x3e: // loads and stores
		r.u32()
		r.u32()
	case op == 0x3f, op == 0x40, op == 0xd0: // memory.size, memory.grow, ref.null
		r.byte()
	case op == 0x43: // f32.const
		r.take(4)
	case op == 0x44: // f64.const
		r.take(8)
	case op == 0xfc:
		return r.skipPrefixed()
	case op >= 0x02 && op <= 0x04, op == 0x0c, op == 0x0d, op == 0x10, op == 0x12,
		op >= 0x20 && op <= 0x26, op == 0x41, op == 0x42, op == 0xd2:
		r.u32() // one number; its sign does not matter for its length
	case op <= 0x01, op == 0x05, op == 0x0b, op == 0x0f, op == 0x1a, op == 0x1b,
		op >= 0x45 && op <= 0xc4, op == 0xd1:
	default:
		return fmt.Errorf("the instruction %#x is not known", op)
	}
	return nil
}

func (r *reader) skipPrefixed() error {
	switch sub := r.u32(); {
	case sub <= 7: // saturating conversions
	case sub == 8, sub == 10, sub == 12, sub == 14: // memory.init, memory.copy, table.init, table.copy
		r.u32()
		r.u32()
	case sub == 9, sub == 11, sub == 13, sub >= 15 && sub <= 17:
		r.u32()
	default:
		return fmt.Errorf("the instruction 0xfc %d is not known", sub)
	}
	return nil
}
