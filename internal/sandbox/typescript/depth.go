package typescript

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// esbuild calls itself for whatever lies in something else, and a stack that has grown
// to half a gigabyte ends the process: a program of a megabyte of "(" has that, and so
// has one of "!", of "a=>" or of "if(a)". So a program is looked through before. What is
// counted is the tokens of the statement, or the list's element, that stands open at each
// level: nothing lies deeper than that. The bounds are far from what people write.
const (
	maxDepth  = 10_000 // tokens; esbuild's stack takes up to 9 KB for one
	maxArrows = 300    // functions in one another: the time goes with their cube
	// maxChoices bounds functions behind a condition's colon, in one another. Each might
	// be the type of what a function gives, and esbuild tries both.
	maxChoices = 10
	// maxCost bounds what esbuild needs the square of its time for, or the cube: a and b
	// in (a, b, …), < that may begin types and do not, names in namespace a.b.…. It counts
	// half the square of the first, and the others by what they take in comparison: one
	// sequence may have some 8,400 expressions, a statement 840 signs <, a
	// namespace 370 names: less than a second each. No list counts, however long.
	maxCost  = 36_000_000
	costLess = 100 // of a < for each before it in its statement
	costOpen = 4   // of a comma behind a < that is open
	costName = 2   // of a name in a namespace's, for the square of those before it
	freeLess = 8   // signs < of a statement cost nothing
)

// TooDeep gives the line, from 1, at which a program, in JavaScript or TypeScript, is
// nested deeper than any that people write, or such that esbuild would need more than a
// moment for it; 0: it is not. esbuild may not read one that is: it would take minutes, or
// all of the stack, which ends the process. Where TooDeep cannot tell what is code it counts
// too much rather than too little.
func TooDeep(code string) int {
	if len(code) <= maxChoices {
		return 0
	}
	s := &scanner{code: code, levels: []level{{}}}
	if strings.Contains(code, "enum") {
		s.enums.sizes, s.enums.seen = map[string]int{}, map[string]int{}
	}
	for s.at < len(code) && !s.over() && s.next() {
	}
	if s.enums.named() {
		s.at = s.enums.where
	} else if !s.over() {
		return 0
	}
	return 1 + strings.Count(code[:min(s.at, len(code))], "\n")
}

// level is a pair of brackets that is open.
type level struct {
	open  byte // ( [ { or, within a template, ` for its text and $ for what is in it; 0: the program
	head  bool // what it closes is followed by a statement: if ( … )
	chain int  // tokens since the last statement or element ended
	kept  int  // those of them that an element's end leaves: else, and < that are open
	elses int  // of kept
	count counts
	long  long
	list  bool // what commas part at it are elements of a list
	named bool // the element has a colon: in { it is a property
}

// long is what a statement has of what costs the more the longer it is.
type long struct {
	commas, less, names int
	namespace           bool
}

// counts are of what costs more than its depth.
type counts struct{ conditions, arrows, choices int }

// kind is what a token is, as far as a slash behind it depends on it.
type kind uint8

const (
	operator kind = iota // a slash begins a regular expression
	operand              // it divides
	either               // nobody knows
)

type scanner struct {
	code    string
	at      int
	levels  []level
	total   int // of all levels' chains
	counted counts
	cost    int // see maxCost
	leaked  int // tokens of which nobody knows where they belong
	unsure  bool
	enums   enums

	last    kind   // of the token before
	word    string // which that was; empty: it was none
	dotted  bool   // it was a member's name
	head    bool   // it closed what is followed by a statement
	closed  bool   // it was }
	dot     bool   // it was a dot
	newline bool   // one came since
	ended   bool   // a statement has just ended: it may go on with else
}

func (s *scanner) over() bool {
	return s.total+s.leaked > maxDepth || s.counted.arrows > maxArrows || s.counted.choices > maxChoices || s.cost > maxCost || s.enums.over()
}

func (s *scanner) top() *level { return &s.levels[len(s.levels)-1] }

// next takes one token; false: esbuild reads no further.
func (s *scanner) next() bool {
	if s.top().open == '`' {
		return s.template()
	}
	rest := s.code[s.at:]
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case r == '\n' || r == '\r' || r == 0x2028 || r == 0x2029:
		s.newline = true
		s.at += size
	case unicode.IsSpace(r) || r == 0xFEFF:
		s.at += size
	case strings.HasPrefix(rest, "//") || s.at == 0 && strings.HasPrefix(rest, "#!"):
		s.at += lineEnd(rest)
	case strings.HasPrefix(rest, "/*"):
		return s.comment(rest)
	case strings.HasPrefix(rest, "<!--") || strings.HasPrefix(rest, "-->"):
		return s.obscure()
	case r == '/':
		return s.slash(rest)
	case r == '"' || r == '\'':
		s.begin(true)
		s.token(operand)
		from := s.at + 1
		if !s.text(byte(r)) {
			return false
		}
		s.enums.is = 0
		s.enums.saw(s.code[from:s.at-1], s.at)
	case r == '`':
		s.begin(false)
		s.token(operand)
		s.push(level{open: '`'})
		s.at++
	case r >= utf8.RuneSelf || isWord(byte(r)):
		s.name(rest)
	default:
		return s.sign(byte(r))
	}
	return true
}

