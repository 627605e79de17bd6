package sandboxtest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// function is def name(Param): return Body.
type function struct{ Param, Body string }

var (
	comment    = regexp.MustCompile(`^(#|//)`)
	assignment = regexp.MustCompile(`^(?:(?:let|const|var)\s+)?([A-Za-z_]\w*)\s*=([^=].*)$`)
	importing  = regexp.MustCompile(`^import\s+(\w+)$`)
	definition = regexp.MustCompile(`^(?:def|function)\s+(\w+)\((\w*)\)\s*[:{]\s*return\s+(.*?)\s*;?\s*}?$`)
	gathering  = regexp.MustCompile(`^(\w+)\s*=\s*gather\(['"]([\w-]+)['"],\s*(\d+)\)$`)
	raising    = regexp.MustCompile(`^(?:raise|throw new)\s+(\w+)\((.*)\)$`)
)

// statement executes one line and gives the value of an expression.
func (r *fakeRun) statement(line string) (any, error) {
	switch line {
	case "loop":
		return nil, r.loop()
	case "spin":
		return nil, r.spin()
	case "flood":
		return nil, r.flood()
	case "crash":
		return nil, errTrapped
	case "vanish":
		return nil, errVanished
	case "panic":
		panic("a mistake in the backend")
	}
	if line == "" || comment.MatchString(line) {
		return nil, nil
	}
	if code, ok := strings.CutPrefix(line, "_ = compile("); ok {
		if strings.Contains(code, "syntax error") {
			return nil, &raised{kind: "SyntaxError", message: "invalid syntax"}
		}
		return nil, nil
	}
	if m := importing.FindStringSubmatch(line); m != nil {
		if !slices.Contains(r.in.imports, m[1]) {
			r.in.imports = append(r.in.imports, m[1])
		}
		return nil, nil
	}
	if m := definition.FindStringSubmatch(line); m != nil {
		r.in.vars[m[1]] = &function{Param: m[2], Body: m[3]}
		return nil, nil
	}
	if m := raising.FindStringSubmatch(line); m != nil {
		v, err := r.evaluate(m[2], nil)
		if err != nil {
			return nil, err
		}
		return nil, &raised{kind: m[1], message: text(v)}
	}
	if m := gathering.FindStringSubmatch(line); m != nil {
		n, err := strconv.Atoi(m[3])
		if err != nil {
			return nil, syntaxError(m[3])
		}
		return nil, r.gather(&fakeGather{Name: m[1], Tool: m[2], Calls: n}, nil)
	}
	if m := assignment.FindStringSubmatch(line); m != nil {
		v, err := r.evaluate(m[2], nil)
		if err == nil {
			r.in.vars[m[1]] = v
		}
		return nil, err
	}
	return r.evaluate(line, nil)
}

// evaluate computes an expression; local holds a function's parameter.
func (r *fakeRun) evaluate(src string, local map[string]any) (any, error) {
	tokens, err := tokenize(src)
	if err != nil {
		return nil, err
	}
	e := &expression{run: r, tokens: tokens, local: local}
	v, err := e.sum()
	if err == nil && len(e.tokens) > 0 {
		err = syntaxError(e.tokens[0])
	}
	return v, err
}

func syntaxError(near string) error {
	return &raised{kind: "SyntaxError", message: "invalid syntax near " + strconv.Quote(near)}
}

var tokenPattern = regexp.MustCompile(`^(?:[A-Za-z_][\w.]*|\d+(?:\.\d+)?|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|//|[-+*/%()\[\],])`)

func tokenize(src string) ([]string, error) {
	var tokens []string
	for src = strings.TrimSpace(src); src != ""; src = strings.TrimSpace(src) {
		t := tokenPattern.FindString(src)
		if t == "" {
			return nil, syntaxError(src)
		}
		tokens = append(tokens, t)
		src = src[len(t):]
	}
	return tokens, nil
}

// expression is what is left of one to parse.
type expression struct {
	run    *fakeRun
	tokens []string
	local  map[string]any
	depth  int
}

func (e *expression) peek(tokens ...string) bool {
	return len(e.tokens) > 0 && slices.Contains(tokens, e.tokens[0])
}

func (e *expression) next() string {
	if len(e.tokens) == 0 {
		return ""
	}
	t := e.tokens[0]
	e.tokens = e.tokens[1:]
	return t
}

