package transport

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

func TestAMessageOfTooManyPartsIsRefused(t *testing.T) {
	_, err := inspect([]byte(`[` + strings.Repeat("1,", maxParts) + "1,1]"))
	if want := "parts"; err == nil {
		t.Error("got no error, want one")
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q in it", err, want)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1.0,"method":"a","params":{"b":[{"c":1},{"c":2}]}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":""}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, no := decodeMessage(data)
		if m != nil && no != nil {
			t.Fatal("a message was taken and refused")
		}
		if no != nil && !json.Valid(no.line()) {
			t.Errorf("the answer %s is not JSON", no.line())
		}
		if m == nil {
			return
		}
		again, err := jsonrpc.EncodeMessage(m)
		if err != nil {
			t.Fatalf("%q cannot be encoded again: %v", data, err)
		}
		if _, no := decodeMessage(again); no != nil {
			t.Errorf("%q became %q, which is refused: %s", data, again, no.line())
		}
	})
}
