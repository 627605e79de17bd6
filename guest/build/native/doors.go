package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// words is how many a call can carry: the length of struct pd_guest's args.
const words = 10

// function is one import or export.
type function struct {
	module, name, symbol string
	params               []string
	result               string
}

// shared is a memory, table or global that is imported or exported.
type shared struct {
	module, name, symbol, ctype string
}

// module is what a guest takes and gives.
type module struct {
	name    string
	imports []function
	exports []function
	taken   []shared
	given   []shared
	hosts   int             // how many import modules its instantiation takes
	passed  map[string]bool // the imports that stand in its table
	memory  string          // the expression of its memory in its instance i, or nothing
	pages   string          // of that when it begins
}

var (
	proto   = regexp.MustCompile(`^(extern )?([\w ]+?\*?) ?(Z_(\w+?)Z_(\w*))\((.*)\);$`)
	begins  = regexp.MustCompile(`^[\w ]+\*? ?Z_\w+Z_\w*\(`)
	host    = regexp.MustCompile(`^void Z_\w+_instantiate\((.*)\);$`)
	storage = regexp.MustCompile(`(?m)^  wasm_rt_memory_t (\*?)(\w+);$`)
	pages   = regexp.MustCompile(`wasm_rt_allocate_memory\(&instance->\w+, (\d+), \d+\);`)
	passed  = regexp.MustCompile(`\(wasm_rt_function_ptr_t\)(Z_\w+), (offsetof\(\w+, \w+\)|instance->\w+)\}`)
	mangled = regexp.MustCompile(`Z[0-9A-F]{2}`)
	several = regexp.MustCompile(`^struct wasm_multi_([ijfdre]+)$`)
)

// parse reads what wasm2c says in NAME.h, and in NAME.c of the memory.
func parse(name, header, code string) (*module, error) {
	m := &module{name: name, pages: "0", passed: map[string]bool{}}
	if s := storage.FindStringSubmatch(header); s != nil {
		m.memory = fmt.Sprintf("((Z_%s_instance_t *)i)->%s", name, s[2])
		if s[1] == "" {
			m.memory = "&" + m.memory
		}
	}
	if size := pages.FindStringSubmatch(code); size != nil {
		m.pages = size[1]
	}
	for _, p := range passed.FindAllStringSubmatch(code, -1) {
		m.passed[p[1]] = true
	}
	for _, l := range joinHeads(strings.Split(header, "\n")) {
		if h := host.FindStringSubmatch(l); h != nil {
			m.hosts = strings.Count(h[1], "struct ")
		} else if p := proto.FindStringSubmatch(l); p != nil {
			m.add(p)
		} else if begins.MatchString(l) {
			return nil, fmt.Errorf("the header is not understood: %s", l)
		}
	}
	return m, nil
}

// add takes one prototype of the header.
func (m *module) add(p []string) {
	ctype, symbol, from, name := p[2], p[3], demangle(p[4]), demangle(p[5])
	own := p[4] == m.name
	switch pointer := strings.HasSuffix(ctype, "*"); {
	case pointer && own:
		m.given = append(m.given, shared{from, name, symbol, ctype})
	case pointer:
		m.taken = append(m.taken, shared{from, name, symbol, ctype})
	default:
		f := function{module: from, name: name, symbol: symbol, result: ctype}
		if params := strings.Split(p[6], ", "); len(params) > 1 {
			f.params = params[1:]
		}
		if own {
			m.exports = append(m.exports, f)
		} else {
			m.imports = append(m.imports, f)
		}
	}
}

func demangle(s string) string {
	return mangled.ReplaceAllStringFunc(s, func(z string) string {
		n, err := strconv.ParseUint(z[1:], 16, 8)
		if err != nil {
			panic(err) // the pattern has two hexadecimal digits
		}
		return string([]byte{byte(n)})
	})
}

