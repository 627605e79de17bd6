package stub

import "paddock/internal/textsafe"

// maxWhy bounds what is said about a server that has no tools here, in bytes.
const maxWhy = 500

// Missing gives the files of a server whose tools nobody knows: importing it fails, and
// says why. In JavaScript that is the name of a module which is not there, as names that
// are imported are looked for before anything of a module runs.
func Missing(server, why string) []File {
	text := textsafe.Line("the tools of the MCP server "+server+" are not known: "+why, maxWhy)
	return []File{
		{"__init__.py", []byte("raise ImportError(" + pythonText(text) + ", name=__name__)\n")},
		{"index.js", []byte("export * from " + scriptText(text) + ";\n")},
		{"index.md", []byte("# " + markdown(server) + "\n\n" + markdown(text) + "\n")},
	}
}
