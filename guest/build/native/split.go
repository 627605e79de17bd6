package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	// wasm2c breaks a long head of a function over several lines.
	headBegins = regexp.MustCompile(`^static (?:struct )?\w+ w2c_[\w$]+\(`)
	definition = regexp.MustCompile(`^static (?:struct )?\w+ w2c_[\w$]+\(.*\) \{$`)
	prototype  = regexp.MustCompile(`^static (?:struct )?\w+ w2c_[\w$]+\(.*\);$`)
	// What makes an instance begins with the first of these that there is.
	instances = regexp.MustCompile(`^static (void init_(globals|memories|tables)\(|const (u8|wasm_elem_segment_expr_t) \w+_segment_\w+\[\])`)
	callee    = regexp.MustCompile(`instance->(\w+)\.data\[(\w+)\]\.module_instance`)
)

// hidden is what the units of one guest share: the functions of another guest
// have the same names.
const hidden = `__attribute__((visibility("hidden"))) `

// split divides one generated file. What all units need goes into a header:
// the helpers, the functions' prototypes, the macros that reach memory. With no
// units everything else is one file.
func split(name, code string, units int) (map[string]string, error) {
	lines := joinHeads(strings.Split(code, "\n"))
	first := -1
	for i, l := range lines {
		if instances.MatchString(l) || definition.MatchString(l) {
			first = i
			break
		}
	}
	if first < 0 && units == 0 {
		first = slices.Index(lines, "static bool s_module_initialized = false;")
	}
	if first < 0 {
		return nil, errors.New("it has no functions")
	}
	var common, rest, types []string
	for i, l := range lines {
		text, declared := passedVia(name, l)
		if declared != "" {
			lines[i] = text
			common = append(common, declared)
		}
	}
	for i := 0; i < first; i++ {
		l := lines[i]
		switch {
		case prototype.MatchString(l):
			common = append(common, hidden+strings.TrimPrefix(l, "static "))
		case strings.HasPrefix(l, "static u32 func_types["):
			common = append(common, "extern "+hidden+strings.TrimPrefix(l, "static "))
			types = append(types, strings.TrimPrefix(l, "static "))
		case strings.HasPrefix(l, "static bool s_module_initialized"):
			rest = append(rest, l)
		case strings.HasPrefix(l, "static void init_func_types("):
			for ; lines[i] != "}"; i++ {
				rest = append(rest, lines[i])
			}
			rest = append(rest, "}")
		default:
			common = append(common, l)
		}
	}
	var functions [][]string
	total := 0
	for i := first; i < len(lines); i++ {
		if !definition.MatchString(lines[i]) {
			rest = append(rest, lines[i])
			continue
		}
		body := []string{strings.TrimPrefix(lines[i], "static ")}
		for i++; lines[i] != "}"; i++ {
			body = append(body, lines[i])
		}
		body = append(body, "}", "")
		functions = append(functions, body)
		for _, l := range body {
			total += len(l)
		}
	}
	head, err := finish(name, strings.Join(common, "\n"))
	if err != nil {
		return nil, err
	}
	if t := fixedTable(rest, functions, units == 0); t != nil {
		head += t.declare()
		rest = append(t.without(rest), t.define())
	}
	include := fmt.Sprintf("#include %q\n", name+"_common.h")
	files := map[string]string{
		name + "_common.h": head,
		name + "_0.c":      include + strings.Join(types, "\n") + "\n" + strings.Join(rest, "\n") + "\n",
	}
	texts := make([]strings.Builder, max(1, units))
	done := 0
	for _, body := range functions {
		b := &texts[min(len(texts)-1, done*len(texts)/total)]
		for _, l := range body {
			b.WriteString(callee.ReplaceAllString(l, "instance"))
			b.WriteByte('\n')
			done += len(l)
		}
	}
	if units == 0 {
		files[name+"_0.c"] += texts[0].String()
		return files, nil
	}
	for i := range texts {
		files[fmt.Sprintf("%s_%d.c", name, i+1)] = include + texts[i].String()
	}
	return files, nil
}

func joinHeads(lines []string) []string {
	var out []string
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		if headBegins.MatchString(l) {
			for !strings.HasSuffix(l, "{") && !strings.HasSuffix(l, ";") {
				i++
				l += " " + strings.TrimSpace(lines[i])
			}
		}
		out = append(out, l)
	}
	return out
}

// segment replaces the macros that load and store: where PD_SEGMENT is set the
// memory's base is in a segment register, which leaves one more register and
// saves an addition at each access. A load that is not used may be dropped: it
// could only have trapped. PD_ACCESS as volatile keeps each where it stands.
const segment = `#ifndef PD_ACCESS
#define PD_ACCESS
#endif
#ifdef PD_SEGMENT
#define DEFINE_LOAD(name, t1, t2, t3) \
  typedef struct __attribute__((packed, may_alias)) { t1 v; } name##_at; \
  static inline t3 name(wasm_rt_memory_t* mem, u64 addr) { \
    t1 result = ((const PD_ACCESS name##_at __seg_gs*)(uintptr_t)addr)->v; \
    return (t3)(t2)result; \
  }
#define DEFINE_STORE(name, t1, t2) \
  typedef struct __attribute__((packed, may_alias)) { t1 v; } name##_at; \
  static inline void name(wasm_rt_memory_t* mem, u64 addr, t2 value) { \
    ((PD_ACCESS name##_at __seg_gs*)(uintptr_t)addr)->v = (t1)value; \
  }
#else
`

// finish ends the header of a guest.
func finish(name, text string) (string, error) {
	little := strings.Index(text, "#else\nstatic inline void load_data")
	if little < 0 {
		return "", errors.New("this is not what wasm2c 1.0.32 writes")
	}
	begin := little + strings.Index(text[little:], "#define DEFINE_LOAD")
	end := begin + strings.Index(text[begin:], "#endif")
	return text[:begin] + segment + text[begin:end] + "#endif\n" + text[end:], nil
}
