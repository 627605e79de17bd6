package typescript

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const megabyte = 1 << 20

// repeated is a text that goes on for so many bytes.
func repeated(before, again, after string, size int) string {
	return before + strings.Repeat(again, size/len(again)) + after
}

// deep are pieces that esbuild calls itself for, each time that they come again.
var deep = []string{
	"(", "[", "{", "x={a:", "a(", "a[", "f({a:[", "new a(", "`${", "`${`", "${", "a?(", "import(", "super(",
	"!", "~", "- ", "+ ", "++", "typeof ", "void ", "delete ", "await ", "new ", "yield ", "await\n", "new\n", "typeof/**/", "new\u00a0", "await\u2028", "keyof\n", "!\n", "void\n",
	".a", "?.a", "[0]", "()", "()\n", "!.a", "``", "`a`\n", "a=", "a=\n", "a+=", "a**", "a?b:", "a?\nb:\n", "a?", "=>a", "a=>", "a=>\n", "a=>void\n", "async a=>", "(a)=>", "(a):b=>", "<a>(b)=>", "<a>", "<a>\n", "<a>\nawait ",
	"if(a)", "if(a)\n", "if(a);else ", "if(a)b,c;else ", "if(a)b\nelse ", "if(a){}else ", "if(a){}\nelse\n", "while(a)", "for(;;)", "for(a of b)\n", "for await(a of b)", "do ", "do\n", "with(a)", "a:", "a:\n",
	"function f(){", "function f(a=", "class a extends ", "class a{a=", "class a{static{", "class{[", "@a ", "namespace a{", "switch(a){case b:", "try{", "throw ", "return ", "return\n", "()=>{", "async()=>{\n",
	"A<", "A<b,", "A<B<C>,", "a<b>(", "()=>", "new ()=>", "<a>()=>", "<a extends ", "keyof ", "readonly ", "infer a extends ", "a extends b?c:", "{a:", "[a?:", "(a:", "|", "typeof a<", "asserts a is ", "abstract new ()=>",
	`\u{61}=`, `a=\u{61}=`, `!\u{61}\n`, "/'/.a(", "/[/]/.a(", "a/b/(", "}/'/;(", ")/'/;(", "if(a)/'/.b(", "a\n/'/;(", "a++/'/;(", "a!/'/;(", "await/'/;(", "a>/`/;(", "return/`/.a(", "{}/`/;(", "<!-- )\n(", "--> )\n(", "//\u2028(", "'\\\r\n'+(", "'\\'(", "\"'\"+(", "/*'*/(", "`'`+(", "`\\`(`+(",
	"as a.", "of(", "#a in ", "a,(", "1_0+(", "0x1/(", ".5+(",
}

// TestWhatIsNestedWithoutEndIsRefused makes programs of a megabyte of each of them, and of
// some of them together: each is refused, or esbuild reads it and does not end the process.
func TestWhatIsNestedWithoutEndIsRefused(t *testing.T) {
	for _, before := range []string{"", "x=", "let x: ", "a\n"} {
		for _, again := range deep {
			if testing.Short() && before != "" {
				continue
			}
			code := repeated(before, again, "", megabyte)
			if line := TooDeep(code); line == 0 {
				if js, _, _ := Strip(code, "x.ts"); len(js) > 2*maxNamed+10*len(code) {
					t.Errorf("%d bytes become %d", len(code), len(js))
				}
			}
		}
	}
	for _, again := range []string{"(", "[", "{", "!", "a=>", "a=", "await ", "a?b:", "()", ".a", "if(a)\n", "do\n", "try{", "new\n", "x=>`${", "if(a);else "} {
		code := repeated("a", again, "", megabyte)
		_, _, failed := Strip("let a = 1;\n"+code, "x.ts")
		if failed == nil || failed.Type != "SyntaxError" || !strings.Contains(failed.Message, "nested too deeply") || failed.Line < 2 || !strings.Contains(failed.Traceback, "line") {
			t.Errorf("%q gives %+v", again, failed)
		}
	}
}

func TestPiecesInAnyOrderDoNotEndTheProcess(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var pattern strings.Builder
		for range 1 + random.IntN(4) {
			pattern.WriteString(deep[random.IntN(len(deep))])
			pattern.WriteString([]string{"", "", "a", ";", ",", "\n", ")", "}", "]", "`", "'"}[random.IntN(11)])
		}
		if code := repeated("", pattern.String(), "", megabyte/4); TooDeep(code) == 0 {
			if js, _, _ := Strip(code, "x.ts"); len(js) > 2*maxNamed+10*len(code) {
				t.Errorf("%d bytes become %d", len(code), len(js))
			}
		}
	}
}

