package main

import (
	"slices"
	"strings"
	"testing"
)

// module is what wasm2c writes beside the functions of a small module.
const smallModule = `static void init_func_types(void) {
  func_types[0] = wasm_rt_register_func_type(1, 0, WASM_RT_I32);
  func_types[1] = wasm_rt_register_func_type(0, 0);
  func_types[2] = wasm_rt_register_func_type(1, 0, WASM_RT_I32);
}
static const wasm_elem_segment_expr_t elem_segment_exprs_w2c_e0[] = {
  {2, (wasm_rt_function_ptr_t)&w2c_f1, 0},
  {1, (wasm_rt_function_ptr_t)&w2c_f2, 0},
};
static void init_tables(Z_m_instance_t* instance) {
  wasm_rt_allocate_funcref_table(&instance->w2c_T0, 4, 4);
  funcref_table_init(&instance->w2c_T0, elem_segment_exprs_w2c_e0, 2, 1u, 0, 2, instance, func_types);
}
void Z_m_free(Z_m_instance_t* instance) {
  wasm_rt_free_funcref_table(&instance->w2c_T0);
}`

func TestATableIsConstantOnlyWhereNothingChangesIt(t *testing.T) {
	call := []string{"  CALL_INDIRECT(instance->w2c_T0, void (*)(void*, u32), 0, w2c_i1, instance, w2c_i0);"}
	tests := map[string]struct {
		old, new string // replaced in the module
		body     []string
		linked   bool
		constant bool
	}{
		"called through only":              {body: call, constant: true},
		"linked, and not handed out":       {body: call, linked: true, constant: true},
		"handed out":                       {old: "}\nvoid", new: "}\nT* get(void) {\n  return &instance->w2c_T0;\n}\nvoid", constant: true},
		"linked, and handed out":           {old: "}\nvoid", new: "}\nT* get(void) {\n  return &instance->w2c_T0;\n}\nvoid", linked: true},
		"written by a function":            {body: []string{"  funcref_table_set(&instance->w2c_T0, w2c_i0, w2c_i1);"}},
		"grown by a function":              {body: []string{"  w2c_i0 = wasm_rt_grow_funcref_table(&instance->w2c_T0, w2c_i0, w2c_i1);"}},
		"filled beyond its end":            {old: "2, 1u, 0, 2,", new: "2, 3u, 0, 2,"},
		"filled from a place not constant": {old: "2, 1u, 0, 2,", new: "2, instance->w2c_g0, 0, 2,"},
		"with an import in it":             {old: "&w2c_f2, 0}", new: "pd_via_m_Z_x, 0}"},
		"none":                             {old: "wasm_rt_allocate_funcref_table", new: "nothing"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(strings.Replace(smallModule, c.old, c.new, 1), "\n")
			found := fixedTable(lines, [][]string{c.body}, c.linked)
			if (found != nil) != c.constant {
				t.Fatalf("found: %v", found)
			}
			if found == nil {
				return
			}
			if want := []int{0, 1, 0}; !slices.Equal(found.kinds, want) {
				t.Errorf("the types are %v, not %v", found.kinds, want)
			}
			want := "const pd_entry pd_table[4] = {\n  [1] = {1, (wasm_rt_function_ptr_t)&w2c_f1},\n  [2] = {2, (wasm_rt_function_ptr_t)&w2c_f2},\n};\n"
			if got := found.define(); got != want {
				t.Errorf("the table is\n%s", got)
			}
			if rest := strings.Join(found.without(lines), "\n"); strings.Contains(rest, "elem_segment") || strings.Contains(rest, "allocate") {
				t.Errorf("what remains is\n%s", rest)
			}
		})
	}
}
