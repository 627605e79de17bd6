package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"paddock/internal/sandbox/wasm/wasi"
)

// nested is the machine for calls into a guest that is itself in a call to
// the host.
type nested struct{ *vm }

func (n nested) call(name string, args ...uint64) (uint64, error) {
	result, err := n.reenter(name, args...)
	if err != nil {
		panic(err) // the guest is being unwound: go on with that
	}
	return result, nil
}

// hostCall answers a message of the driver: a line of JSON, and a payload that
// is text or a Uint8Array. The answer is text that begins with "=", or with "!"
// and an error's name; one that was asked for as bytes is a Uint8Array.
func hostCall(in *instance, stack []uint64) {
	m := nested{in.vm}
	if value, ok := promiseOf(m, stack); ok {
		stack[0] = value
		return
	}
	answer := "!EINVAL"
	var asked hostMessage
	if args, err := arguments(m, uint32(stack[3]), uint32(stack[4])); err == nil && len(args) > 0 {
		payload := ""
		if len(args) > 1 {
			payload = args[1]
		}
		if json.Unmarshal([]byte(args[0]), &asked) == nil && asked.Op == "compile" {
			if stack[0], err = evalValue(m, payload, asked.Name, evalGlobal); err != nil {
				stack[0] = 0
			}
			return
		} else if asked.Op != "" {
			answer = in.serve(asked, payload)
		}
	}
	var value uint64
	var err error
	if asked.Raw && answer[0] == '=' {
		value, err = newArray(m, answer[1:])
	} else {
		value, err = newString(m, answer)
	}
	if err != nil {
		value = 0
	}
	stack[0] = value
}

