package worker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
)

// nested is the machine for calls into a guest that is itself in a call to
// the host.
type nested struct{ *vm }

func (n nested) call(name string, args ...uint64) (uint64, error) {
	result, err := n.vm.call(name, args...)
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
		} else if asked.Op == "bytes" && !in.script.draining {
			piece := in.calls.take(asked.Reply)
			if stack[0], err = newArray(m, piece); err != nil {
				stack[0] = 0
			}
			in.ends.Calls.Reuse(piece)
			return
		} else if asked.Op != "" {
			answer = in.script.serve(asked, payload)
		}
	}
	if in.interruptDue() { // a program that does much in each call of the host is rarely asked otherwise
		answer = "!interrupted"
	}
	var value uint64
	var err error
	if asked.Raw && answer[0] == '=' {
		value, err = newArray(m, []byte(answer[1:]))
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
	Reply  uint32  `json:"reply"`  // of bytes: the call behind whose answer they came
	Key    []byte  `json:"key"`    // of hash: an HMAC with this key
}

// hostRejection tells the driver of a promise that was rejected and that
// nobody handles, or that somebody handles after all.
func hostRejection(in *instance, stack []uint64) {
	m := nested{in.vm}
	verb := "rejected"
	if uint32(stack[2]) != 0 {
		verb = "handled"
	}
	driver := in.program.driver()
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

// driver is the function of a JavaScript driver; 0 while the image is captured.
func (p *program) driver() uint64 {
	if p.image == nil || len(p.image.State) == 0 {
		return 0
	}
	return p.image.State[0]
}

// askDriver hands a request to the driver while it is itself waiting for the host.
// What fails has no answer.
func (p *program) askDriver(m machine, request any) []byte {
	text, err := json.Marshal(request)
	if err != nil || p.driver() == 0 {
		return nil
	}
	answer, err := (javascript{}).ask(m, p.driver(), "handle", string(text))
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
