package agent

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"path"
	"strings"
	"sync"

	"paddock/guest"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire/serve"
)

var (
	//go:embed driver/boot.py
	bootPython []byte
	//go:embed driver/rewrite.js
	rewriteJavaScript []byte
	//go:embed driver/modules.js
	modulesJavaScript []byte
	//go:embed driver/driver.js
	bootJavaScript []byte
	//go:embed driver/driver.sh
	bootBash []byte
)

// pythonDriver is the text that a Python kernel executes: the driver of the
// WebAssembly guest as it is, and what that needs on Linux.
var pythonDriver = sync.OnceValues(func() ([]byte, error) {
	sources := map[string]string{}
	files, err := guest.PythonDriver.ReadDir("python")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := guest.PythonDriver.ReadFile(path.Join("python", f.Name()))
		if err != nil {
			return nil, err
		}
		sources[strings.TrimSuffix(f.Name(), ".py")] = string(text)
	}
	table, err := json.Marshal(sources) // which is a literal of Python as well
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{[]byte("SOURCES = "), table, []byte("\n"), bootPython}, nil), nil
})

// javascriptDriver is the text that Node evaluates: a script, which exports nothing.
func javascriptDriver() ([]byte, error) {
	shared := bytes.ReplaceAll(bytes.Join([][]byte{guest.JavaScriptEdits, guest.JavaScriptServers}, []byte("\n")), []byte("\nexport "), []byte("\n"))
	return bytes.Join([][]byte{shared, rewriteJavaScript, modulesJavaScript, bootJavaScript}, nil), nil
}

func bashDriver() ([]byte, error) { return bootBash, nil }

// translated answers a kernel that asks for the JavaScript of a file in TypeScript.
func (in *instance) translated(name, text string, stop <-chan struct{}) []byte {
	var answer struct {
		Code  string         `json:"code"`
		Map   string         `json:"map"`
		Error *serve.Failure `json:"error,omitempty"`
	}
	t, ok := in.agent.loop.Translate(sandbox.Source{Code: text, Name: path.Base(name)}, stop)
	if answer.Code, answer.Map = t.Code, t.Map; !ok {
		answer.Error = &serve.Failure{Type: serve.Stopped, Message: "the program was stopped"}
	} else if t.Error != nil {
		answer.Error = &serve.Failure{Type: t.Error.Type, Message: t.Error.Message, Line: t.Error.Line}
	}
	reply, err := json.Marshal(answer)
	if err != nil {
		return nil
	}
	return reply
}