// TestWhatTakesEsbuildTooLongIsRefused has what esbuild needs more than a moment for.
func TestWhatTakesEsbuildTooLongIsRefused(t *testing.T) {
	for _, code := range []string{repeated("x=", "a?(b):c=>", "d", 500), repeated("x=", "a?(b):c=>{return ", "d", 500), repeated("x=", "a=>", "a", 5000),
		repeated("(", "a,", "a)", 200<<10), repeated("", "a,", "a", 200<<10), repeated("f(", "(a,a,a),", "a)", 200<<10) + repeated("\nx=(", "b,", "b)", 200<<10),
		repeated("x[", "a,", "a]", 200<<10), repeated("function f(){return ", "a,", "a}", 200<<10), repeated("()=>{", "a?b:c,", "a}", 200<<10), repeated("`${", "a,", "a}`", 200<<10),
		repeated("", "a<", "a", 200<<10), repeated("", strings.Repeat("a<", 100)+"a;", "", 200<<10), repeated("x=a<", "b,", "b>c", 200<<10),
		repeated("namespace ", "a.", "a{}", 200<<10), repeated("namespace ", "a/**/.\n", "a{}", 5000), repeated("declare module ", "a.", "a{}", 5000)} {
		if TooDeep(code) == 0 {
			t.Errorf("%.40s… is read", code)
		}
	}
}

// doubling is an enum of so many members, each of which is the one before in some way.
func doubling(n int, way string) string {
	text := "enum E {\n  A0 = '0123456789abcdef',\n"
	for k := 1; k <= n; k++ {
		text += fmt.Sprintf("  A%d = %s,\n", k, strings.ReplaceAll(way, "A", fmt.Sprint("A", k-1)))
	}
	return text + "}\n"
}

// esbuild writes members of enums in the place of what names them, however long they are.
func TestTextsThatGrowWithoutEndAreRefused(t *testing.T) {
	long := "enum E { A = '" + strings.Repeat("x", 100_000) + "' }\n"
	for _, code := range []string{
		doubling(40, "A + A"), doubling(40, "E.A + E.A"), doubling(40, "`${A}${A}`"), doubling(40, "E['A'] + E[`A`]"), doubling(40, "(A) + /* A */ (A)"),
		doubling(40, "E['A' + ''] + 'A'"), doubling(40, `\u0041`+" + E?.['A' + ''] + A"), doubling(40, "E?./**/['A'] + E?.A"), "namespace N { export const " + doubling(40, "N.E.A + N.E.A") + "}",
		"enum F { B = (() => { " + doubling(40, "A + A") + "})() }", doubling(13, "A+A") + strings.Replace(doubling(13, "A+A"), "'0123456789abcdef'", "A12", 1),
		strings.ReplaceAll(doubling(40, "A + A"), ",\n", "\n,"), "declare " + doubling(40, "A + A"), "x = /[}]/; " + doubling(40, "A + A"), doubling(30, "A + A + A + A"),
		repeated(long, "x(E.A)\n", "", 10_000), repeated("", "x(E.A)\n", long, 10_000), repeated(long, "x(E['A'])\n", "", 10_000), repeated(long, "enum F { A1 = E.A }\n", "", 10_000),
	} {
		if line := TooDeep(code); line == 0 {
			t.Errorf("%.80s… is read", code)
		}
	}
}