func (e *expression) sum() (any, error) {
	return e.chain(e.product, "+", "-")
}

func (e *expression) product() (any, error) {
	return e.chain(e.operand, "*", "/", "//", "%")
}

func (e *expression) chain(part func() (any, error), operators ...string) (any, error) {
	left, err := part()
	for err == nil && e.peek(operators...) {
		op := e.next()
		var right any
		if right, err = part(); err == nil {
			left, err = operate(op, left, right)
		}
	}
	return left, err
}

func operate(op string, left, right any) (any, error) {
	a, aNumber := left.(int64)
	b, bNumber := right.(int64)
	if s, ok := left.(string); ok && op == "+" {
		if t, ok := right.(string); ok {
			return s + t, nil
		}
	}
	switch {
	case !aNumber || !bNumber:
		return nil, &raised{kind: "TypeError", message: "unsupported operands for " + op + ": " + typeName(left) + " and " + typeName(right)}
	case op == "+":
		return a + b, nil
	case op == "-":
		return a - b, nil
	case op == "*":
		return a * b, nil
	case b == 0:
		return nil, &raised{kind: "ZeroDivisionError", message: "division by zero"}
	case op == "%":
		return a % b, nil
	}
	return a / b, nil
}

func (e *expression) operand() (any, error) {
	if e.depth++; e.depth > 100 {
		return nil, &raised{kind: "RecursionError", message: "too deep"}
	}
	defer func() { e.depth-- }()
	t := e.next()
	switch {
	case t == "":
		return nil, syntaxError("the end")
	case t == "-":
		v, err := e.operand()
		if err != nil {
			return nil, err
		}
		return operate("-", int64(0), v)
	case t == "(":
		v, err := e.sum()
		if err == nil && e.next() != ")" {
			err = syntaxError("(")
		}
		return v, err
	case t == "[":
		list, err := e.list("]")
		return list, err
	case t[0] == '"' || t[0] == '\'':
		return unquote(t)
	case t[0] >= '0' && t[0] <= '9':
		return number(t)
	case e.peek("("):
		e.next()
		args, err := e.list(")")
		if err != nil {
			return nil, err
		}
		return e.run.call(t, args)
	}
	return e.name(t)
}

func number(t string) (any, error) {
	if n, err := strconv.ParseInt(t, 10, 64); err == nil {
		return n, nil
	}
	return t, nil // 0.5: only sleep takes it
}

func unquote(t string) (any, error) {
	if t[0] == '\'' {
		t = `"` + strings.ReplaceAll(t[1:len(t)-1], `"`, `\"`) + `"`
	}
	s, err := strconv.Unquote(t)
	if err != nil {
		return nil, syntaxError(t)
	}
	return s, nil
}

func (e *expression) name(t string) (any, error) {
	if v, ok := e.local[t]; ok {
		return v, nil
	}
	if v, ok := e.run.in.vars[t]; ok {
		return v, nil
	}
	if slices.Contains(e.run.in.imports, t) {
		return "<module " + t + ">", nil
	}
	return nil, &raised{kind: "NameError", message: "name '" + t + "' is not defined"}
}

func (e *expression) list(end string) ([]any, error) {
	list := []any{}
	for !e.peek(end) {
		v, err := e.sum()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if !e.peek(",") {
			break
		}
		e.next()
	}
	if e.next() != end {
		return nil, syntaxError(end)
	}
	return list, nil
}

// call calls a function of the program or one of the language's own.
func (r *fakeRun) call(name string, args []any) (any, error) {
	if f, ok := r.in.vars[name].(*function); ok {
		local := map[string]any{}
		if len(args) > 0 {
			local[f.Param] = args[0]
		}
		if r.depth++; r.depth > 100 {
			return nil, &raised{kind: "RecursionError", message: "too deep"}
		}
		defer func() { r.depth-- }()
		if err := r.spend(1); err != nil {
			return nil, err
		}
		return r.evaluate(f.Body, local)
	}
	f, ok := builtins[name]
	if !ok {
		return nil, &raised{kind: "NameError", message: "name '" + name + "' is not defined"}
	}
	if len(args) < f.args {
		return nil, &raised{kind: "TypeError", message: name + "() takes " + strconv.Itoa(f.args) + " arguments"}
	}
	return f.call(r, args)
}