// begin is told of what a token begins before it is counted; starts: with it something
// begins that cannot go on what stands before it, but for a few words.
func (s *scanner) begin(starts bool) {
	switch {
	case !starts:
	case s.newline && s.last == operand || s.closed:
		s.end()
	case s.newline && (s.last == either || s.word == "void"): // as a type, most likely
		s.forget(s.top())
	}
}

// end ends the statement of the level.
func (s *scanner) end() {
	l := s.top()
	s.total -= l.chain - l.elses
	l.chain, l.kept = l.elses, l.elses
	s.forget(l)
	l.long, l.named = long{}, false
	s.ended = true
}

// forget takes what is counted at a level out of the sum.
func (s *scanner) forget(l *level) {
	s.counted.arrows -= l.count.arrows
	s.counted.choices -= l.count.choices
	l.count = counts{}
}

// token counts one.
func (s *scanner) token(k kind) {
	l := s.top()
	if s.ended { // and it is no else
		s.total -= l.elses
		l.chain, l.kept, l.elses = l.chain-l.elses, l.kept-l.elses, 0
	}
	l.chain++
	s.total++
	s.last, s.word, s.head, s.closed, s.newline, s.ended, s.dot = k, "", false, false, false, false, false
}

// name takes a word or a number.
func (s *scanner) name(rest string) {
	end := wordEnd(rest)
	word := rest[:end]
	s.at += end
	dotted := strings.HasSuffix(strings.TrimRight(s.code[:s.at-end], " \t\r\n"), ".")
	s.begin(!goesOn[word])
	if word == "else" {
		s.ended = false
		l := s.top()
		l.kept, l.elses = l.kept+1, l.elses+1
	}
	k := operand
	switch {
	case before[word] && !dotted:
		k = operator
	case unclear[word]:
		k = either
	}
	if word == "namespace" || word == "module" {
		s.top().long.namespace = true
	}
	awaits := word == "await" && s.word == "for"
	s.token(k)
	s.word, s.dotted = word, dotted
	s.enums.saw(word, s.at)
	switch {
	case word == "enum" && !dotted:
		s.enums.is = 1
	case s.enums.is == 1:
		s.enums.is = 2
	default:
		s.enums.is = 0
	}
	if awaits {
		s.word = "for"
	}
}

// sign takes a token of signs.
func (s *scanner) sign(c byte) bool {
	rest := s.code[s.at:]
	isEnum := s.enums.is == 2
	s.enums.is = 0
	s.at++
	switch c {
	case '(', '[', '{':
		if c == '[' && (s.last != operator || s.dot) {
			s.enums.bracket()
		}
		head := c == '(' && !s.dotted && (s.word == "if" || s.word == "while" || s.word == "for" || s.word == "with")
		s.begin(c == '{' && s.closed)
		list := s.isList(c)
		s.token(operator)
		s.push(level{open: c, head: head, list: list})
		if c == '{' && isEnum {
			s.enums.begin(len(s.levels))
		}
	case ')', ']', '}':
		s.enums.end(len(s.levels), s.at, true)
		return s.close(c)
	case ';':
		s.end()
		s.last, s.word, s.head, s.closed, s.newline = operator, "", false, false, false
	case ',':
		s.enums.end(len(s.levels), s.at, false)
		s.element()
	case '=':
		if strings.HasPrefix(rest, "=>") {
			s.at++
			s.arrow()
		}
		s.token(operator)
	case '?':
		if !strings.HasPrefix(rest, "?.") && !strings.HasPrefix(rest, "??") {
			s.top().count.conditions++
		}
		s.token(operator)
	case '<':
		s.token(operator)
		l := s.top()
		l.kept++
		if l.long.less++; l.long.less > freeLess {
			s.cost += costLess * l.long.less
		}
	case ':':
		s.token(operator)
		s.top().named = true
	case '.':
		s.token(operator)
		s.dot = true
		if l := s.top(); l.long.namespace {
			l.long.names++
			s.cost += costName * l.long.names * l.long.names
		}
	case '>':
		if l := s.top(); l.kept > l.elses {
			l.kept--
		}
		s.token(either)
	case '!':
		s.token(s.after())
	case '+', '-':
		if len(rest) > 1 && rest[1] == c {
			s.at++
			s.token(s.after())
			return true
		}
		s.token(operator)
	case '@':
		s.begin(true)
		s.token(operator)
	default:
		s.token(operator)
	}
	return true
}

// after is what a sign is that may stand before or behind an operand.
func (s *scanner) after() kind {
	switch {
	case s.head || s.last == operator:
		return operator
	case s.last == either || s.newline:
		return either
	}
	return operand
}

