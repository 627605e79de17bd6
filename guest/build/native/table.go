package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	allocated  = regexp.MustCompile(`^  wasm_rt_allocate_funcref_table\(&instance->(\w+), (\d+), \d+\);$`)
	filled     = regexp.MustCompile(`^  funcref_table_init\(&instance->(\w+), (\w+), (\d+), (\d+)u, 0, (\d+), instance, func_types\);$`)
	elements   = regexp.MustCompile(`^static const wasm_elem_segment_expr_t (\w+)\[\] = \{$`)
	element    = regexp.MustCompile(`^  \{(\d+), \(wasm_rt_function_ptr_t\)&(\w+), 0\},$`)
	registered = regexp.MustCompile(`^  func_types\[(\d+)\] = (.*);$`)
)

// entry is a function in a table, and the number of its type.
type entry struct {
	kind     int
	function string
}

// table is what a module's functions are called through indirectly. Where a
// module never changes it, all instances share one constant: it costs an
// instance nothing, and a call two loads less.
type table struct {
	field   string // of the instance
	entries []entry
	kinds   []int // of each type, the first that is the same
}

// fixedTable finds the table in what wasm2c wrote beside the functions. It
// gives nil for a module that has none, or several, or one that it changes or
// that does not begin as constants say; and, of modules that are linked with
// each other, for one that another could change.
func fixedTable(rest []string, functions [][]string, linked bool) *table {
	var t *table
	segments := map[string][]entry{}
	var kinds []int
	first := map[string]int{}
	for i, l := range rest {
		if r := registered.FindStringSubmatch(l); r != nil {
			if _, ok := first[r[2]]; !ok {
				first[r[2]] = len(kinds)
			}
			kinds = append(kinds, first[r[2]])
		} else if s := elements.FindStringSubmatch(l); s != nil {
			segments[s[1]] = functionsOf(rest[i+1:])
		} else if a := allocated.FindStringSubmatch(l); a != nil {
			size, err := strconv.Atoi(a[2])
			if t != nil || err != nil || size > 1<<20 {
				return nil
			}
			t = &table{field: a[1], entries: make([]entry, size)}
		} else if f := filled.FindStringSubmatch(l); f != nil {
			from, at := segments[f[2]], number(f[4])
			if t == nil || t.field != f[1] || from == nil || len(from) != number(f[5]) || at+len(from) > len(t.entries) {
				return nil
			}
			copy(t.entries[at:], from)
		}
	}
	if t == nil || !t.constant(rest, functions) || linked && slices.Contains(rest, t.getter()) {
		return nil
	}
	t.kinds = kinds
	return t
}

// functionsOf reads elements up to their end; nil when one is not a plain function.
func functionsOf(lines []string) []entry {
	var all []entry
	for _, l := range lines {
		if l == "};" {
			return all
		}
		e := element.FindStringSubmatch(l)
		if e == nil {
			return nil
		}
		all = append(all, entry{number(e[1]), e[2]})
	}
	return nil
}

// constant tells whether nothing is done with the table but to make it and to
// call through it.
func (t *table) constant(rest []string, functions [][]string) bool {
	use := "&instance->" + t.field
	for _, l := range rest {
		at := strings.Index(l, use)
		if at >= 0 && !allocated.MatchString(l) && !filled.MatchString(l) &&
			l != "  wasm_rt_free_funcref_table("+use+");" && l != t.getter() {
			return false
		}
	}
	for _, body := range functions {
		for _, l := range body {
			if strings.Contains(l, "_table_") || strings.Contains(l, use+",") || strings.Contains(l, use+")") {
				return false
			}
		}
	}
	return true
}

// getter is the line with which a module hands its table out.
func (t *table) getter() string { return "  return &instance->" + t.field + ";" }

// declare is what the units' header says of it, in place of how wasm2c calls.
func (t *table) declare() string {
	var b strings.Builder
	b.WriteString("\n#undef CALL_INDIRECT\n#define CALL_INDIRECT(table, t, ft, x, ...) \\\n")
	fmt.Fprintf(&b, "  (LIKELY((x) < %d && pd_table[x].kind == pd_kind_##ft) || TRAP(CALL_INDIRECT), \\\n", len(t.entries))
	b.WriteString("   ((t)pd_table[x].function)(__VA_ARGS__))\n")
	for i, k := range t.kinds {
		fmt.Fprintf(&b, "enum { pd_kind_%d = %d };\n", i, k+1)
	}
	b.WriteString("typedef struct { u32 kind; wasm_rt_function_ptr_t function; } pd_entry;\n")
	fmt.Fprintf(&b, "extern %sconst pd_entry pd_table[%d];\n", hidden, len(t.entries))
	return b.String()
}

// define is the table itself, for one unit.
func (t *table) define() string {
	var b strings.Builder
	fmt.Fprintf(&b, "const pd_entry pd_table[%d] = {\n", len(t.entries))
	for i, e := range t.entries {
		if e.function != "" {
			fmt.Fprintf(&b, "  [%d] = {%d, (wasm_rt_function_ptr_t)&%s},\n", i, t.kinds[e.kind]+1, e.function)
		}
	}
	b.WriteString("};\n")
	return b.String()
}

// without gives the lines that do not make the table for each instance.
func (t *table) without(rest []string) []string {
	var kept []string
	for i := 0; i < len(rest); i++ {
		l := rest[i]
		if elements.MatchString(l) {
			for rest[i] != "};" {
				i++
			}
			continue
		}
		if !allocated.MatchString(l) && !filled.MatchString(l) {
			kept = append(kept, l)
		}
	}
	return kept
}

// number is what a regular expression has found to be digits.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 1 << 40 // larger than any table
	}
	return n
}
