package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/tests/mcp/suite"
)

// program is one of npm's programs as a table of the configuration.
func program(packages suite.Packages, name, bin string, args ...string) string {
	var list []string
	for _, a := range append([]string{packages.Bin(bin)}, args...) {
		list = append(list, fmt.Sprintf("%q", a))
	}
	return fmt.Sprintf("[servers.%s]\ncommand = %q\nargs = [%s]\n", name, packages.Bin("node"), strings.Join(list, ", "))
}

// TestServersOfOthersOverEachTransport has programs use servers that others wrote: the
// reference server over stdio, Streamable HTTP and the transport before it; one that
// speaks the modern era alone, over both; and the servers of files, of a memory and of
// thoughts in a row.
func TestServersOfOthersOverEachTransport(t *testing.T) {
	packages := suite.Install(t)
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "a.txt"), []byte("here\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := program(packages, "stdio", "mcp-server-everything", "stdio") +
		program(packages, "files", "mcp-server-filesystem", files) +
		program(packages, "thoughts", "mcp-server-sequential-thinking") +
		program(packages, "memory", "mcp-server-memory") + fmt.Sprintf("env = { MEMORY_FILE_PATH = %q }\n", filepath.Join(files, "memory.json")) +
		fmt.Sprintf("[servers.modern-stdio]\ncommand = %q\nargs = [%q, %q, \"stdio\"]\n", packages.Bin("node"), packages.ModernScript(t), packages.Dir)
	bound := map[string]string{
		"http": packages.Everything(t, "streamableHttp") + "/mcp", "sse": packages.Everything(t, "sse") + "/sse", "modern-http": packages.Modern(t),
	}
	inEach(t, everywhere, func(*testing.T) options { return options{config: config} }, func(t *testing.T, m *model) {
		for name, url := range bound {
			m.bind(t, name, url)
		}
		m.waitFor(t, "stdio", "files", "thoughts", "memory", "modern_stdio")
		for _, name := range []string{"stdio", "http", "sse"} {
			useEverything(t, m, name)
		}
		for _, name := range []string{"modern_stdio", "modern_http"} {
			m.prints(t, "python", fmt.Sprintf(`
from servers.%s import double, echo, fail
from servers import ToolError
print(double(z="ab"), echo(z="ü"))
try:
    fail()
except ToolError as e:
    print(e.kind, e)
`, name), "{'doubled': 'abab'} ü\ntool it did not work\n")
			m.prints(t, "typescript", fmt.Sprintf(`
import { double } from "servers/%s";
console.log((await double({ z: "ab" })).doubled);
`, name), "abab\n")
		}
		m.prints(t, "python", fmt.Sprintf(`
from servers.files import read_text_file, list_directory
from servers.memory import create_entities, search_nodes
from servers.thoughts import sequentialthinking
text = read_text_file(path=%q)
print(text)
create_entities(entities=[{"name": "paddock", "entityType": "program", "observations": ["it is safe", text["content"].strip()]}])
print([e["name"] for e in search_nodes(query="safe")["entities"]])
thought = sequentialthinking(thought="first", nextThoughtNeeded=True, thoughtNumber=1, totalThoughts=2)
print(thought["thoughtHistoryLength"])
`, filepath.Join(files, "a.txt")), "{'content': 'here\\n'}\n['paddock']\n1\n")
		m.prints(t, "javascript", `
import { read_graph } from "servers/memory";
import { sequentialthinking } from "servers/thoughts";
console.log((await read_graph()).entities[0].name);
console.log((await sequentialthinking({ thought: "second", nextThoughtNeeded: false, thoughtNumber: 2, totalThoughts: 2 })).thoughtHistoryLength);
`, "paddock\n2\n")
		if err := os.Remove(filepath.Join(files, "memory.json")); err != nil {
			t.Error(err)
		}
	})
}

// useEverything uses the reference server in Python and in JavaScript.
func useEverything(t *testing.T, m *model, name string) {
	t.Helper()
	m.prints(t, "python", fmt.Sprintf(`
from servers.%s import echo, get_sum, get_structured_content, get_tiny_image, get_resource_links
from servers import ToolError
import asyncio
print(echo(message="hi ü"))
print(await asyncio.gather(*(get_sum.aio(a=k, b=1) for k in range(3))))
print(sorted(get_structured_content(location="New York")))
picture = next(part for part in get_tiny_image() if isinstance(part, bytes))
print(picture.mime, picture[:4])
print(len([link for link in get_resource_links(count=2) if isinstance(link, dict)]))
try:
    get_sum(a="x", b=2)
except ToolError as e:
    print(e.kind, e.field)
`, name), "Echo: hi ü\n['The sum of 0 and 1 is 1.', 'The sum of 1 and 1 is 2.', 'The sum of 2 and 1 is 3.']\n['conditions', 'humidity', 'temperature']\nimage/png b'\\x89PNG'\n2\ninvalid a\n")
	m.prints(t, "javascript", fmt.Sprintf(`
import * as all from "servers/%s";
console.log(await all.echo({ message: "hi ü" }));
console.log((await Promise.all([1, 2, 3].map((k) => all.get_sum({ a: k, b: 1 })))).length);
const picture = (await all.get_tiny_image()).find((part) => part instanceof Uint8Array);
console.log(picture.mime, picture[1]);
try { await all.get_sum({ a: "x", b: 2 }); } catch (e) { console.log(e.name, e.kind, e.field); }
`, name), "Echo: hi ü\n3\nimage/png 80\nToolError invalid a\n")
}
