package stub

import (
	"fmt"
	"strings"

	"paddock/internal/bindings/schema"
	"paddock/internal/textsafe"
)

// initFile writes the package: no tool is loaded before it is used.
func initFile(server string, tools []Named) string {
	return lazyFile("The tools of the MCP server "+server+", each a function; loaded when they are used.", tools)
}

func toolsFile(server string, tools []Named) string {
	return lazyFile("The tools of the MCP server "+server+", and nothing else.", tools)
}

func lazyFile(doc string, tools []Named) string {
	var b strings.Builder
	docstring(&b, "", textsafe.Lines(doc, 500))
	// One text is compiled in no time; a dictionary with 500 entries takes 5 ms.
	b.WriteString("from servers import lazy\n\n__all__ = \"\"\"\n")
	for _, n := range tools {
		b.WriteString("    " + n.Python + "\n")
	}
	b.WriteString("\"\"\".split()\n__getattr__, __dir__ = lazy(__name__, {name: name for name in __all__})\n")
	return b.String()
}

func pyiFile(tools []Named) string {
	var b strings.Builder
	for _, n := range tools {
		fmt.Fprintf(&b, "from .%s import %s as %s\n", n.Python, n.Python, n.Python)
	}
	return b.String()
}

// indexScript writes what plain JavaScript imports, whether it names the tools, or takes
// all of them as one object.
func indexScript(server string, tools []Named) string {
	var b strings.Builder
	var all []string
	b.WriteString("import { tool } from \"servers\";\n\n")
	for _, n := range tools {
		fmt.Fprintf(&b, "export const %s = tool(%s, %s);\n", n.JavaScript, scriptText(server), scriptText(n.Tool.Name))
		if n.Camel != "" {
			fmt.Fprintf(&b, "export { %s as %s };\n", n.JavaScript, n.Camel)
		}
		all = append(all, n.JavaScript)
		if n.Camel != "" {
			all = append(all, n.Camel+": "+n.JavaScript)
		}
	}
	fmt.Fprintf(&b, "\nexport default { %s };\n", strings.Join(all, ", "))
	return b.String()
}

func indexTypes(tools []Named) string {
	var b strings.Builder
	for _, n := range tools {
		names := []string{n.JavaScript}
		if n.Camel != "" {
			names = append(names, n.Camel)
		}
		names = append(names, "type "+n.types+"Args", "type "+n.types+"Result")
		fmt.Fprintf(&b, "export { %s } from %s;\n", strings.Join(names, ", "), scriptText("./"+n.JavaScript))
	}
	b.WriteString("export * as default from \"./index\";\n") // which also makes a module of none
	return b.String()
}

// indexText writes a line for each tool, for whoever looks around.
func indexText(server string, tools []Named, left int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# servers.%s\n\n", Package(server))
	fmt.Fprintf(&b, "Python: `from servers.%s.tools import NAME`. JavaScript: `import { NAME } from \"servers/%s\"`.\n", Package(server), Package(server))
	b.WriteString("NAME.py and NAME.ts say what a tool takes. The descriptions are the server's own words.\n\n")
	for _, n := range tools {
		told := n.Tool.Description
		if strings.TrimSpace(told) == "" {
			told = n.Tool.Title
		}
		fmt.Fprintf(&b, "- `%s`", n.Python)
		if line := textsafe.Line(told, 160); line != "" {
			b.WriteString(": " + markdown(line))
		}
		b.WriteByte('\n')
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%d more tools cannot be called from here: there are too many, or their names are used twice or too long.\n", left)
	}
	return b.String()
}

// markdown escapes what would be a link, a picture, code or HTML.
func markdown(s string) string {
	return strings.NewReplacer("`", "\\`", "[", `\[`, "]", `\]`, "<", `\<`, ">", `\>`, "!", `\!`, `\`, `\\`).Replace(s)
}

// schemasFile writes the schemas as the server sent them, byte for byte.
func schemasFile(server string, tools []Named) string {
	var b strings.Builder
	b.WriteString("{\"server\": " + jsonText(server) + ", \"tools\": [")
	for i, n := range tools {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n{\"name\": %s, \"python\": %s, \"javascript\": %s, \"description\": %s,\n \"inputSchema\": %s,\n \"outputSchema\": %s,\n \"learned\": %t}",
			jsonText(n.Tool.Name), jsonText(n.Python), jsonText(n.JavaScript), jsonText(textsafe.Shorten(n.Tool.Description, maxFile)),
			raw(n.Tool.Input), raw(n.Tool.Output), schema.Learned(n.Tool.Output))
	}
	b.WriteString("\n]}\n")
	return b.String()
}

func jsonText(s string) string {
	return schema.Value{Kind: schema.String, Text: s}.JSON()
}
