package redact

import (
	"encoding/base64"
	"encoding/json"
	"testing"
)

func TestJSONStaysJSON(t *testing.T) {
	r := New([]Text{
		{Value: []byte("hunter2-hunter2"), Instead: "(hidden)"}, {Value: []byte("1234567890"), Instead: "(hidden)"},
		{Value: []byte(`{"a":"b","c":1}`), Instead: "(hidden)"}, {Value: []byte("nothing-here"), Instead: "(hidden)"},
		{Value: []byte(`back\`), Instead: "(hidden)"},
	})
	b64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0", "id": 1,"result":{"a":[1,true,null,-1.5e3,"b"]}}`: "",
		`{"text":"a hunter2-hunter2."}`:                                      `{"text":"a (hidden)."}`,
		`{"hunter2-hunter2" : ["hunter2\u002dhunter2"]}`:                     `{"(hidden)" : ["(hidden)"]}`,
		`[1234567890,-12345678901, 123456789]`:                               `["(hidden)","(hidden)", 123456789]`,
		`{"x":{"a":"b","c":1},"y":"{\"a\":\"b\",\"c\":1}"}`:                  `{"x":{"a":"b","c":1},"y":"(hidden)"}`,
		`["\nothing-here","\\nothing-here"]`:                                 `["(hidden)","\\(hidden)"]`,
		`["back\\","back\\\\"]`:                                              `["(hidden)","(hidden)"]`,
		`{"data":"` + b64("a hunter2-hunter2!") + `"}`:                       `{"data":"` + b64("a (hidden)!") + `"}`,
		`{"blob":"hunter2-hunter2"}`:                                         `{"blob":"(hidden)"}`,
		`{"text":"` + b64("hunter2-hunter2") + `"}`:                          "?",
		`{"text":"hunter2-hunter2`:                                           "?",
		``:                                                                   "",
	} {
		got := string(r.JSON([]byte(text)))
		if want == "" {
			want = text
		}
		if want != "?" && got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
		if json.Valid([]byte(text)) && !json.Valid([]byte(got)) {
			t.Errorf("%s becomes %s, which is not JSON", text, got)
		}
		if want == "?" && (r.finds([]byte(got)) || got == text) {
			t.Errorf("%s becomes %s", text, got)
		}
	}
}

func FuzzJSON(f *testing.F) {
	r := New([]Text{{Value: []byte("hunter2\"\\\n"), Instead: "(hidden)"}, {Value: []byte("12345678"), Instead: "(hidden)"}})
	f.Add(`{"a\\":"hunter2\"\\\n","b":[12345678, -1],"data":"aHVudGVyMiJcCg=="}`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := r.JSON([]byte(text)); json.Valid([]byte(text)) && !json.Valid(got) {
			t.Errorf("%s becomes %s", text, got)
		}
	})
}
