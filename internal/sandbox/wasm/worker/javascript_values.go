package worker

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// evalValue evaluates source and gives its value, which may be an exception.
func evalValue(m machine, source, name string, flags uint64) (uint64, error) {
	code, err := putString(m, source)
	if err != nil {
		return 0, err
	}
	file, err := putString(m, name)
	if err != nil {
		return 0, err
	}
	value, err := m.call("qjs_eval", code, uint64(len(source)), file, flags)
	if err != nil {
		return 0, err
	}
	for _, p := range []uint64{code, file} {
		if _, err := m.call("wasm_free", p); err != nil {
			return 0, err
		}
	}
	return value, nil
}

// callValue calls a function of the language.
func callValue(m machine, function uint64, args ...uint64) (uint64, error) {
	array, err := m.call("wasm_malloc", uint64(4*len(args)))
	if err != nil {
		return 0, err
	}
	room, err := slice(m.bytes(), uint32(array), uint32(4*len(args)))
	if array == 0 || err != nil {
		return 0, errMemory
	}
	for i, a := range args {
		binary.LittleEndian.PutUint32(room[4*i:], uint32(a))
	}
	this, err := m.call("qjs_get_undefined")
	if err != nil {
		return 0, err
	}
	value, err := m.call("qjs_call", function, this, uint64(len(args)), array)
	if err != nil {
		return 0, err
	}
	if _, err := m.call("wasm_free", array); err != nil {
		return 0, err
	}
	return value, free(m, this)
}

func free(m machine, values ...uint64) error {
	for _, v := range values {
		if _, err := m.call("qjs_free_value", v); err != nil {
			return err
		}
	}
	return nil
}

// putString puts text and a zero into the guest's heap.
func putString[T string | []byte](m machine, text T) (uint64, error) {
	p, err := m.call("wasm_malloc", uint64(len(text)+1))
	if err != nil {
		return 0, err
	}
	room, err := slice(m.bytes(), uint32(p), uint32(len(text)+1))
	if p == 0 || err != nil {
		return 0, errMemory
	}
	copy(room, text)
	room[len(text)] = 0
	return p, nil
}

func newString(m machine, text string) (uint64, error) {
	if !utf8.ValidString(text) {
		text = string(validUTF8([]byte(text)))
	}
	p, err := putString(m, text)
	if err != nil {
		return 0, err
	}
	value, err := m.call("qjs_new_string", p, uint64(len(text)))
	if err != nil {
		return 0, err
	}
	_, err = m.call("wasm_free", p)
	return value, err
}

// getString gives a value's text; the value stays the caller's.
func getString(m machine, value uint64) (string, error) {
	length, err := m.call("wasm_malloc", 4)
	if err != nil {
		return "", err
	}
	if length == 0 {
		return "", errMemory
	}
	text, err := m.call("qjs_get_string_len", value, length)
	if err != nil {
		return "", err
	}
	if text == 0 {
		return "", errMemory
	}
	n, err := slice(m.bytes(), uint32(length), 4)
	if err != nil {
		return "", err
	}
	b, err := slice(m.bytes(), uint32(text), binary.LittleEndian.Uint32(n))
	if err != nil {
		return "", err
	}
	s := string(validUTF8(b))
	if _, err := m.call("qjs_free_cstring", text); err != nil {
		return "", err
	}
	_, err = m.call("wasm_free", length)
	return s, err
}

// newArray makes a Uint8Array.
func newArray(m machine, content []byte) (uint64, error) {
	p, err := putString(m, content)
	if err != nil {
		return 0, err
	}
	value, err := m.call("qjs_new_uint8_array", p, uint64(len(content)))
	if err != nil {
		return 0, err
	}
	_, err = m.call("wasm_free", p)
	return value, err
}

// getBytes gives what is in a Uint8Array; nothing when value is none.
func getBytes(m machine, value uint64) (string, error) {
	p, err := putString(m, make([]byte, 16)) // offset, length, size of an item, length of all
	if err != nil {
		return "", err
	}
	buffer, err := m.call("qjs_get_typed_array_buffer", value, p, p+4, p+8)
	if err != nil {
		return "", err
	}
	if is, err := m.call("qjs_is_exception", buffer); err != nil || is != 0 {
		e, err2 := m.call("qjs_get_exception")
		return "", errors.Join(err, err2, free(m, buffer, e))
	}
	start, err := m.call("qjs_get_array_buffer", buffer, p+12)
	if err != nil {
		return "", err
	}
	places, err := slice(m.bytes(), uint32(p), 8)
	if err != nil {
		return "", err
	}
	b, err := slice(m.bytes(), uint32(start)+binary.LittleEndian.Uint32(places), binary.LittleEndian.Uint32(places[4:]))
	if err != nil {
		return "", err
	}
	content := string(b)
	_, err = m.call("wasm_free", p)
	return content, errors.Join(err, free(m, buffer))
}