// builtin is a function of the language and how many arguments it needs.
type builtin struct {
	args int
	call func(r *fakeRun, args []any) (any, error)
}

// action is a builtin without a value.
func action(args int, do func(r *fakeRun, args []any) error) builtin {
	return builtin{args, func(r *fakeRun, args []any) (any, error) { return nil, do(r, args) }}
}

var builtins map[string]builtin

func init() {
	show := action(0, func(r *fakeRun, a []any) error { return r.write(0, joinTexts(a)+"\n") })
	complain := action(0, func(r *fakeRun, a []any) error { return r.write(1, joinTexts(a)+"\n") })
	builtins = map[string]builtin{
		"print": show, "console.log": show, "eprint": complain, "console.error": complain,
		"sleep":   action(1, func(r *fakeRun, a []any) error { return r.sleep(seconds(a[0])) }),
		"exit":    action(1, func(_ *fakeRun, a []any) error { return &stopped{code: int(integer(a[0])), cause: 1} }),
		"alloc":   action(1, func(r *fakeRun, a []any) error { return r.alloc(integer(a[0])) }),
		"write":   action(2, func(r *fakeRun, a []any) error { return r.writeFile(text(a[0]), text(a[1]), os.O_TRUNC) }),
		"append":  action(2, func(r *fakeRun, a []any) error { return r.writeFile(text(a[0]), text(a[1]), os.O_APPEND) }),
		"fill":    action(1, func(r *fakeRun, a []any) error { return r.fill(text(a[0])) }),
		"remove":  action(1, func(r *fakeRun, a []any) error { return r.removeFile(text(a[0])) }),
		"symlink": action(2, func(r *fakeRun, a []any) error { return r.symlink(text(a[0]), text(a[1])) }),
		"display": action(2, func(r *fakeRun, a []any) error { return r.display(text(a[0]), text(a[1])) }),
		"connect": action(2, func(*fakeRun, []any) error {
			return &raised{kind: "OSError", message: "there is no network in this sandbox"}
		}),
		"proxied": {1, func(r *fakeRun, a []any) (any, error) { return r.proxied(text(a[0])) }},
		"read":    {1, func(r *fakeRun, a []any) (any, error) { return r.readFile(text(a[0])) }},
		"input":   {0, func(r *fakeRun, _ []any) (any, error) { return r.input() }},
		"call":    {2, func(r *fakeRun, a []any) (any, error) { return r.callHost(text(a[0]), text(a[1])) }},
		"env":     {1, func(r *fakeRun, a []any) (any, error) { return r.in.spec.Env[text(a[0])], nil }},
		"envs": {0, func(r *fakeRun, _ []any) (any, error) {
			return strings.Join(slices.Sorted(maps.Keys(r.in.spec.Env)), " "), nil
		}},
		"args": {0, func(r *fakeRun, _ []any) (any, error) { return strings.Join(r.cmd.Args, " "), nil }},
		"random": {0, func(r *fakeRun, _ []any) (any, error) {
			r.in.random = r.in.random*6364136223846793005 + 1442695040888963407
			return int64(r.in.random >> 16), nil
		}},
		"str": {1, func(_ *fakeRun, a []any) (any, error) { return text(a[0]), nil }},
		"len": {1, func(_ *fakeRun, a []any) (any, error) { return length(a[0]) }},
		"sum": {1, func(_ *fakeRun, a []any) (any, error) { return total(a[0]) }},
	}
}

func integer(v any) int64 {
	n, _ := v.(int64)
	return n
}

func seconds(v any) time.Duration {
	f, _ := strconv.ParseFloat(text(v), 64)
	return time.Duration(f * float64(time.Second))
}

func length(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return int64(len([]rune(v))), nil
	case []any:
		return int64(len(v)), nil
	}
	return nil, &raised{kind: "TypeError", message: typeName(v) + " has no length"}
}

func total(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, &raised{kind: "TypeError", message: typeName(v) + " is not a list"}
	}
	sum := any(int64(0))
	for _, x := range list {
		var err error
		if sum, err = operate("+", sum, x); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

// repr is a value as a result shows it.
func repr(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case string:
		return "'" + strings.ReplaceAll(v, "'", `\'`) + "'"
	case []any:
		parts := make([]string, len(v))
		for k, x := range v {
			parts[k] = repr(x)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case *function:
		return "<function>"
	}
	return "None"
}