// quote writes a name, which may be of any bytes, for C.
func quote(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '?' {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

// become tells what a module lacks that is to be one of our guests. Of another,
// the exports that cannot be called are left out.
func (m *module) become(kind kind) error {
	if kind == anyModule {
		m.exports = slices.DeleteFunc(m.exports, func(f function) bool { return !f.fits() })
		return nil
	}
	if m.memory == "" || m.pages == "0" {
		return errors.New("the guest has no memory")
	}
	if m.stackPointer() == "0" {
		return errors.New("the guest does not export __stack_pointer")
	}
	if len(m.taken) > 0 {
		return fmt.Errorf("the guest imports %s, which is not a function", m.taken[0].name)
	}
	for _, f := range slices.Concat(m.imports, m.exports) {
		if !f.fits() {
			return fmt.Errorf("%s has more than %d parameters or results", f.name, words)
		}
	}
	return nil
}

// doors is guests.c; for modules of any kind it has all that they export.
func doors(guests []*module, kind kind) (string, error) {
	var b strings.Builder
	b.WriteString("// Written by guest/build/native.\n#include \"guest.h\"\n")
	fmt.Fprintf(&b, "_Static_assert(sizeof ((pd_guest *)0)->args == %d * 8, \"guest/build/native counts otherwise\");\n", words)
	functions, others := map[string]function{}, map[string]shared{}
	for _, g := range guests {
		fmt.Fprintf(&b, "#include %q\n", g.name+".h")
		for _, f := range g.imports {
			if old, ok := functions[f.symbol]; ok && (!slices.Equal(old.params, f.params) || old.result != f.result) {
				return "", fmt.Errorf("two guests import %s.%s with different signatures", f.module, f.name)
			}
			functions[f.symbol] = f
		}
		for _, s := range g.taken {
			others[s.symbol] = s
		}
	}
	symbols := sortedKeys(functions)
	b.WriteString("\nconst struct pd_import pd_imports[] = {\n")
	for _, s := range symbols {
		fmt.Fprintf(&b, "  {%s, %s, %d},\n", quote(functions[s].module), quote(functions[s].name), len(functions[s].params))
	}
	fmt.Fprintf(&b, "  {0}\n};\nconst int pd_import_count = %d;\n\n", len(symbols))
	for n, s := range symbols {
		functions[s].stub(&b, n)
	}
	if len(others) > 0 {
		b.WriteString("void *pd_given(pd_guest *, const char *module, const char *name);\n")
	}
	for _, n := range sortedKeys(others) {
		s := others[n]
		fmt.Fprintf(&b, "%s %s(struct Z_%s_instance_t *g) { return pd_given((pd_guest *)g, %s, %s); }\n",
			s.ctype, s.symbol, mangle(s.module), quote(s.module), quote(s.name))
	}
	for _, g := range guests {
		g.table(&b)
	}
	b.WriteString("const struct pd_module *const pd_modules[] = {")
	for _, g := range guests {
		fmt.Fprintf(&b, "&%s_module, ", g.name)
	}
	b.WriteString("0};\n")
	if kind == anyModule {
		shares(&b, guests)
	}
	return b.String(), nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

var unsafeInNames = regexp.MustCompile(`[^0-9A-Ya-z_]`)

func mangle(s string) string {
	return unsafeInNames.ReplaceAllStringFunc(s, func(c string) string {
		var b strings.Builder
		for _, x := range []byte(c) {
			fmt.Fprintf(&b, "Z%02X", x)
		}
		return b.String()
	})
}

// stub is the C function that a guest calls: it hands over to the host.
func (f function) stub(b *strings.Builder, n int) {
	fmt.Fprintf(b, "%s %s(struct Z_%s_instance_t *g", f.result, f.symbol, mangle(f.module))
	for i, t := range f.params {
		fmt.Fprintf(b, ", %s a%d", t, i)
	}
	b.WriteString(") {\n")
	for i, t := range f.params {
		fmt.Fprintf(b, "  ((pd_guest *)g)->args[%d] = %s;\n", i, toWord(t, fmt.Sprintf("a%d", i)))
	}
	fmt.Fprintf(b, "  pd_ask((pd_guest *)g, %d);\n", n)
	switch results := f.results(); {
	case f.result == "void":
	case results == nil:
		fmt.Fprintf(b, "  return %s;\n", fromWord(f.result, "((pd_guest *)g)->args[0]"))
	default:
		fmt.Fprintf(b, "  %s r;\n", f.result)
		for i, r := range results {
			fmt.Fprintf(b, "  r.%s = %s;\n", r[1], fromWord(r[0], fmt.Sprintf("((pd_guest *)g)->args[%d]", i)))
		}
		b.WriteString("  return r;\n")
	}
	b.WriteString("}\n")
}

// results are the types and the fields of several results, or nil.
func (f function) results() (all [][2]string) {
	s := several.FindStringSubmatch(f.result)
	if s == nil {
		return nil
	}
	types := map[rune]string{'i': "u32", 'j': "u64", 'f': "f32", 'd': "f64", 'r': "wasm_rt_funcref_t", 'e': "wasm_rt_externref_t"}
	for i, c := range s[1] {
		all = append(all, [2]string{types[c], fmt.Sprintf("%c%d", c, i)})
	}
	return all
}

// fits tells whether a call can carry what it takes and gives.
func (f function) fits() bool { return len(f.params) <= words && len(f.results()) <= words }

func (f function) count() int {
	if f.result == "void" {
		return 0
	}
	return max(1, len(f.results()))
}

// table is a guest's exports, and how it is instantiated.
func (g *module) table(b *strings.Builder) {
	for n, f := range g.exports {
		args := []string{"i"}
		for i, t := range f.params {
			args = append(args, fromWord(t, fmt.Sprintf("a[%d]", i)))
		}
		call := fmt.Sprintf("%s(%s)", f.symbol, strings.Join(args, ", "))
		if results := f.results(); results != nil {
			call = fmt.Sprintf("%s r = %s", f.result, call)
			for i, r := range results {
				call += fmt.Sprintf("; a[%d] = %s", i, toWord(r[0], "r."+r[1]))
			}
		} else if f.result != "void" {
			call = "a[0] = " + toWord(f.result, call)
		}
		fmt.Fprintf(b, "static void %s_%d(void *i, uint64_t *a) { %s; }\n", g.name, n, call)
	}
	fmt.Fprintf(b, "static const struct pd_export %s_exports[] = {\n", g.name)
	for n, f := range g.exports {
		fmt.Fprintf(b, "  {%s, %s_%d, %d, %d},\n", quote(f.name), g.name, n, len(f.params), f.count())
	}
	b.WriteString("  {0}\n};\n")
	for _, f := range g.imports {
		g.via(b, f)
	}
	fmt.Fprintf(b, "static void %s_instantiate(void *i, pd_guest *g) { Z_%s_instantiate(i%s); }\n", g.name, g.name, strings.Repeat(", (void *)g", g.hosts))
	memory := "0"
	if g.memory != "" {
		memory = g.name + "_memory"
		fmt.Fprintf(b, "static wasm_rt_memory_t *%s(void *i) { return %s; }\n", memory, g.memory)
	}
	fmt.Fprintf(b, "static const struct pd_module %s_module = {%q, sizeof(Z_%s_instance_t), %s, Z_%s_init_module, %s_instantiate, (void *)Z_%s_free, %s, (void *)%s, %s_exports};\n",
		g.name, g.name, g.name, g.pages, g.name, g.name, g.name, memory, g.stackPointer(), g.name)
}

// via is how a function of the host is called that stands in the guest's table:
// like all that do, with the guest's instance.
func (g *module) via(b *strings.Builder, f function) {
	if !g.passed[f.symbol] {
		return
	}
	params, args := fmt.Sprintf("Z_%s_instance_t *i", g.name), fmt.Sprintf("i->Z_%s_instance", mangle(f.module))
	for i, t := range f.params {
		params += fmt.Sprintf(", %s a%d", t, i)
		args += fmt.Sprintf(", a%d", i)
	}
	fmt.Fprintf(b, "%s %s(%s) { return %s(%s); }\n", f.result, viaName(g.name, f.symbol), params, f.symbol, args)
}

func viaName(guest, symbol string) string { return "pd_via_" + guest + "_" + symbol }

// passedVia has a guest's table hold via instead of the import.
func passedVia(guest, line string) (text, declared string) {
	p := passed.FindStringSubmatch(line)
	if p == nil {
		return line, ""
	}
	name, instance := viaName(guest, p[1]), "0" // an offset
	if strings.HasPrefix(p[2], "instance") {
		instance = "instance"
	}
	text = strings.Replace(line, p[0], fmt.Sprintf("(wasm_rt_function_ptr_t)%s, %s}", name, instance), 1)
	return text, "void " + name + "(void);"
}

func (g *module) stackPointer() string {
	for _, s := range g.given {
		if s.name == "__stack_pointer" && s.ctype == "u32*" {
			return s.symbol
		}
	}
	return "0"
}

// shares lists what the modules export beside functions.
func shares(b *strings.Builder, guests []*module) {
	b.WriteString("const struct pd_shared { const char *name, *type; void *(*at)(void *instance); } ")
	for _, g := range guests {
		fmt.Fprintf(b, "%s_shared[] = {", g.name)
		for _, s := range g.given {
			fmt.Fprintf(b, "{%s, %q, (void *)%s}, ", quote(s.name), s.ctype, s.symbol)
		}
		b.WriteString("{0}}, ")
	}
	b.WriteString("*const pd_shared[] = {")
	for _, g := range guests {
		fmt.Fprintf(b, "%s_shared, ", g.name)
	}
	b.WriteString("0};\n")
}

func toWord(ctype, value string) string {
	switch ctype {
	case "f32", "f64":
		return fmt.Sprintf("pd_from_%s(%s)", ctype, value)
	case "wasm_rt_externref_t":
		return fmt.Sprintf("(uint64_t)(uintptr_t)%s", value)
	case "wasm_rt_funcref_t":
		return fmt.Sprintf("(uint64_t)(uintptr_t)(%s).func", value)
	}
	return value
}

func fromWord(ctype, value string) string {
	switch ctype {
	case "f32", "f64":
		return fmt.Sprintf("pd_to_%s(%s)", ctype, value)
	case "wasm_rt_funcref_t": // only a null reference can be given
		return "wasm_rt_funcref_null_value"
	}
	return fmt.Sprintf("(%s)%s", ctype, value)
}
