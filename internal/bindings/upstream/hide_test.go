package upstream

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"paddock/internal/secret/redact"
)

// tells is a server that says its variables wherever it can.
func tells() {
	key, more := os.Getenv("KEY"), os.Getenv("MORE")
	said := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	escaped := ""
	for _, c := range key {
		escaped += fmt.Sprintf(`\u%04x`, c)
	}
	fmt.Println("started with " + key + " and " + more)
	fmt.Fprintln(os.Stderr, "started with "+hex.EncodeToString([]byte(key)))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m message
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		switch id := m.number(); m.Method {
		case "initialize":
			reply(id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"instructions":`+said("use "+key)+`,"serverInfo":{"name":`+said(key)+`,"version":"1"}}`)
		case "tools/list":
			reply(id, `{"tools":[{"name":"do","description":`+said("with "+key)+`,"inputSchema":{"type":"object","properties":{`+said(key)+`:{"default":`+said(more)+`}}}}]}`)
		case "tools/call":
			var p struct {
				Arguments struct{ How string }
				Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
			if err := json.Unmarshal(m.Params, &p); err != nil {
				panic(err)
			}
			fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%s}}`+"\n", said(key))
			if p.Meta.ProgressToken != nil {
				fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":%s}}`+"\n", p.Meta.ProgressToken, said("at "+key))
			}
			switch p.Arguments.How {
			case "refuse":
				fmt.Printf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":%s,"data":{"key":%s}}}`+"\n", id, said(strings.Repeat("a", maxRefusal-8)+key), said(key))
			case "end":
				fmt.Fprintln(os.Stderr, "it ends with "+base64.StdEncoding.EncodeToString([]byte(key)))
				os.Exit(1)
			default:
				blob := said(base64.StdEncoding.EncodeToString([]byte("\x00 " + more + " \xff")))
				content := []string{
					`{"type":"text","text":` + said("it has "+strings.Join(os.Environ(), "\n")) + `}`,
					`{"type":"text","text":"` + escaped + ` ` + hex.EncodeToString([]byte(key)) + `"}`,
					`{"type":"resource","resource":{"uri":` + said("env://"+key) + `,"text":` + said("a resource of "+more) + `}}`,
					`{"type":"resource","resource":{"uri":"env://b","blob":` + blob + `}}`,
					`{"type":"resource_link","uri":"env://c","name":` + said(key) + `,"description":` + said(more) + `}`,
				}
				reply(id, fmt.Sprintf(`{"isError":%v,"content":[%s],"structuredContent":{"answer":%s,"digits":%s,%s:true,"region":%s}}`,
					p.Arguments.How == "fail", strings.Join(content, ","), said([]string{key, more}), os.Getenv("PIN"), said(key), said(os.Getenv("REGION"))))
			}
		}
	}
}

// A program repeats what it was given in all the ways that there are, and nothing of it
// comes to whom it was not given.
func TestWhatAProgramSaysHasNothingThatIsHidden(t *testing.T) {
	const key, more, pin = `ghp_hunter2"\hunter2`, "line-hunter3\nand-hunter4", "1234567890"
	var texts []redact.Text
	for _, text := range []string{key, more, "line-hunter3", "and-hunter4", pin} {
		texts = append(texts, redact.Text{Value: []byte(text), Instead: "(hidden)"})
	}
	var log bytes.Buffer
	c := dial(t, played(t, "tells", "KEY="+key, "MORE="+more, "PIN="+pin, "REGION=eu-west-1"), Options{Eras: legacyOnly{}, Hide: redact.New(texts), Log: logTo(&log)})
	told := fmt.Sprintf("%+v", c.Info())
	tools, err := c.Tools(t.Context())
	switch {
	case err != nil:
		t.Error(err)
	case len(tools) != 1:
		t.Errorf("len(tools) = %d, want 1: %+v", len(tools), tools)
	case tools[0].Description != "with (hidden)":
		t.Errorf(`tools[0].Description = %q, want "with (hidden)"`, tools[0].Description)
	case !strings.Contains(string(tools[0].Input), `{"(hidden)":{"default":"(hidden)"}}`):
		t.Errorf("tools[0].Input = %q, want %q in it",
			string(tools[0].Input), `{"(hidden)":{"default":"(hidden)"}}`)
	}
	told += fmt.Sprintf("%+v %s", tools, tools[0].Input)
	for _, how := range []string{"", "fail"} {
		r, err := c.Call(t.Context(), "do", json.RawMessage(`{"how":"`+how+`"}`), CallOptions{Progress: func(p Progress) {
			if told += p.Message; p.Message != "at (hidden)" {
				t.Errorf("its progress is %q", p.Message)
			}
		}})
		switch {
		case err != nil:
			t.Fatal(err, cause(err))
		case r.IsError != (how == "fail"):
			t.Fatalf("r.IsError = %v, want %v: %+v", r.IsError, how == "fail", r)
		case len(r.Content) != 5:
			t.Fatalf("len(r.Content) = %d, want 5: %+v", len(r.Content), r.Content)
		}
		if want := `{"answer":["(hidden)","(hidden)"],"digits":"(hidden)","(hidden)":true,"region":"eu-west-1"}`; string(r.Structured) != want {
			t.Errorf("it answered %s", r.Structured)
		}
		switch got := r.Content; {
		case got[1].Text != "(hidden) (hidden)":
			t.Errorf(`got[1].Text = %q, want "(hidden) (hidden)"`, got[1].Text)
		case got[2].Text != "a resource of (hidden)":
			t.Errorf(`got[2].Text = %q, want "a resource of (hidden)"`, got[2].Text)
		case got[2].URI != "env://(hidden)":
			t.Errorf(`got[2].URI = %q, want "env://(hidden)"`, got[2].URI)
		case string(got[3].Data) != "\x00 (hidden) \xff":
			t.Errorf("got[3].Data = %q, want %q", string(got[3].Data), "\x00 (hidden) \xff")
		case got[4].Name != "(hidden)":
			t.Errorf(`got[4].Name = %q, want "(hidden)"`, got[4].Name)
		}
		if !strings.Contains(r.Content[0].Text, "REGION=eu-west-1") {
			t.Errorf(`its environment: r.Content[0].Text = %q, want "REGION=eu-west-1" in it`, r.Content[0].Text)
		} else if !strings.Contains(r.Content[0].Text, "KEY=(hidden)") {
			t.Errorf(`its environment: r.Content[0].Text = %q, want "KEY=(hidden)" in it`, r.Content[0].Text)
		}
		told += fmt.Sprintf("%+v %s", r, r.Structured)
	}
	for _, how := range []string{"refuse", "end"} {
		_, err := c.Call(t.Context(), "do", json.RawMessage(`{"how":"`+how+`"}`), CallOptions{})
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("got error %v, want one of the type *upstream.Error", err)
		}
		if (e.Reason == Refused) != (how == "refuse") {
			t.Fatalf("the reason is %q, want refused to be %v: %v", e.Reason, how == "refuse", err)
		}
		told += fmt.Sprintf("%v %s %s %s", err, cause(err), e.Stderr, e.Data)
	}
	_ = c.Close()
	for where, text := range map[string]string{"what is told": told, "the log": log.String()} {
		for _, part := range []string{"hunter", "huntr", pin, hex.EncodeToString([]byte("hunter")), base64.StdEncoding.EncodeToString([]byte(key))[:16], "ghp_"} {
			if strings.Contains(text, part) {
				t.Errorf("%q is in %s: %s", part, where, text)
			}
		}
	}
}
