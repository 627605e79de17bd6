package main

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// function is one import or export.
type function struct {
	module, name, symbol, result string
	params                       []string
}

// module is what a guest takes and gives.
type module struct {
	name     string
	imports  []function
	exports  []function
	hosts    []string // the import modules, in the order of the instantiation
	pointers map[string]bool
	pages    string // of its memory when it begins
}

var (
	about = regexp.MustCompile(`^/\* (import|export): '([^']*)'(?: '([^']*)')? \*/$`)
	proto = regexp.MustCompile(`^([\w ]+?\*?) ?(Z_\w+)\((.*)\);$`)
	hosts = regexp.MustCompile(`^void Z_\w+_instantiate\((.*)\);$`)
	pages = regexp.MustCompile(`wasm_rt_allocate_memory\(&instance->\w+, (\d+), \d+\);`)
	names = regexp.MustCompile(`struct (Z_\w+_instance_t)\*`)
)

// parse reads what wasm2c says in NAME.h, and in NAME.c of the memory.
func parse(name, header, code string) (*module, error) {
	m := &module{name: name, pointers: map[string]bool{}}
	size := pages.FindStringSubmatch(code)
	if size == nil {
		return nil, errors.New("the guest has no memory")
	}
	m.pages = size[1]
	lines := strings.Split(header, "\n")
	for i, l := range lines {
		if h := hosts.FindStringSubmatch(l); h != nil {
			for _, s := range names.FindAllStringSubmatch(h[1], -1) {
				m.hosts = append(m.hosts, s[1])
			}
		}
		what := about.FindStringSubmatch(l)
		if what == nil {
			continue
		}
		p := proto.FindStringSubmatch(lines[i+1])
		if p == nil {
			return nil, fmt.Errorf("line %d of the header is not understood: %s", i+2, lines[i+1])
		}
		if strings.HasSuffix(p[1], "*") { // a memory, a table or a global
			m.pointers[what[2]] = true
			continue
		}
		f := function{result: p[1], symbol: p[2]}
		if params := strings.Split(p[3], ", "); len(params) > 1 {
			f.params = params[1:]
		}
		if what[1] == "import" {
			f.module, f.name = what[2], what[3]
			m.imports = append(m.imports, f)
		} else {
			f.name = what[2]
			m.exports = append(m.exports, f)
		}
	}
	for _, g := range []string{"memory", "__stack_pointer"} {
		if !m.pointers[g] {
			return nil, fmt.Errorf("the guest does not export %s", g)
		}
	}
	return m, nil
}

// doors is guests.c.
func doors(guests []*module) (string, error) {
	var b strings.Builder
	b.WriteString("// Written by guest/build/native.\n#include \"guest.h\"\n")
	all := map[string]function{}
	for _, g := range guests {
		fmt.Fprintf(&b, "#include %q\n", g.name+".h")
		for _, f := range g.imports {
			if old, ok := all[f.symbol]; ok && strings.Join(old.params, " ")+old.result != strings.Join(f.params, " ")+f.result {
				return "", fmt.Errorf("two guests import %s.%s with different signatures", f.module, f.name)
			}
			all[f.symbol] = f
		}
	}
	symbols := make([]string, 0, len(all))
	for s := range all {
		symbols = append(symbols, s)
	}
	sort.Strings(symbols)
	b.WriteString("\nconst struct pd_import pd_imports[] = {\n")
	for _, s := range symbols {
		fmt.Fprintf(&b, "  {%q, %q, %d},\n", all[s].module, all[s].name, len(all[s].params))
	}
	fmt.Fprintf(&b, "};\nconst int pd_import_count = %d;\n\n", len(symbols))
	for n, s := range symbols {
		all[s].stub(&b, n)
	}
	for _, g := range guests {
		g.table(&b)
	}
	b.WriteString("const struct pd_module *const pd_modules[] = {")
	for _, g := range guests {
		fmt.Fprintf(&b, "&%s_module, ", g.name)
	}
	b.WriteString("0};\n")
	return b.String(), nil
}

// stub is the C function that a guest calls: it hands over to the host.
func (f function) stub(b *strings.Builder, n int) {
	fmt.Fprintf(b, "%s %s(struct Z_%s_instance_t *g", f.result, f.symbol, f.module)
	for i, t := range f.params {
		fmt.Fprintf(b, ", %s a%d", t, i)
	}
	b.WriteString(") {\n")
	for i, t := range f.params {
		fmt.Fprintf(b, "  ((pd_guest *)g)->args[%d] = %s;\n", i, toWord(t, fmt.Sprintf("a%d", i)))
	}
	fmt.Fprintf(b, "  pd_ask((pd_guest *)g, %d);\n", n)
	if f.result != "void" {
		fmt.Fprintf(b, "  return %s;\n", fromWord(f.result, "((pd_guest *)g)->args[0]"))
	}
	b.WriteString("}\n")
}

// table is a guest's exports, and how it is instantiated.
func (g *module) table(b *strings.Builder) {
	for n, f := range g.exports {
		var args []string
		for i, t := range f.params {
			args = append(args, fromWord(t, fmt.Sprintf("a[%d]", i)))
		}
		call := fmt.Sprintf("%s(%s)", f.symbol, strings.Join(append([]string{"i"}, args...), ", "))
		if f.result != "void" {
			call = "a[0] = " + toWord(f.result, call)
		}
		fmt.Fprintf(b, "static void %s_%d(void *i, uint64_t *a) { %s; }\n", g.name, n, call)
	}
	fmt.Fprintf(b, "static const struct pd_export %s_exports[] = {\n", g.name)
	for n, f := range g.exports {
		fmt.Fprintf(b, "  {%q, %s_%d, %d, %t},\n", f.name, g.name, n, len(f.params), f.result != "void")
	}
	b.WriteString("  {0}\n};\n")
	fmt.Fprintf(b, "static void %s_instantiate(void *i, pd_guest *g) { Z_%s_instantiate(i%s); }\n", g.name, g.name, strings.Repeat(", (void *)g", len(g.hosts)))
	fmt.Fprintf(b, "static const struct pd_module %s_module = {%q, sizeof(Z_%s_instance_t), %s, Z_%s_init_module, %s_instantiate, (void *)Z_%s_free, (void *)Z_%sZ_memory, (void *)Z_%sZ___stack_pointer, %s_exports};\n",
		g.name, g.name, g.name, g.pages, g.name, g.name, g.name, g.name, g.name, g.name)
}

func toWord(ctype, value string) string {
	switch ctype {
	case "f32", "f64":
		return fmt.Sprintf("pd_from_%s(%s)", ctype, value)
	}
	return value
}

func fromWord(ctype, value string) string {
	switch ctype {
	case "f32", "f64":
		return fmt.Sprintf("pd_to_%s(%s)", ctype, value)
	}
	return fmt.Sprintf("(%s)%s", ctype, value)
}