// isList tells whether a bracket opens arguments or an array's elements: a call's stands
// behind what is called, and an array's does not.
func (s *scanner) isList(c byte) bool {
	switch c {
	case '(':
		return s.last == operand
	case '[':
		return s.last != operand && !s.closed
	}
	return false
}

// element ends one of a list, or of a sequence of expressions.
func (s *scanner) element() {
	l := s.top()
	if property := l.open == '{' && l.named && l.count.conditions == 0; !l.list && !property {
		l.long.commas++
		if s.cost += l.long.commas; l.kept > l.elses {
			s.cost += (costOpen - 1) * l.long.commas
		}
	}
	l.named = false
	s.total -= l.chain - l.kept
	l.chain = l.kept
	s.forget(l)
	s.last, s.word, s.head, s.closed, s.newline = operator, "", false, false, false
}

func (s *scanner) arrow() {
	l := s.top()
	l.count.arrows++
	s.counted.arrows++
	if l.count.conditions > 0 {
		l.count.choices++
		s.counted.choices++
	}
}

func (s *scanner) push(l level) {
	s.levels = append(s.levels, l)
	s.last, s.word, s.head, s.closed = operator, "", false, false
}

// close takes a bracket that closes. One that closes nothing is where esbuild ends,
// unless something before was not understood.
func (s *scanner) close(c byte) bool {
	l := *s.top()
	opens := map[byte]string{')': "(", ']': "[", '}': "{$"}[c]
	if strings.IndexByte(opens, l.open) < 0 || l.open == 0 {
		s.last = either
		return s.unsure
	}
	s.pop()
	s.last, s.word, s.head, s.closed, s.newline, s.ended = operand, "", l.head, false, false, false
	switch {
	case l.open == '$': // what is in a template lies side by side
		s.top().chain--
		s.total--
	case l.open == '{':
		s.last, s.closed = either, true
	case l.head:
		s.last = operator
	}
	return true
}

func (s *scanner) pop() {
	l := s.top()
	s.total -= l.chain
	s.forget(l)
	s.levels = s.levels[:len(s.levels)-1]
}

// template takes text of a template, up to where it ends or something is in it.
func (s *scanner) template() bool {
	for ; s.at < len(s.code); s.at++ {
		switch s.code[s.at] {
		case '\\':
			s.at++
		case '`':
			s.at++
			s.pop()
			s.last, s.word, s.head, s.closed, s.newline = operand, "", false, false, false
			return true
		case '$':
			if strings.HasPrefix(s.code[s.at:], "${") {
				s.at += 2
				s.token(operator)
				s.push(level{open: '$'})
				return true
			}
		}
	}
	return false
}

// text takes a text in quotes. One that does not end in its line is none.
func (s *scanner) text(quote byte) bool {
	for s.at++; s.at < len(s.code); s.at++ {
		switch c := s.code[s.at]; {
		case c == quote:
			s.at++
			return true
		case c == '\n' || c == '\r':
			return false
		case c == '\\':
			if s.at++; strings.HasPrefix(s.code[s.at:], "\r\n") {
				s.at++
			}
		}
	}
	return false
}

func (s *scanner) comment(rest string) bool {
	end := strings.Index(rest[2:], "*/")
	if end < 0 {
		return false
	}
	s.newline = s.newline || strings.ContainsAny(rest[:end+2], "\n\r\u2028\u2029")
	s.at += end + 4
	return true
}

// slash takes one that divides, or a regular expression.
func (s *scanner) slash(rest string) bool {
	switch {
	case s.last == operand && !s.newline:
		s.at++
		s.token(operator)
		return true
	case s.last != operator:
		return s.obscure()
	}
	class := false
	for k := 1; k < len(rest); k++ {
		switch c := rest[k]; {
		case c == '\n' || c == '\r':
			return false
		case c == '\\':
			k++
			if k < len(rest) && (rest[k] == '\n' || rest[k] == '\r') {
				return false
			}
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			s.token(operand)
			s.at += k + 1
			return true
		}
	}
	return false
}

// obscure takes the rest of a line of which nobody knows what is code: all of it counts,
// and nothing ends. What goes beyond the line counts to the end.
func (s *scanner) obscure() bool {
	rest := s.code[s.at:]
	line := rest[:lineEnd(rest)]
	inTemplate := len(s.levels) > 1 && strings.ContainsRune(line, '}')
	if strings.ContainsRune(line, '`') || strings.Contains(line, "/*") || inTemplate || strings.HasSuffix(line, "\\") {
		line = rest
	}
	inWord := false
	for k := range len(line) {
		word := isWord(line[k]) || line[k] >= utf8.RuneSelf
		if !word && line[k] > ' ' || word && !inWord || line[k] >= utf8.RuneSelf {
			s.leaked++
		}
		inWord = word
	}
	s.at += len(line)
	s.unsure = true
	s.last, s.word, s.head, s.closed = either, "", false, false
	return true
}

// lineEnd is where a line ends.
func lineEnd(text string) int {
	if end := strings.IndexAny(text, "\n\r\u2028\u2029"); end >= 0 {
		return end
	}
	return len(text)
}
