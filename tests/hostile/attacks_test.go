package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// attack is one thing that a hostile client does, times of them at once.
type attack struct {
	times int
	run   func(ctx context.Context, c *client)
}

// act calls a tool, whatever comes of it.
func act(tool string, arguments map[string]any) func(context.Context, *client) {
	return func(ctx context.Context, c *client) { _, _, _ = c.call(ctx, tool, arguments) }
}

// both makes one of two.
func both(first, second func(context.Context, *client)) func(context.Context, *client) {
	return func(ctx context.Context, c *client) {
		first(ctx, c)
		second(ctx, c)
	}
}

const session = "hostile"

// with puts the session in.
func with(arguments map[string]any) map[string]any {
	arguments["session_id"] = session
	return arguments
}

// attacks are what was found to end the server, or to make it slow, before its own work
// was bounded.
var attacks = map[string]attack{
	"an edit that multiplies": {2, both(
		act("execute_code", with(map[string]any{"language": "python", "code": "open('a.txt','w').write('a' * (16 << 20 - 1))"})),
		act("edit_file", with(map[string]any{"path": "a.txt", "old": "a", "new": strings.Repeat("b", 8<<20-1), "replace_all": true})))},
	"patterns that cost hours": {4, both(
		act("execute_code", with(map[string]any{"language": "python", "code": "open('b.txt','w').write(('ab' * 500 + '\\n') * 1000 + 'a' * (4 << 20))"})),
		act("search_files", with(map[string]any{"pattern": strings.Repeat("(?:", 20) + strings.Repeat(`(\pL{1,30}.?){1,30}`, 30) + strings.Repeat(")?", 20) + "$"})))},
	"a slow pattern":        {4, act("search_files", with(map[string]any{"pattern": `(\w{1,100}){1,9}[^a]$`}))},
	"globs of alternatives": {4, act("list_files", with(map[string]any{"glob": "{*a*,*b*,*c*,*d*}" + strings.Repeat("{*,**,?*,*?}", 3) + "*x"}))},
	"nested JSON": {4, func(ctx context.Context, c *client) {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":` + strings.Repeat(`[0,`, 3<<20) + `1`
		if resp, err := c.post(ctx, strings.NewReader(body)); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}},
	"bodies that never end": {8, func(ctx context.Context, c *client) {
		in, out := io.Pipe()
		go func() {
			chunk := []byte(strings.Repeat(" ", 1<<20))
			for n := 0; n < 9; n++ {
				if _, err := out.Write(chunk); err != nil {
					return
				}
			}
			<-ctx.Done()
			out.CloseWithError(ctx.Err())
		}()
		if resp, err := c.post(ctx, in); err == nil {
			resp.Body.Close()
		}
		in.Close()
	}},
	"answers that nobody reads": {8, func(ctx context.Context, c *client) {
		code := "import os\nfrom paddock import display\n" + "for _ in range(10):\n    display(bytes.fromhex('89504e470d0a1a0a0000000d49484452000000010000000108020000009077' '53de') + os.urandom(3_000_000), 'image/png')\n"
		if resp, err := c.post(ctx, strings.NewReader(string(called("execute_code", map[string]any{"language": "python", "code": code})))); err == nil {
			<-ctx.Done()
			resp.Body.Close()
		}
	}},
	"backticks":                       {2, act("skill_save", map[string]any{"name": "ticks", "description": "ticks", "code": strings.Repeat("`", 262_000)})},
	"folders in each other":           {2, act("write_file", with(map[string]any{"path": strings.Repeat("d/", 190) + "f", "content": "x"}))},
	"pictures":                        {2, act("execute_code", map[string]any{"language": "python", "code": manyScans})},
	"packages with long descriptions": {2, act("install_package", with(map[string]any{"package_name": "long-descriptions"}))},
	"packages of npm":                 {2, act("install_package", with(map[string]any{"package_name": "long-descriptions"}))},
	"a server of bombs": {2, both(
		func(ctx context.Context, c *client) {
			_, _, _ = c.call(ctx, "mcp_bind_http", with(map[string]any{"name": "bombs", "url": "http://" + c.site + "/mcp"}))
		},
		act("execute_code", with(map[string]any{"language": "python", "timeout": 10, "code": "import asyncio\nfrom servers.bombs import large, costly\nasync def main():\n    return await asyncio.gather(*[large.aio() for _ in range(20)], *[costly.aio(text='a' * 90) for _ in range(20)], return_exceptions=True)\nlen(await main())"})))},
	"output": {2, act("execute_code", map[string]any{"language": "javascript", "code": "for (let i = 0; i < 1e5; i++) console.log('x'.repeat(1000))"})},
	"forks":  {1, act("fork_session", with(map[string]any{"count": 100}))},
	"uploads": {4, func(ctx context.Context, c *client) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSuffix(c.url, "/mcp")+"/v1/sessions/"+session+"/files/upload.bin", io.LimitReader(zeros{}, 1<<30))
		if err != nil {
			return
		}
		r.Header.Set("Authorization", "Bearer "+c.token)
		if resp, err := c.http.Do(r); err == nil {
			resp.Body.Close()
		}
	}},
}

