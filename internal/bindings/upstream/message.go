package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// The revisions of the protocol that are spoken. The first is the only one without
// sessions; of the others the server may choose.
const modern = "2026-07-28"

var legacy = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// Codes of JSON-RPC, and the one with which servers of the TypeScript SDK say, with
// the status 400, that they know no such session.
const (
	codeNoMethod      = -32601
	codeInvalidParams = -32602
	codeNoSession     = -32000
	codeVersion       = -32022
)

// message is a JSON-RPC message, either way.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

// rpcError is an answer that is an error.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// decode reads one message. Batches are not of the protocol since 2025-06-18.
func decode(data []byte) (message, error) {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return message{}, err
	}
	if bytes.Equal(m.ID, []byte("null")) {
		m.ID = nil
	}
	if m.Method == "" && m.Result == nil && m.Error == nil {
		return message{}, errors.New("it is neither a request nor an answer")
	}
	return m, nil
}

// number is the id as the number that a request of ours had; 0: it is none. Some
// servers give numbers back as strings.
func (m message) number() int64 {
	text := string(bytes.Trim(m.ID, `"`))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// isAnswer tells answers from requests and notifications.
func (m message) isAnswer() bool { return m.Method == "" }

// maxRefusal is how much of a server's own words a message has, in bytes.
const maxRefusal = 500

// outcome is what an answer says.
func (m message) outcome() (json.RawMessage, error) {
	if e := m.Error; e != nil {
		p := &problem{reason: Refused, sent: true, answered: true, code: e.Code, data: e.Data}
		return nil, p.say("it answered with the error %d: %s", e.Code, saying(e.Message, maxRefusal))
	}
	return m.Result, nil
}

// encode writes a message, without a line's end.
func encode(m message) ([]byte, error) {
	m.JSONRPC = "2.0"
	return marshal(m)
}

// marshal writes v as it is: nobody reads it as HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func request(id int64, method string, params json.RawMessage) ([]byte, error) {
	return encode(message{ID: strconv.AppendInt(nil, id, 10), Method: method, Params: params})
}

// answer is what a request of the server's gets: nothing was promised to it, so all
// but a ping is refused.
func answer(m message) ([]byte, error) {
	if m.Method == "ping" {
		return encode(message{ID: m.ID, Result: json.RawMessage("{}")})
	}
	return encode(message{ID: m.ID, Error: &rpcError{Code: codeNoMethod, Message: "paddock offers its servers nothing"}})
}
