package tools

import (
	"testing"
)

// TestMayflowersQuickstart binds a server at run time and uses it in each of the ways
// that Mayflower Sandbox documents.
func TestMayflowersQuickstart(t *testing.T) {
	inEach(t, everywhere, func(*testing.T) options { return options{} }, func(t *testing.T, m *model) {
		m.bind(t, "deepwiki", newTestServer(t).wiki().url)
		const pages = "Available pages for mayflower/sandbox:\n\n- 1 Overview\n- 2 Architecture\n"
		m.prints(t, "python", `
from servers.deepwiki import tools
result = await tools.read_wiki_structure(repoName="mayflower/sandbox")
print(result)
`, pages)
		m.prints(t, "python", `
from servers.deepwiki.tools import read_wiki_structure
print(read_wiki_structure(repoName="mayflower/sandbox"))
print((await read_wiki_structure.aio("mayflower/sandbox")).count("\n"))
`, pages+"3\n")
		m.prints(t, "python", `
import mayflower_mcp
print(await mayflower_mcp.call("deepwiki", "ask_question", {"repoName": "a/b", "question": "Does it work?"}))
`, "About a/b: Does it work? Yes.\n")
		m.prints(t, "javascript", `
import { ask_question } from "servers/deepwiki";
console.log(await ask_question({ repoName: "a/b", question: "Does it work?" }));
`, "About a/b: Does it work? Yes.\n")
		m.prints(t, "typescript", `
import * as wiki from "servers/deepwiki";
const text: string = await wiki.read_wiki_structure({ repoName: "a/b" });
console.log(text.split("\n").length);
`, "4\n")
	})
}