// TestProgramsThatPeopleWriteAreRead are large, and no deeper than programs are.
func TestProgramsThatPeopleWriteAreRead(t *testing.T) {
	paths := "enum Path {\n"
	for k := range 300 {
		paths += fmt.Sprintf("  Users%d = Base.Root + '/users', User%d = `${Base.Root}/${Users%d}/a`, Other%d = User%d,\n", k, k, k, k, k)
	}
	paths += "}\nenum Root { Root = Base.Root + 'b', Users7 = Path.Users7 + Root }\n"
	for name, code := range map[string]string{
		"statements":               repeated("", "a = b(1, 'c', [2], { d: 3 });\n", "", megabyte),
		"statements without signs": repeated("", "const a = b.c(d => d * 2)\nif (a)\n  e(a)\nelse\n  f()\nreturn /x'\\/[/]/.test(g)\n", "", megabyte),
		"numbers":                  repeated("export const a = [", "-1.5e-3, ", "0];", megabyte),
		"rows":                     repeated("export const a: Row[] = [\n", "  { id: 1, name: \"it's (a) `b` / c\", list: [1, 2, 3], ok: !x, f: () => a ? b : c },\n", "];", megabyte),
		"text":                     repeated("const a = `", "it's (a) {b} [c] !!! a=>b ${d(1)} \\` /* // \n", "`;", megabyte),
		"base64":                   repeated("const a = \"", "A+/b", "\";", megabyte),
		"comments":                 repeated("", "// it's (a) {b} [c] `\n/* !!!! ( ' */\n", "", megabyte),
		"an interface":             repeated("interface A {\n", "  onClick?: () => void\n  a?: Map<string, number>\n  b(x?: string): Promise<void>\n  c: string\n", "}", megabyte),
		"an interface with signs":  repeated("interface A {\n", "  onClick?: (event: Event) => void;\n", "}", megabyte),
		"a class":                  repeated("class A {\n", "  private a?: string\n  @b() c = () => { return this.a ? 1 : 2 }\n  get d(): number { return 1 / 2 }\n  e = (x: number): x is 5 => x > 4\n", "}", megabyte),
		"cases":                    repeated("switch (a) {\n", "  case 'a':\n  case b / 2:\n    return c\n", "}", megabyte),
		"functions":                repeated("", "async function f<T extends A<B>>(a: T, b = 1): Promise<T[]> { for (const x of await g()) { if (x) continue; else return [] } }", "", megabyte),
		"a union":                  repeated("type A =\n", "  | 'a' | 'b' | { c: d }\n", "", 8000),
		"a sum":                    repeated("const a = ''\n", "  + 'b' + c\n", "", 20000),
		"promises":                 repeated("a()", "\n  .then((b) => b.c / 2)", "", 20000),
		"else if":                  repeated("if (a) { b() }", " else if (a === 1) { b(); c() }", "", 10000),
		"numbers side by side":     repeated("f([", "1,", "0]);", megabyte),
		"numbers of a type":        repeated("const a = <number[]>[", "1, ", "0] as const;", megabyte),
		"arguments":                repeated("const a = Math.max(", "1, ", "0);", megabyte),
		"an object":                repeated("const a = {\n", "  a1: [1, 2], 'b': \"c\",\n", "};", megabyte),
		"an object of choices":     repeated("const a = {\n", "  a: b ? c : d,\n", "};", 100_000),
		"parts in brackets":        repeated("const a = [", "(1, 2), ", "0];", megabyte),
		"names":                    repeated("export {\n", "  a,\n", "};", 30_000),
		"an enumeration":           repeated("enum A {\n", "  a = 1,\n", "}", 60_000),
		"texts of an enumeration":  "enum Base { Root = '/api' }\n" + paths + repeated("", "a(Path.Users7, b[c], Base.Root, [1, 2])\n", "", megabyte),
		"flags":                    "enum F { A = 1 << 0, B = 1 << 1, C = A | B, D = C | 1 << 2, E = D | A | B | C, All = A | B | C | D | E }\n" + repeated("", "if (a & F.All) b[F.E]()\n", "", 100_000),
		"a large text":             "enum Q { Find = `" + strings.Repeat("SELECT a FROM b WHERE c = ?\n", 80) + "` }\n" + repeated("", "a[b] = c[d].e(Q.f)\n", "", 100_000),
		"what a tool made short":   repeated("", "a=b,c=d<e,f(g,h),i=!0,j?k():l,m=n>o;", "", megabyte),
		"types in brackets":        repeated("", "const a: Map<string, Array<Record<string, Set<number>>>> = new Map<string, A<B<C>>>();\n", "", megabyte),
		"comparisons":              repeated("const a = b < c\n", "  && d < e\n", "", 5_000),
		"a namespace":              "namespace a.b.c.d.e { export const f = 1 }\nmodule.exports.g = 2\n",
		"nothing":                  "",
	} {
		if line := TooDeep(code); line > 0 {
			t.Errorf("%s: too deep, or too long, at line %d of %d", name, line, strings.Count(code, "\n"))
		}
	}
}

func TestTheBoundIsWhereItSays(t *testing.T) {
	for depth, refused := range map[int]bool{maxDepth - 10: false, maxDepth + 10: true} {
		for _, around := range []string{"()", "[]"} {
			code := strings.Repeat(around[:1], depth) + "1" + strings.Repeat(around[1:], depth)
			if _, _, failed := Strip(code, "x.ts"); (failed != nil) != refused {
				t.Errorf("%d of %s: %+v", depth, around, failed)
			}
		}
	}
}

// FuzzStrip repeats a piece until a program is large.
func FuzzStrip(f *testing.F) {
	for k, again := range deep {
		f.Add([]string{"", "x=", "let x: "}[k%3], again, "")
	}
	f.Add("(", "`${a}` + /[`]/.b\n", ")")
	f.Add("enum E {A='aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',", "A=E['A']+`${A}`,", "}")
	f.Fuzz(func(t *testing.T, before, again, after string) {
		if len(again) == 0 || len(before)+len(again)+len(after) > 1000 {
			return
		}
		code := repeated(before, again, after, 8<<10) // small, for what esbuild needs the square of its time for
		if line := TooDeep(code); line < 0 || line > 1+strings.Count(code, "\n") {
			t.Errorf("line %d", line)
		}
		if js, _, _ := Strip(code, "x.ts"); len(js) > 2*maxNamed+10*len(code) {
			t.Errorf("%d bytes become %d", len(code), len(js))
		}
	})
}

func BenchmarkTooDeep(b *testing.B) {
	code := repeated("", "a = b(1, 'c', [2], { d: 3 });\n", "", megabyte)
	for b.Loop() {
		if TooDeep(code) > 0 {
			b.Fatal("refused")
		}
	}
	b.SetBytes(int64(len(code)))
}