// manyScans shows a JPEG of 12 million pixels that has to be gone through many times.
const manyScans = `
from paddock import display
head = bytes.fromhex('ffd8ffc2000b080bb80fa001011100ffdb004300') + b'\x01' * 64 + bytes.fromhex('ffc400141001') + b'\0' * 15 + b'\xe0'
bits = ''.join('0' + format(30000 - (1 << 14), '014b') for _ in range(7)) + '1111111'
run = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits) - 7, 8))
display(head + (bytes.fromhex('ffda0008010100013f00') + run) * 150000 + b'\xff\xd9', 'image/jpeg')
`

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// hostileSite is a server of packages and of tools that gives as much as it can.
func hostileSite() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/", func(w http.ResponseWriter, r *http.Request) {
		name := strings.Trim(strings.TrimPrefix(r.URL.Path, "/simple/"), "/")
		if strings.HasSuffix(r.URL.Path, ".metadata") {
			fmt.Fprintf(w, "Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n", name)
			for n := range 30 {
				fmt.Fprintf(w, "Requires-Dist: long-descriptions-%d\n", n)
			}
			return
		}
		w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		fmt.Fprintf(w, `{"meta":{"api-version":"1.0"},"name":%q,"files":[`, name)
		for n := range 60_000 { // some 20 MB
			if n > 0 {
				io.WriteString(w, ",")
			}
			if _, err := fmt.Fprintf(w, `{"filename":"%s-1.%d-py3-none-any.whl","url":"%s-1.%d-py3-none-any.whl","hashes":{"sha256":"%064d"},"yanked":"%s"}`, strings.ReplaceAll(name, "-", "_"), n, name, n, n, strings.Repeat("y", 200)); err != nil {
				return
			}
		}
		io.WriteString(w, `]}`)
	})
	mux.HandleFunc("/npm/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		name := strings.TrimPrefix(r.URL.Path, "/npm/")
		fmt.Fprintf(w, `{"name":%q,"dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":%q,"version":"1.0.0","dependencies":{`, name, name)
		for n := range 30 {
			fmt.Fprintf(w, `"%s-%d":"*",`, name, n)
		}
		fmt.Fprintf(w, `"last":"*"},"dist":{"tarball":"http://%s/npm/x.tgz"},"readme":"%s"}},"readme":"`, r.Host, strings.Repeat("r", 1000))
		for range 20 {
			if _, err := io.WriteString(w, strings.Repeat("d", 1<<20)); err != nil {
				return
			}
		}
		io.WriteString(w, `"}`)
	})
	mux.HandleFunc("/mcp", hostileTools)
	return mux
}

// hostileTools is a server of MCP whose definitions and answers are as large as they may be.
func hostileTools(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	say := func(result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
	switch m.Method {
	case "initialize":
		say(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bombs","version":"1"}}`)
	case "tools/list":
		pattern, _ := json.Marshal(strings.Repeat(`(?:\\pL{1,40}){1,20}`, 40) + "$")
		say(fmt.Sprintf(`{"tools":[{"name":"large","inputSchema":{"type":"object"}},{"name":"costly","description":%q,"inputSchema":{"type":"object","properties":{"text":{"type":"string","pattern":%s}}}}]}`, strings.Repeat("d", 1<<20), pattern))
	case "tools/call":
		if m.Params.Name == "large" {
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[{"type":"text","text":"`)
			for range 15 {
				io.WriteString(w, strings.Repeat("x", 1<<20))
			}
			io.WriteString(w, `"}]}}`)
			return
		}
		time.Sleep(10 * time.Millisecond)
		say(`{"content":[{"type":"text","text":"done"}]}`)
	default:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
	}
}
