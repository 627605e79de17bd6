package mcpserver

import (
	"bufio"
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

// head is what stands at the top level of a message.
type head struct {
	id      json.RawMessage // nil: there is none; "null": it is nothing sensible
	request bool            // it has a method
	reply   bool            // it has none, but a result or an error
}

// inspect goes once through a JSON text.
func inspect(data []byte) (h head, err error) {
	if !utf8.Valid(data) {
		return h, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var open []level
	top := map[string]bool{} // the keys of the outermost object
	isID := false
	for first := true; ; first = false {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) && !first && len(open) == 0 {
			h.request = top["method"]
			h.reply = !h.request && (top["result"] || top["error"])
			return h, nil
		}
		if err != nil {
			return h, errors.New("not JSON")
		}
		if !first && len(open) == 0 {
			return h, errors.New("more than one JSON value on a line")
		}
		if k := len(open) - 1; k >= 0 && open[k].wantKey && tok != json.Delim('}') {
			name, _ := tok.(string)
			if open[k].keys[name] {
				return h, fmt.Errorf("%w: the key %s stands twice in an object", errNotStrict, shortQuote(name))
			}
			open[k].keys[name], open[k].wantKey = true, false
			isID = k == 0 && name == "id"
			continue
		}
		if isID {
			h.id, isID = idOf(tok), false
		}
		if open = follow(open, tok, top); len(open) > maxDepth {
			return h, fmt.Errorf("%w: nested more than %d deep", errNotStrict, maxDepth)
		}
	}
}

// follow opens and closes arrays and objects; after a value an object waits for
// its next key. The outermost object's keys go into top.
func follow(open []level, tok json.Token, top map[string]bool) []level {
	switch tok {
	case json.Delim('{'):
		keys := map[string]bool{}
		if len(open) == 0 {
			keys = top
		}
		return append(open, level{keys: keys, wantKey: true})
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