func arguments(m machine, count, array uint32) ([]string, error) {
	if count > 2 {
		return nil, errors.New("too many arguments")
	}
	addresses, err := slice(m.bytes(), array, 4*count)
	if err != nil {
		return nil, err
	}
	values := make([]uint64, count)
	for i := range values {
		values[i] = uint64(binary.LittleEndian.Uint32(addresses[4*i:]))
	}
	texts := make([]string, count)
	for i, v := range values {
		if is, err := m.call("qjs_is_string", v); err != nil || is == 0 {
			// Nothing of the program's is asked to become a text.
			if texts[i], err = getBytes(m, v); err != nil {
				return nil, err
			}
			continue
		}
		if texts[i], err = getString(m, v); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// hostMessage is what the driver asks for.
type hostMessage struct {
	Op     string  `json:"op"`
	Call   string  `json:"call"`
	Path   string  `json:"path"`
	To     string  `json:"to"`
	FD     uint32  `json:"fd"`
	Raw    bool    `json:"raw"`    // the answer shall be bytes
	Append bool    `json:"append"` // of write
	Create bool    `json:"create"` // of write: it must not be there
	Follow bool    `json:"follow"`
	Size   int64   `json:"size"`
	Atime  float64 `json:"atime"` // ms
	Mtime  float64 `json:"mtime"`
	MIME   string  `json:"mime"`
	Bytes  int     `json:"bytes"`
	Flags  string  `json:"flags"`  // of open: r, w, a (append), c (create), x (exclusive), t (truncate)
	Offset *int64  `json:"offset"` // of fread and fwrite: none is where the descriptor is
	Name   string  `json:"name"`   // of hash: the algorithm
	Key    []byte  `json:"key"`    // of hash: an HMAC with this key
}

// serve gives "=" and the answer, or "!" and an error's name.
func (in *instance) serve(m hostMessage, payload string) string {
	if in.draining {
		return "!EINTR"
	}
	switch m.Op {
	case "print":
		if m.FD == 1 || m.FD == 2 {
			in.forwardOutput(int(m.FD)-1, []byte(payload))
		}
	case "exit":
		in.exiting = true
	case "random":
		b := make([]byte, min(max(m.Bytes, 0), 1<<20))
		in.system.Random(b)
		return "=" + string(b)
	case "encode": // text to bytes and back: what the door does anyway
		return "=" + payload
	case "decode":
		return "=" + string(validUTF8([]byte(payload)))
	case "now":
		return fmt.Sprintf("=%d", in.system.Monotonic())
	case "display":
		message, err := json.Marshal(map[string]string{"op": "display", "mime": m.MIME})
		if err != nil {
			return "!EINVAL"
		}
		answer, err := in.message(append(append(message, '\n'), payload...))
		if err != nil {
			return "!EINVAL"
		}
		return "=" + string(answer)
	case "begin":
		number, _ := in.ends.Calls.Begin([]byte(payload))
		return fmt.Sprintf("=%d", number)
	case "stdin":
		return in.readAll()
	case "hash":
		return digest(m, []byte(payload))
	case "fs":
		answer, err := in.file(m, payload)
		if err != nil {
			return "!" + err.Error()
		}
		return "=" + answer
	default:
		return "!ENOSYS"
	}
	return "="
}

func (in *instance) readAll() string {
	var all []byte
	piece := make([]byte, 64<<10)
	for {
		n, ok := in.in.read(piece)
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

// file serves one call of the fs module, on the same files and by the same
// rules as WASI's calls.
func (in *instance) file(m hostMessage, payload string) (string, error) {
	s := in.system
	switch m.Call {
	case "read":
		b, err := s.ReadFile(m.Path)
		return string(b), err
	case "write":
		return "", s.WriteFile(m.Path, []byte(payload), wasi.WriteMode{Append: m.Append, Exclusive: m.Create})
	case "stat":
		info, err := s.Stat(m.Path, m.Follow)
		return encode(info), err
	case "readdir":
		entries, err := s.ReadDir(m.Path)
		return encode(entries), err
	case "mkdir":
		return "", s.Mkdir(m.Path)
	case "unlink":
		return "", s.Unlink(m.Path)
	case "rmdir":
		return "", s.Rmdir(m.Path)
	case "rename":
		return "", s.Rename(m.Path, m.To)
	case "symlink":
		return "", s.Symlink(m.To, m.Path)
	case "readlink":
		return s.Readlink(m.Path)
	case "truncate":
		return "", s.Truncate(m.Path, m.Size)
	case "utimes":
		return "", s.SetTimes(m.Path, int64(m.Atime*1e6), int64(m.Mtime*1e6))
	}
	return in.descriptor(m, payload)
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

// hostRejection tells the driver of a promise that was rejected and that
// nobody handles, or that somebody handles after all.
func hostRejection(in *instance, stack []uint64) {
	m := nested{in.vm}
	verb := "rejected"
	if uint32(stack[2]) != 0 {
		verb = "handled"
	}
	driver := in.driver()
	if driver == 0 {
		return
	}
	// Without memory for the note the run goes on without it.
	if v, err := newString(m, verb); err == nil {
		if result, err := callValue(m, driver, v, stack[0], stack[1]); err == nil {
			_ = free(m, v, stack[0], stack[1], result)
		}
	}
}

// driver is the driver's function; 0 while the image is captured.
func (in *instance) driver() uint64 {
	if in.program.image == nil || len(in.program.image.State) == 0 {
		return 0
	}
	return in.program.image.State[0]
}

// tell hands a request to the driver while it is itself waiting for the host.
// What fails has no answer.
func (in *instance) tell(m machine, request any) []byte {
	text, err := json.Marshal(request)
	if err != nil || in.driver() == 0 {
		return nil
	}
	answer, err := (javascript{}).ask(m, in.driver(), "handle", string(text))
	if err != nil {
		return nil
	}
	return answer
}

// cString is the text that ends at the first zero.
func cString(memory []byte, address uint32) string {
	if uint64(address) >= uint64(len(memory)) {
		return ""
	}
	rest := memory[address:]
	for i, c := range rest[:min(len(rest), 8192)] {
		if c == 0 {
			return string(rest[:i])
		}
	}
	return ""
}
