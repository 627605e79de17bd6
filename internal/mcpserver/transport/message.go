package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"paddock/internal/jsonbound"
	"paddock/internal/textsafe"
)

// Bounds of what one line may hold.
const (
	maxLine  = 16 << 20
	maxDepth = 256    // arrays and objects in each other
	maxParts = 50_000 // of all arrays and objects; no tool takes a hundredth of it
	maxBatch = 100    // messages
)

// refusal is the answer to a message that the SDK never sees.
type refusal struct {
	id      json.RawMessage // of the message; nil: not known
	code    int
	message string
}

func refuse(id json.RawMessage, code int, format string, args ...any) *refusal {
	return &refusal{id: id, code: code, message: fmt.Sprintf(format, args...)}
}

// line is the refusal as a JSON-RPC response.
func (r *refusal) line() json.RawMessage {
	type wire struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	id := r.id
	if id == nil {
		id = json.RawMessage("null")
	}
	return Encoded(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   wire            `json:"error"`
	}{"2.0", id, wire{r.code, r.message}})
}

// decodeMessage reads one JSON-RPC message that everybody would read the same:
// UTF-8, one JSON value, no key twice in an object, an id that survives the
// way through a floating point number. Neither a message nor a refusal means
// that it was an answer to nothing, which must not be answered in turn.
func decodeMessage(data []byte) (jsonrpc.Message, *refusal) {
	h, err := inspect(data)
	switch {
	case errors.Is(err, errNotStrict):
		return nil, refuse(usable(h.id), jsonrpc.CodeInvalidRequest, "invalid request: %v", err)
	case err != nil:
		return nil, refuse(nil, jsonrpc.CodeParseError, "parse error: %v", err)
	case h.reply && usable(h.id) == nil:
		return nil, nil
	case h.id != nil && usable(h.id) == nil:
		return nil, refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: an id is a string or a whole number within 2^53")
	}
	msg, err := jsonrpc.DecodeMessage(data)
	switch {
	case err != nil && h.reply:
		return nil, nil
	case err != nil, !h.request && !h.reply: // the SDK takes the latter for a reply
		return nil, refuse(h.id, jsonrpc.CodeInvalidRequest, "invalid request: not a JSON-RPC 2.0 message")
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.Method == "" {
		return nil, refuse(h.id, jsonrpc.CodeInvalidRequest, "invalid request: the method is empty")
	}
	return msg, nil
}

// usable gives the id if it can be used for an answer, else nil.
func usable(id json.RawMessage) json.RawMessage {
	if len(id) == 0 {
		return nil
	}
	if id[0] == '"' {
		return id
	}
	if n, ok := WholeNumber(string(id)); ok && n >= -maxExact && n <= maxExact {
		return id
	}
	return nil
}

// WholeNumber reads a JSON number without losing digits.
func WholeNumber(raw string) (int64, bool) {
	if v, err := strconv.ParseInt(raw, 10, 64); err == nil {
		return v, true
	}
	f, err := strconv.ParseFloat(raw, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxExact {
		return 0, false
	}
	return int64(f), true
}

// maxExact is the largest whole number that every JSON reader keeps exactly.
const maxExact = 1 << 53

// errNotStrict is about JSON that is well-formed and still not accepted.
var errNotStrict = errors.New("not strict JSON")

// head is what stands at the top level of a message.
type head struct {
	id      json.RawMessage // nil: there is none; "null": it is nothing sensible
	request bool            // it has a method
	reply   bool            // it has none, but a result or an error
}

// inspect goes once through a JSON text: everything that is sent to paddock
// comes through here, so it makes no garbage of it.
func inspect(data []byte) (h head, err error) {
	if !utf8.Valid(data) {
		return h, errors.New("not UTF-8")
	}
	if err := bounded(data); err != nil {
		return h, err
	}
	if !json.Valid(data) {
		var first json.RawMessage
		if json.NewDecoder(bytes.NewReader(data)).Decode(&first) == nil {
			return h, errors.New("more than one JSON value on a line")
		}
		return h, errors.New("not JSON")
	}
	s := scan{data: data}
	err = s.value(1)
	h = s.top
	h.reply = h.reply && !h.request
	return h, err
}

// bounded refuses a text that costs far more than its bytes.
func bounded(data []byte) error {
	switch err := jsonbound.Check(data, maxDepth, maxParts); {
	case errors.Is(err, jsonbound.ErrDeep):
		return errTooDeep
	case err != nil:
		return errTooMany
	}
	return nil
}

// scan is on its way through valid JSON.
type scan struct {
	data []byte
	at   int
	top  head
}

// value goes over one value, which is nested so deep.
func (s *scan) value(depth int) error {
	switch s.space(); s.data[s.at] {
	case '{':
		return s.members(depth)
	case '[':
		return s.items(depth)
	case '"':
		s.text()
	default: // a number or a word: it ends where something else begins
		for s.at < len(s.data) && bytes.IndexByte([]byte(",]} \t\r\n"), s.data[s.at]) < 0 {
			s.at++
		}
	}
	return nil
}

func (s *scan) items(depth int) error {
	for s.at++; s.space() != ']'; {
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if s.space() == ',' {
			s.at++
		}
	}
	s.at++
	return nil
}

func (s *scan) members(depth int) error {
	var known keys
	for s.at++; s.space() != '}'; {
		key := keyOf(s.text())
		s.space()
		s.at++ // the colon
		s.space()
		from := s.at
		if known.has(key) {
			return fmt.Errorf("%w: the key %s stands twice in an object", errNotStrict, textsafe.QuoteShort(string(key)))
		}
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if depth == 1 {
			s.top.take(key, s.data[from:s.at])
		}
		if s.space() == ',' {
			s.at++
		}
	}
	s.at++
	return nil
}

var (
	errTooDeep = fmt.Errorf("%w: nested more than %d deep", errNotStrict, maxDepth)
	errTooMany = fmt.Errorf("%w: it has more than %d parts", errNotStrict, maxParts)
)

// space goes over white space and gives what follows.
func (s *scan) space() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// text goes over a string and gives it as it stands, with its quotes.
func (s *scan) text() []byte {
	from := s.at
	for s.at++; s.data[s.at] != '"'; s.at++ {
		if s.data[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	return s.data[from:s.at]
}

// keyOf is what a string says.
func keyOf(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var key string
	_ = json.Unmarshal(quoted, &key) // it is valid
	return []byte(key)
}

// keys are those of one object.
type keys struct {
	few  [][]byte // while there are
	many map[string]bool
}

// has reports whether a key was there before, and takes it in.
func (k *keys) has(key []byte) bool {
	if k.many == nil && len(k.few) < 16 {
		for _, other := range k.few {
			if bytes.Equal(other, key) {
				return true
			}
		}
		k.few = append(k.few, key)
		return false
	}
	if k.many == nil {
		k.many = map[string]bool{}
		for _, other := range k.few {
			k.many[string(other)] = true
		}
	}
	if k.many[string(key)] {
		return true
	}
	k.many[string(key)] = true
	return false
}

// take looks at one member of the message itself.
func (h *head) take(key, value []byte) {
	switch string(key) {
	case "method":
		h.request = true
	case "result", "error":
		h.reply = true
	case "id":
		h.id = idOf(value)
	}
}

// idOf gives an id in the one form that it has here; what cannot be one is null.
func idOf(value []byte) json.RawMessage {
	switch c := value[0]; {
	case c == '"':
		return Encoded(string(keyOf(value)))
	case c == '-', '0' <= c && c <= '9':
		return json.RawMessage(value)
	}
	return json.RawMessage("null")
}

// readLine reads a line without its end and the white space around it. One of
// more than maxLine bytes is skipped and reported as too long. At the end of
// the input err is set, and the line may hold what stood there.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(piece) > maxLine; tooLong {
			line = nil
		} else {
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), tooLong, err
		}
	}
}
