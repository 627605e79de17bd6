package schema

import (
	"encoding/json"
	"testing"
)

func TestNoneForWhatMayBeLeftOutIsNoneGiven(t *testing.T) {
	const input = `{"type":"object","required":["must"],"properties":{
		"must":{"type":"string"}, "text":{"type":"string"}, "one":{"enum":["a","b"]}, "some":{"type":["integer","boolean"]},
		"open":{"type":["string","null"]}, "either":{"anyOf":[{"type":"string"},{"type":"null"}]}, "any":{}, "listed":{"enum":["a",null]}}}`
	for _, c := range []struct{ arguments, want string }{
		{`{"must":"a","text":null,"one":null,"some":null}`, `{"must":"a"}`},
		{`{"open":null,"either":null,"any":null,"listed":null,"unknown":null}`, `{"open":null,"either":null,"any":null,"listed":null,"unknown":null}`},
		{`{"must":null,"text":"null"}`, `{"must":null,"text":"null"}`},
		{`{"text":null,"any":{"text":null},"n":1.50}`, `{"any":{"text":null},"n":1.50}`},
		{`{"text":null,"text":null}`, `{"text":null,"text":null}`}, // what cannot be read is told as that
		{`[null]`, `[null]`},
		{`null`, `null`},
	} {
		if got := Given(json.RawMessage(input), json.RawMessage(c.arguments)); string(got) != c.want {
			t.Errorf("%s: %s, want %s", c.arguments, got, c.want)
		}
	}
	if got := Given(nil, json.RawMessage(`{"a":null}`)); string(got) != `{"a":null}` {
		t.Errorf("without a schema: %s", got)
	}
}
