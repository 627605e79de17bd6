package stub

import (
	"fmt"
	"strings"

	"paddock/internal/bindings/schema"
	"paddock/internal/textsafe"
)

// script writes a type as TypeScript does.
func script(s *shape) string {
	switch s.form {
	case nothing:
		return "never"
	case null:
		return "null"
	case boolean:
		return "boolean"
	case integer, float:
		return "number"
	case text:
		return "string"
	case constant:
		values := make([]string, len(s.values))
		for i, v := range s.values {
			values[i] = v.JSON()
			if v.Kind == schema.String {
				values[i] = scriptText(v.Text)
			}
		}
		return strings.Join(values, " | ")
	case sequence:
		return "Array<" + script(s.of[0]) + ">"
	case tuple:
		of := make([]string, len(s.of))
		for i, o := range s.of {
			of[i] = script(o)
		}
		if s.rest != nil {
			of = append(of, "...Array<"+script(s.rest)+">")
		}
		return "[" + strings.Join(of, ", ") + "]"
	case mapping:
		return "{ [name: string]: " + script(s.of[0]) + " }"
	case either:
		of := make([]string, len(s.of))
		for i, o := range s.of {
			of[i] = script(o)
		}
		return strings.Join(of, " | ")
	case named:
		return s.record.name
	}
	return "any"
}

// scriptKey writes the name of a member.
func scriptKey(name string) string {
	if plain(name) {
		return name
	}
	return scriptText(name)
}

// scriptFile writes the module of a tool.
func (f *function) scriptFile(server string) string {
	var b strings.Builder
	b.WriteString("import { tool } from \"servers\";\n")
	for _, rec := range f.records {
		if rec.used || rec == f.input {
			scriptRecord(&b, rec)
		}
	}
	if f.input == nil {
		fmt.Fprintf(&b, "\nexport interface %sArgs {\n  [name: string]: any;\n}\n", f.tool.types)
	}
	if result := script(f.result); result != f.tool.types+"Result" {
		fmt.Fprintf(&b, "\nexport type %sResult = %s;\n", f.tool.types, result)
	}
	b.WriteByte('\n')
	comment(&b, "", append(f.doc(), f.resultDoc()...))
	fmt.Fprintf(&b, "export const %s = tool<%sArgs, %sResult>(%s, %s);\n",
		f.tool.JavaScript, f.tool.types, f.tool.types, scriptText(server), scriptText(f.tool.Tool.Name))
	if f.tool.Camel != "" {
		fmt.Fprintf(&b, "export { %s as %s };\n", f.tool.JavaScript, f.tool.Camel)
	}
	return b.String()
}

func scriptRecord(b *strings.Builder, rec *record) {
	b.WriteByte('\n')
	comment(b, "", textsafe.Lines(rec.doc, 500))
	if rec.alias != nil {
		fmt.Fprintf(b, "export type %s = %s;\n", rec.name, script(rec.alias))
		return
	}
	fmt.Fprintf(b, "export interface %s {\n", rec.name)
	for _, fd := range rec.fields {
		if d := fieldDoc(fd); d != "" {
			comment(b, "  ", []string{d})
		}
		fmt.Fprintf(b, "  %s: %s;\n", scriptKey(fd.name)+optional(fd), script(fd.shape))
	}
	if rec.open {
		b.WriteString("  [name: string]: any;\n")
	}
	b.WriteString("}\n")
}

func optional(fd field) string {
	if fd.required {
		return ""
	}
	return "?"
}
