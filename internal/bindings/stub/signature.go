package stub

import (
	"strings"

	"paddock/internal/textsafe"
)

// Language is one that programs are written in.
type Language string

// The languages that tools can be called from. JavaScript's signatures are
// TypeScript's.
const (
	Python     Language = "python"
	TypeScript Language = "typescript"
)

// maxSignature bounds a signature, in bytes.
const maxSignature = 400

// Signature gives one line that says how the tool is called.
func (n Named) Signature(l Language) string {
	f := newFunction(n, whole)
	if l == TypeScript {
		return textsafe.Shorten(n.JavaScript+f.scriptSignature(), maxSignature)
	}
	return textsafe.Shorten(n.Python+f.signature(), maxSignature)
}

func (f *function) scriptSignature() string {
	args := "args?: { [name: string]: any }"
	if f.input != nil {
		parts, need := []string{}, false
		for _, p := range f.parameters {
			parts = append(parts, scriptKey(p.field.name)+optional(p.field)+": "+script(p.shape))
			need = need || p.required
		}
		if f.more != "" {
			parts = append(parts, "[name: string]: any")
		}
		switch {
		case len(parts) == 0:
			args = ""
		case need:
			args = "args: { " + strings.Join(parts, "; ") + " }"
		default:
			args = "args?: { " + strings.Join(parts, "; ") + " }"
		}
	}
	return "(" + args + "): Promise<" + script(f.result) + ">"
}

// Import gives the line by which a program gets the tool of a server.
func (n Named) Import(server string, l Language) string {
	if l == TypeScript {
		return "import { " + n.JavaScript + " } from " + scriptText("servers/"+Package(server))
	}
	return "from servers." + Package(server) + ".tools import " + n.Python
}
