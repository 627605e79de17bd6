package skill

import (
	"context"
	"errors"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"paddock/internal/fault"
)

// maxChain is how many differences an object may be made of; git makes 50 by
// default.
const maxChain = 64

// weigh reads through a pack before anything is made of it, and says what is too
// much: objects, bytes (a difference of a few bytes can stand for gigabytes), and
// differences upon differences, each of which is made again for the next.
func weigh(ctx context.Context, pack io.Reader, limits Limits) error {
	in := packfile.NewScanner(onlyReader{pack})
	_, count, err := in.Header()
	if err != nil {
		return errPack().WithCause(err)
	}
	if int64(count) > int64(limits.Entries) {
		return errTooLarge()
	}
	chains := map[int64]int{} // by where an object begins
	sum := int64(0)
	for range count {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := in.NextObjectHeader()
		if err != nil {
			return errPack().WithCause(err)
		}
		size := h.Length
		if size < 0 || size > limits.Unpacked {
			return errTooLarge()
		}
		var head headWriter
		switch h.Type {
		case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
		case plumbing.OFSDeltaObject:
			base, known := chains[h.OffsetReference]
			if chains[h.Offset] = base + 1; !known || base+1 > maxChain {
				return errPack().WithCause(errors.New("a difference to nothing, or to too many"))
			}
		default: // by name, as nobody was asked to: how long a chain is would show too late
			return fault.New(fault.Unsupported, "the repository sends differences in a way that paddock does not read").WithHint("fetch the skill as an archive")
		}
		if chains[h.Offset] == 0 {
			chains[h.Offset] = 0
		}
		if _, _, err := in.NextObject(&head); err != nil {
			return errPack().WithCause(err)
		}
		if h.Type.IsDelta() {
			result, ok := head.result()
			if !ok {
				return errPack().WithCause(errors.New("a difference without sizes"))
			}
			size += result
		}
		if sum += size; size > limits.Unpacked || sum > limits.Unpacked {
			return errTooLarge()
		}
	}
	return nil
}

// onlyReader hides that a pack can be read again: its scanner would do so.
type onlyReader struct{ io.Reader }

// headWriter keeps the first bytes of a difference: the sizes of what it is
// applied to and of what comes out, as numbers of 7 bits a byte, lowest first.
type headWriter struct {
	head [20]byte
	n    int
}

func (w *headWriter) Write(p []byte) (int, error) {
	w.n += copy(w.head[w.n:], p)
	return len(p), nil
}

// result is how large what comes out is.
func (w *headWriter) result() (size int64, ok bool) {
	rest := w.head[:w.n]
	for range 2 {
		size, ok = 0, false
		for shift := 0; len(rest) > 0 && shift < 56; shift += 7 {
			b := rest[0]
			rest = rest[1:]
			size |= int64(b&0x7f) << shift
			if b&0x80 == 0 {
				ok = true
				break
			}
		}
		if !ok {
			return 0, false
		}
	}
	return size, true
}
