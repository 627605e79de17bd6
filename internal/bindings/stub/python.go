package stub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/bindings/schema"
	"paddock/internal/textsafe"
)

// python writes a type as Python does in an annotation, which is never evaluated:
// every file has annotations from __future__.
func python(s *shape) string {
	switch s.form {
	case null:
		return "None"
	case boolean:
		return "bool"
	case integer:
		return "int"
	case float:
		return "float"
	case text:
		return "str"
	case constant:
		values := make([]string, len(s.values))
		for i, v := range s.values {
			values[i] = pythonValue(v)
		}
		return "Literal[" + strings.Join(values, ", ") + "]"
	case sequence:
		return "list[" + python(s.of[0]) + "]"
	case tuple: // JSON has lists alone
		of := slices.Clone(s.of)
		if s.rest != nil {
			of = append(of, s.rest)
		}
		return "list[" + python(join(of)) + "]"
	case mapping:
		return "dict[str, " + python(s.of[0]) + "]"
	case either:
		of := make([]string, len(s.of))
		for i, o := range s.of {
			of[i] = python(o)
		}
		return strings.Join(of, " | ")
	case named:
		return s.record.name
	}
	return "Any"
}

func pythonValue(v schema.Value) string {
	switch v.Kind {
	case schema.Bool:
		if v.Bool {
			return "True"
		}
		return "False"
	case schema.String:
		return pythonText(v.Text)
	case schema.Number:
		return v.Text
	}
	return "None"
}

// parameter is one of a function's.
type parameter struct {
	field
	name string // an identifier of Python
}

// parameters names the fields of arguments, those that are required first. One
// that is an identifier keeps its name.
func parameters(fields []field) []parameter {
	all := make([]parameter, len(fields))
	used := map[string]bool{}
	for i, f := range fields {
		all[i] = parameter{field: f}
		if plain(f.name) && len(f.name) <= 2*longest && !keywordsPython[f.name] {
			all[i].name = f.name
			used[f.name] = true
		}
	}
	for i := range all {
		p := &all[i]
		if p.name != "" {
			continue
		}
		base := identifier(p.field.name, "arg_")
		if keywordsPython[base] {
			base += "_"
		}
		free := base
		for n := 2; used[free]; n++ {
			free = base + "_" + strconv.Itoa(n)
		}
		used[free] = true
		p.name = free
	}
	slices.SortStableFunc(all, func(a, b parameter) int {
		switch {
		case a.required == b.required:
			return 0
		case a.required:
			return -1
		}
		return 1
	})
	return all
}

// signature writes a function's parameters in parentheses and what it gives.
func (f *function) signature() string {
	parts := []string{}
	for _, p := range f.parameters {
		part := p.name + ": " + python(p.shape)
		if !p.required {
			part += " = ..."
		}
		parts = append(parts, part)
	}
	if f.more != "" {
		parts = append(parts, "**"+f.more+": Any")
	}
	return "(" + strings.Join(parts, ", ") + ") -> " + python(f.result)
}

// pythonFile writes the module of a tool.
func (f *function) pythonFile(server string) string {
	var types, b strings.Builder
	for _, rec := range f.records {
		if rec.used {
			f.pythonRecord(&types, rec)
		}
	}
	var body strings.Builder
	mapping := make([]string, len(f.parameters))
	for i, p := range f.parameters {
		mapping[i] = pythonText(p.name) + ": " + pythonText(p.field.name)
	}
	fmt.Fprintf(&body, "@tool(%s, %s, {%s})\n", pythonText(server), pythonText(f.tool.Tool.Name), strings.Join(mapping, ", "))
	fmt.Fprintf(&body, "def %s%s:\n", f.tool.Python, f.signature())
	docstring(&body, "    ", f.pythonDoc())
	b.WriteString("from __future__ import annotations\n\n")
	pythonImports(&b, types.String()+body.String())
	b.WriteString("\nfrom servers import tool\n\n")
	b.WriteString(types.String() + "\n" + body.String())
	return b.String()
}

// pythonImports imports what code may use of typing. A name that is only in a
// text of it is imported as well: that harms nobody.
func pythonImports(b *strings.Builder, code string) {
	names := []string{}
	for _, name := range []string{"Any", "Literal", "TypedDict"} {
		if strings.Contains(code, name) {
			names = append(names, name)
		}
	}
	if strings.Contains(code, "TypeAlias") {
		names = append([]string{"TYPE_CHECKING"}, names...)
	}
	if len(names) > 0 {
		b.WriteString("from typing import " + strings.Join(names, ", ") + "\n")
	}
	if strings.Contains(code, "TypeAlias") {
		b.WriteString("\nif TYPE_CHECKING:\n    from typing import TypeAlias\n")
	}
	if strings.Contains(code, "Required[") {
		b.WriteString("\ntry:\n    from typing import Required\nexcept ImportError:  # before Python 3.11\n    from typing import Optional as Required\n")
	}
}

func (f *function) pythonRecord(b *strings.Builder, rec *record) {
	if rec.alias != nil {
		fmt.Fprintf(b, "\n%s: TypeAlias = %s\n", rec.name, pythonText(python(rec.alias)))
		return
	}
	need := 0
	classy := true
	for _, fd := range rec.fields {
		if fd.required {
			need++
		}
		classy = classy && plain(fd.name) && !reservedPython[fd.name]
	}
	all := need == len(rec.fields) && need > 0
	total := ", total=False"
	if all {
		total = ""
	}
	annotation := func(fd field) string {
		if fd.required && !all {
			return "Required[" + python(fd.shape) + "]"
		}
		return python(fd.shape)
	}
	if !classy {
		fmt.Fprintf(b, "\n%s = TypedDict(%s, {\n", rec.name, pythonText(rec.name))
		for _, fd := range rec.fields {
			fmt.Fprintf(b, "    %s: %s,%s\n", pythonText(fd.name), pythonText(annotation(fd)), remark(fd.doc))
		}
		b.WriteString("}" + total + ")\n")
		return
	}
	fmt.Fprintf(b, "\nclass %s(TypedDict%s):\n", rec.name, total)
	docstring(b, "    ", textsafe.Lines(rec.doc, 500))
	for _, fd := range rec.fields {
		fmt.Fprintf(b, "    %s: %s%s\n", fd.name, annotation(fd), remark(fd.doc))
	}
	if len(rec.fields) == 0 {
		b.WriteString("    pass\n")
	}
}

func remark(doc string) string {
	if line := textsafe.Line(doc, 200); line != "" {
		return "  # " + line
	}
	return ""
}

// pythonDoc gives the lines of a function's docstring.
func (f *function) pythonDoc() []string {
	lines := f.doc()
	told := []string{}
	for _, p := range f.parameters {
		if d := fieldDoc(p.field); d != "" {
			told = append(told, "    "+p.name+": "+d)
		}
	}
	if len(told) > 0 {
		lines = append(append(lines, "", "Args:"), told...)
	}
	return append(lines, f.resultDoc()...)
}
