package worker

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"hash"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

// digest is the hash of data, or its HMAC.
func digest(m hostMessage, data []byte) string {
	name := strings.ReplaceAll(strings.ToLower(m.Name), "-", "")
	if hashes[name] == nil {
		return "!EINVAL"
	}
	h := hashes[name]()
	if m.Key != nil {
		h = hmac.New(hashes[name], m.Key)
	}
	h.Write(data)
	return "=" + string(h.Sum(nil))
}

// promiseOf answers the driver's other kind of question, which is not a
// message: called with true and a promise, the host gives its state as a number
// (0 pending, 1 fulfilled, 2 rejected, -1 when it is no promise), with false
// and a promise what came of it.
func promiseOf(m machine, stack []uint64) (value uint64, ok bool) {
	if uint32(stack[3]) != 2 {
		return 0, false
	}
	list, err := slice(m.bytes(), uint32(stack[4]), 8)
	if err != nil {
		return 0, false
	}
	which, promise := uint64(binary.LittleEndian.Uint32(list)), uint64(binary.LittleEndian.Uint32(list[4:]))
	ask := func(name string, args ...uint64) uint64 {
		result, e := m.call(name, args...)
		if e != nil {
			err = e
		}
		return result
	}
	if ask("qjs_is_bool", which) == 0 {
		return 0, false
	}
	is := ask("qjs_is_promise", promise) != 0
	switch {
	case ask("qjs_get_bool", which) == 0 && is:
		value = ask("qjs_promise_result", promise)
	case is:
		value = ask("qjs_new_number", api.EncodeF64(float64(int32(uint32(ask("qjs_promise_state", promise))))))
	default:
		value = ask("qjs_new_number", api.EncodeF64(-1))
	}
	return value, err == nil
}
