package notebook

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// execution is one of a session, as its JSON says.
func execution(t *testing.T, text string) (e session.Execution) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// written is a notebook of executions, read as any program reads it.
func written(t *testing.T, shown map[string][]sandbox.Display, all ...session.Execution) map[string]any {
	t.Helper()
	var out bytes.Buffer
	err := Write(&out, all, func(e session.Execution) ([]sandbox.Display, error) { return shown[e.ID], nil })
	if err != nil {
		t.Fatal(err)
	}
	var book map[string]any
	if err := json.Unmarshal(out.Bytes(), &book); err != nil {
		t.Fatal(err)
	}
	return book
}

// text is the part of a value at keys and numbers, as JSON.
func text(t *testing.T, v any, path ...any) string {
	t.Helper()
	for _, at := range path {
		switch at := at.(type) {
		case string:
			v = v.(map[string]any)[at]
		case int:
			v = v.([]any)[at]
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestASessionReadsAsANotebook(t *testing.T) {
	first := execution(t, `{"execution_id":"x-1","checkpoint":"2","language":"python","kept":true,"number":1,"code":"print(1)\n2",
		"stdout":"1\n","stderr":"w\n","result":"2","success":true,"cause":"exited","displays":[{"mime":"image/png","size":3,"kept":true},
		{"mime":"text/html","size":4,"kept":true},{"mime":"application/vnd.vega+json","size":7,"kept":true},{"mime":"image/png","size":9000000}]}`)
	second := execution(t, `{"execution_id":"x-2","checkpoint":"3","language":"bash","kept":true,"number":2,"code":"false","cause":"exited","exit_code":1}`)
	third := execution(t, `{"execution_id":"x-3","checkpoint":"4","language":"python","kept":true,"number":3,"code":"1/0","cause":"exited","exit_code":1,"stderr":"w\nTraceback:\n  line 1\n",
		"error":{"type":"ZeroDivisionError","message":"division by zero","traceback":"Traceback:\n  line 1\n"}}`)
	fourth := execution(t, `{"execution_id":"not an id","checkpoint":"5","language":"python","kept":true,"code":"while True: pass","cause":"timeout","exit_code":1}`)
	book := written(t, map[string][]sandbox.Display{"x-1": {
		{MIME: "image/png", Data: []byte("png")}, {MIME: "text/html", Data: []byte("<b/>")},
		{MIME: "application/vnd.vega+json", Data: []byte(`{"a":1}`)}, {MIME: "image/png"},
	}}, first, second, third, fourth)
	for _, c := range []struct {
		want string
		path []any
	}{
		{"4", []any{"nbformat"}},
		{"5", []any{"nbformat_minor"}},
		{`{"display_name":"Python 3","language":"python","name":"python3"}`, []any{"metadata", "kernelspec"}},
		{`"x-1"`, []any{"cells", 0, "id"}},
		{`1`, []any{"cells", 0, "execution_count"}},
		{`"print(1)\n2"`, []any{"cells", 0, "source"}},
		{`{"name":"stdout","output_type":"stream","text":"1\n"}`, []any{"cells", 0, "outputs", 0}},
		{`{"name":"stderr","output_type":"stream","text":"w\n"}`, []any{"cells", 0, "outputs", 1}},
		{`{"data":{"image/png":"cG5n"},"metadata":{},"output_type":"display_data"}`, []any{"cells", 0, "outputs", 2}},
		{`{"text/html":"\u003cb/\u003e"}`, []any{"cells", 0, "outputs", 3, "data"}},
		{`{"application/vnd.vega+json":{"a":1}}`, []any{"cells", 0, "outputs", 4, "data"}},
		{`{"text/plain":"[image/png of 9000000 bytes, which was not kept]"}`, []any{"cells", 0, "outputs", 5, "data"}},
		{`{"data":{"text/plain":"2"},"execution_count":1,"metadata":{},"output_type":"execute_result"}`, []any{"cells", 0, "outputs", 6}},
		{`"%%bash\nfalse"`, []any{"cells", 1, "source"}},
		{`"shellscript"`, []any{"cells", 1, "metadata", "vscode", "languageId"}},
		{`{"ename":"SystemExit","evalue":"1","output_type":"error","traceback":[]}`, []any{"cells", 1, "outputs", 0}},
		{`{"ename":"ZeroDivisionError","evalue":"division by zero","output_type":"error","traceback":["Traceback:","  line 1"]}`, []any{"cells", 2, "outputs", 1}},
		{`"w\n"`, []any{"cells", 2, "outputs", 0, "text"}},
		{`"cell-4"`, []any{"cells", 3, "id"}},
		{`null`, []any{"cells", 3, "execution_count"}},
		{`{"ename":"Stopped","evalue":"the program was stopped: timeout","output_type":"error","traceback":[]}`, []any{"cells", 3, "outputs", 0}},
	} {
		expect.Equal(t, strings.Trim(text(t, c.path), "[]"), text(t, book, c.path...), c.want)
	}
}

func TestTheKernelIsThatOfMostCells(t *testing.T) {
	js := execution(t, `{"execution_id":"x-1","language":"javascript","kept":true,"code":"1"}`)
	sh := execution(t, `{"execution_id":"x-2","language":"bash","kept":true,"code":"ls"}`)
	book := written(t, nil, sh, js, js)
	expect.Equal(t, "kernel", text(t, book, "metadata", "kernelspec", "name"), `"deno"`)
	expect.Equal(t, "a cell of another language", text(t, book, "cells", 0, "source"), `"ls"`)
	expect.Equal(t, "without executions", text(t, written(t, nil), "cells"), "[]")
}

func TestWhatWasNotKeptIsSaid(t *testing.T) {
	book := written(t, nil, execution(t, `{"execution_id":"x-1","checkpoint":"2","language":"python","code":"first = 1"}`))
	expect.Equal(t, "about", text(t, book, "cells", 0, "metadata", "paddock"), `{"checkpoint":"2","execution_id":"x-1","first_line_only":true}`)
	expect.Equal(t, "outputs", text(t, book, "cells", 0, "outputs"), "[]")
}

func TestADisplayIsWhatItsTypeSaysOrIsSaidNotToBe(t *testing.T) {
	e := execution(t, `{"execution_id":"x-1","language":"python","kept":true,"code":"1"}`)
	book := written(t, map[string][]sandbox.Display{"x-1": {
		{MIME: "text/plain; charset=utf-8", Data: []byte("é")}, {MIME: "application/json", Data: []byte("{")}, {MIME: "text/html", Data: []byte{0xff}},
	}}, e)
	for k, want := range []string{`{"text/plain":"é"}`, `{"text/plain":"[1 bytes that are not application/json]"}`, `{"text/plain":"[1 bytes that are not text/html]"}`} {
		expect.Equal(t, "data", text(t, book, "cells", 0, "outputs", k, "data"), want)
	}
}

func TestAProgramThatWasStoppedSaysWhy(t *testing.T) {
	e := execution(t, `{"execution_id":"x-1","language":"python","kept":true,"code":"1","cause":"timeout","exit_code":1,"error":{"type":"KeyboardInterrupt","message":"the program was interrupted"}}`)
	expect.Equal(t, "evalue", text(t, written(t, nil, e), "cells", 0, "outputs", 0, "evalue"), `"the program was interrupted; the program was stopped: timeout"`)
}

func TestADisplayThatCannotBeReadIsAnError(t *testing.T) {
	failed := errors.New("the disk")
	err := Write(&bytes.Buffer{}, []session.Execution{{ID: "x-1"}}, func(session.Execution) ([]sandbox.Display, error) { return nil, failed })
	if !errors.Is(err, failed) || !strings.Contains(err.Error(), "x-1") {
		t.Errorf("got %v", err)
	}
}
