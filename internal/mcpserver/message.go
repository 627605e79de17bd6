package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Bounds of what one line may hold.
const (
	maxLine  = 16 << 20
	maxDepth = 256 // arrays and objects in each other
	maxBatch = 100 // messages
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
	return encoded(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   wire            `json:"error"`
	}{"2.0", id, wire{r.code, r.message}})
}

// decodeMessage reads one JSON-RPC message that everybody would read the same:
// UTF-8, one JSON value, no key twice in an object, an id that survives the
// way through a floating point number.
func decodeMessage(data []byte) (jsonrpc.Message, *refusal) {
	id, err := inspect(data)
	switch {
	case errors.Is(err, errNotStrict):
		return nil, refuse(usable(id), jsonrpc.CodeInvalidRequest, "invalid request: %v", err)
	case err != nil:
		return nil, refuse(nil, jsonrpc.CodeParseError, "parse error: %v", err)
	}
	if id != nil && usable(id) == nil {
		return nil, refuse(nil, jsonrpc.CodeInvalidRequest, "invalid request: an id is a string or a whole number within 2^53")
	}
	msg, err := jsonrpc.DecodeMessage(data)
	if err != nil {
		return nil, refuse(id, jsonrpc.CodeInvalidRequest, "invalid request: not a JSON-RPC 2.0 message")
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
	if n, ok := wholeNumber(string(id)); ok && n >= -maxExact && n <= maxExact {
		return id
	}
	return nil
}

// errNotStrict is about JSON that is well-formed and still not accepted.
var errNotStrict = errors.New("not strict JSON")

// level is one array or object that is open.
type level struct {
	keys    map[string]bool // nil for an array
	wantKey bool
}

// inspect goes once through a JSON text and gives the "id" at its top level:
// nil when there is none, "null" or the like when it is nothing sensible.
func inspect(data []byte) (id json.RawMessage, err error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var open []level
	isID := false
	for first := true; ; first = false {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) && !first && len(open) == 0 {
			return id, nil
		}
		if err != nil {
			return id, errors.New("not JSON")
		}
		if !first && len(open) == 0 {
			return id, errors.New("more than one JSON value on a line")
		}
		if len(open) > 0 && open[len(open)-1].wantKey {
			if name, ok := tok.(string); ok {
				top := &open[len(open)-1]
				if top.keys[name] {
					return id, fmt.Errorf("%w: the key %s stands twice in an object", errNotStrict, shortQuote(name))
				}
				top.keys[name], top.wantKey = true, false
				isID = len(open) == 1 && name == "id"
				continue
			}
		}
		if isID {
			id, isID = idOf(tok), false
		}
		if open = follow(open, tok); len(open) > maxDepth {
			return id, fmt.Errorf("%w: nested more than %d deep", errNotStrict, maxDepth)
		}
	}
}

// follow opens and closes arrays and objects; after a value an object waits for
// its next key.
func follow(open []level, tok json.Token) []level {
	switch tok {
	case json.Delim('{'):
		return append(open, level{keys: map[string]bool{}, wantKey: true})
	case json.Delim('['):
		return append(open, level{})
	case json.Delim('}'), json.Delim(']'):
		open = open[:len(open)-1]
	}
	if n := len(open); n > 0 && open[n-1].keys != nil {
		open[n-1].wantKey = true
	}
	return open
}

func idOf(tok json.Token) json.RawMessage {
	switch v := tok.(type) {
	case string:
		return encoded(v)
	case json.Number:
		return json.RawMessage(v)
	}
	return json.RawMessage("null")
}

// readLine reads a line without its end. One of more than maxLine bytes is
// skipped and reported as too long. At the end of the input err is set, and
// the line may hold what stood there.
func readLine(r interface {
	ReadSlice(byte) ([]byte, error)
}) (line []byte, tooLong bool, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(piece) > maxLine; tooLong {
			line = nil
		} else {
			line = append(line, piece...)
		}
		if !errors.Is(err, errBufferFull) {
			return bytes.TrimSpace(line), tooLong, err
		}
	}
}

