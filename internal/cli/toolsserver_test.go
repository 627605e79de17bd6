package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// What a test tells the server that it starts, by variables.
const (
	toolsDescription = "TOOLS_DESCRIPTION" // of echo
	toolsFails       = "TOOLS_FAILS"       // what it says before it ends
	toolsMore        = "TOOLS_MORE"        // what else it lists
)

// toolsServer is an MCP server of before 2026, over stdin and stdout: echo gives its
// message back, environ tells the variables' names, and fails does not work.
func toolsServer() {
	if says := os.Getenv(toolsFails); says != "" {
		fmt.Fprintln(os.Stderr, says)
		os.Exit(3)
	}
	description := os.Getenv(toolsDescription)
	if description == "" {
		description = "Gives its message back."
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      string            `json:"name"`
				Arguments map[string]string `json:"arguments"`
			} `json:"params"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil || m.Method == "" {
			continue
		}
		switch m.Method {
		case "initialize":
			answer(m.ID, "result", `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"tools-server","version":"1.2"}}`)
		case "tools/list":
			text, _ := json.Marshal(description)
			answer(m.ID, "result", `{"tools":[
				{"name":"echo","description":`+string(text)+`,"inputSchema":{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]},"annotations":{"readOnlyHint":true}},
				{"name":"environ","inputSchema":{"type":"object"}},
				{"name":"fails","inputSchema":{"type":"object"}}`+os.Getenv(toolsMore)+`]}`)
		case "tools/call":
			called(m.ID, m.Params.Name, m.Params.Arguments["message"])
		default:
			answer(m.ID, "error", `{"code":-32601,"message":"unknown"}`)
		}
	}
}

func called(id json.RawMessage, tool, message string) {
	text := message
	switch tool {
	case "environ":
		text = fmt.Sprint(os.Getenv("GREETING"), " ", os.Getenv("PADDOCK_STATE_DIR") == "")
	case "fails":
		text = "it does not work"
	}
	said, _ := json.Marshal(text)
	answer(id, "result", fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"isError":%v}`, said, tool == "fails"))
}

func answer(id json.RawMessage, as, value string) {
	var compact any
	if err := json.Unmarshal([]byte(value), &compact); err != nil {
		panic(err)
	}
	text, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, as: compact})
	fmt.Printf("%s\n", text)
}
