package worker

import (
	"fmt"

	"paddock/internal/sandbox/wasm/wasi"
	"paddock/internal/sandbox/wire/serve"
)

// scriptHost answers what a JavaScript program asks of the host through the driver. It
// belongs to the goroutine that runs the guest.
//
// A program that ends itself is exiting until its driver has concluded it. Then what it
// left behind is drained: it runs out, and the host refuses it everything.
type scriptHost struct {
	system *wasi.System
	ends   *serve.Ends
	stdin  *input
	print  func(which int, p []byte)

	exiting, draining bool
}

// serve gives "=" and the answer, or "!" and an error's name.
func (s *scriptHost) serve(m hostMessage, payload string) string {
	if s.draining {
		return "!EINTR"
	}
	switch m.Op {
	case "print":
		if m.FD == 1 || m.FD == 2 {
			s.print(int(m.FD)-1, []byte(payload))
		}
	case "exit":
		s.exiting = true
	case "random":
		b := make([]byte, min(max(m.Bytes, 0), 1<<20))
		s.system.Random(b)
		return "=" + string(b)
	case "encode": // text to bytes and back: what the door does anyway
		return "=" + payload
	case "decode":
		return "=" + string(validUTF8([]byte(payload)))
	case "now":
		return fmt.Sprintf("=%d", s.system.Monotonic())
	case "display":
		return "=" + string(s.ends.Display(m.MIME, []byte(payload)))
	case "begin":
		number, _ := s.ends.Calls.Begin([]byte(payload))
		return fmt.Sprintf("=%d", number)
	case "stdin":
		return s.readAll()
	case "hash":
		return digest(m, []byte(payload))
	case "fs":
		answer, err := scriptFiles{s.system}.serve(m, payload)
		if err != nil {
			return "!" + err.Error()
		}
		return "=" + answer
	default:
		return "!ENOSYS"
	}
	return "="
}

func (s *scriptHost) readAll() string {
	var all []byte
	piece := make([]byte, 64<<10)
	for {
		n, ok := s.stdin.read(piece)
		if !ok {
			return "!EINTR"
		}
		if n == 0 {
			break
		}
		if all = append(all, piece[:n]...); len(all) > maxStdin {
			return "!EFBIG"
		}
	}
	return "=" + string(all)
}

// maxStdin bounds what is read of the input in one piece.
const maxStdin = 64 << 20
