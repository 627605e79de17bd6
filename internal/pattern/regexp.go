package pattern

import (
	"io"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

	"paddock/internal/fault"
)

// The bounds of one expression. One that uses all of them compiles in some 20
// milliseconds and takes 2 MB while it matches.
const (
	// MaxSource is how many bytes it may have.
	MaxSource = 2000
	// MaxInstructions is how many instructions it may have when it is compiled,
	// where counted repetitions are written out: x{1000} has a thousand.
	MaxInstructions = 10_000
	// MaxWeight is what reading and compiling it may cost: one for each byte and
	// instruction, 200 for a class of Unicode, and where case does not count one
	// for 16 characters of each range, which package syntax goes through one by one.
	MaxWeight = 20_000
)

// perText is what looking at a text costs besides, in bytes of it.
const perText = 16

// Regexp is a compiled regular expression in RE2's syntax. It may be used by
// several goroutines.
type Regexp struct {
	re   *regexp.Regexp
	size int64
}

// Compile makes an expression ready, unless it is malformed or too large, which is
// a fault of kind Invalid. What it costs is known before it is done.
func Compile(source string) (*Regexp, error) {
	return NewCompiler(MaxWeight).Compile(source)
}

// Compiler compiles the expressions of one document, each once, as long as all of
// them together weigh no more than a number. It is for one goroutine.
type Compiler struct {
	weight, most int64
	known        map[string]compiled
}

type compiled struct {
	re  *Regexp
	err error
}

// NewCompiler makes one for so much weight; see [MaxWeight].
func NewCompiler(weight int64) *Compiler {
	return &Compiler{most: weight, known: map[string]compiled{}}
}

// Weight is what was compiled up to now.
func (c *Compiler) Weight() int64 { return c.weight }

// Compile is [Compile] within what is left of the weight.
func (c *Compiler) Compile(source string) (*Regexp, error) {
	if len(source) > MaxSource {
		return nil, fault.New(fault.Invalid, "a regular expression has %d bytes at most", MaxSource)
	}
	if one, ok := c.known[source]; ok {
		return one.re, one.err
	}
	re, err := c.compile(source)
	c.known[source] = compiled{re, err}
	return re, err
}

func (c *Compiler) compile(source string) (*Regexp, error) {
	weight := weightOf(source)
	if weight > MaxWeight || c.weight+weight > c.most {
		return nil, tooLarge("its classes and ranges of characters cost too much")
	}
	c.weight += weight
	parsed, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return nil, malformed(err)
	}
	size := sizeOf(parsed)
	if size > MaxInstructions || c.weight+size > c.most {
		return nil, tooLarge("its repetitions make too many parts of it")
	}
	c.weight += size
	re, err := regexp.Compile(source)
	if err != nil {
		return nil, malformed(err)
	}
	return &Regexp{re: re, size: size}, nil
}

func tooLarge(why string) error {
	return fault.New(fault.Invalid, "the regular expression is too large: %s", why).
		WithHint("repeat less, or use * or + in place of a large count; name fewer classes")
}

func malformed(err error) error {
	return fault.New(fault.Invalid, "the regular expression is malformed: %v", err).
		WithHint("the syntax is RE2's: no look-around, no back-references; escape . ( ) [ ] { } + * ? | with a backslash")
}

// folds finds a flag by which case does not count.
var folds = regexp.MustCompile(`\(\?[a-zA-Z-]*i`)

// weightOf is what parsing an expression costs, by its text alone.
func weightOf(source string) int64 {
	weight := int64(len(source))
	weight += 200 * int64(strings.Count(source, `\p`)+strings.Count(source, `\P`))
	if !folds.MatchString(source) {
		return weight
	}
	for at, c := range source {
		if c == '-' {
			weight += rangeAt(source, at) / 16
		}
	}
	return weight
}

// rangeAt is how many characters lie in the range around a hyphen, or more.
func rangeAt(source string, at int) int64 {
	const maxFold = 0x1e943 // package syntax goes no further
	low, _ := utf8.DecodeLastRuneInString(source[:at])
	if low == '}' || low == utf8.RuneError {
		low = 0
	}
	high, _ := utf8.DecodeRuneInString(source[at+1:])
	if high == '\\' {
		high = 0o777 // an octal escape's most
		if hex, ok := strings.CutPrefix(source[at+2:], "x{"); ok {
			hex, _, _ = strings.Cut(hex, "}")
			n, err := strconv.ParseUint(hex, 16, 32)
			if err != nil {
				n = maxFold
			}
			high = rune(min(n, maxFold))
		}
	}
	return max(0, int64(min(high, maxFold))-int64(low))
}

// String gives the source.
func (r *Regexp) String() string { return r.re.String() }

// Steps is what matching a text of so many bytes costs at most.
func (r *Regexp) Steps(length int) int64 { return r.size * int64(length+perText) }

// sizeOf is how many instructions package syntax makes of an expression, or more:
// as it writes repetitions out, x{2,4} as xx(x(x)?)?. More than there may be is
// some number above MaxInstructions.
func sizeOf(re *syntax.Regexp) int64 {
	return 3 + partSize(re) // a failure, a match, and a step before what is not anchored
}

func partSize(re *syntax.Regexp) int64 {
	size := int64(0)
	for _, sub := range re.Sub {
		if size += partSize(sub); size > MaxInstructions {
			break // it is too many, unless it is repeated zero times
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		size = int64(len(re.Rune))
	case syntax.OpCapture, syntax.OpStar: // a star of what may be empty is (x+)?
		size += 2
	case syntax.OpPlus, syntax.OpQuest:
		size++
	case syntax.OpAlternate:
		size += int64(len(re.Sub))
	case syntax.OpRepeat:
		size = repeated(size, int64(re.Min), int64(re.Max))
	}
	return max(size, 1)
}

// repeated is the size of a repetition of a part; without an upper end most is -1.
func repeated(size, least, most int64) int64 {
	switch {
	case most < 0:
		return max(least, 1)*size + 2
	case most == 0:
		return 1
	}
	return most*size + most - least
}

// Match tells where the expression first matches in a text, as an offset in
// bytes; -1: nowhere. The error is the meter's.
func (r *Regexp) Match(text []byte, m *Meter) (at int, err error) {
	if cost := r.Steps(len(text)); cost <= piece {
		if err := m.Spend(cost); err != nil {
			return -1, err
		}
		return begin(r.re.FindIndex(text)), nil
	}
	return r.matchLong(&metered{text: text, meter: m, size: r.size})
}

// MatchString tells whether the expression matches in a text. The error is the
// meter's.
func (r *Regexp) MatchString(text string, m *Meter) (bool, error) {
	at, err := r.Match([]byte(text), m)
	return at >= 0, err
}

// matchLong reads a text character by character. It knows fewer short cuts than
// matching bytes, and can be stopped.
func (r *Regexp) matchLong(text *metered) (at int, err error) {
	if err := text.meter.Spend(r.Steps(0)); err != nil {
		return -1, err
	}
	found := r.re.FindReaderIndex(text)
	if text.err != nil {
		return -1, text.err
	}
	return begin(found), nil
}

func begin(found []int) int {
	if found == nil {
		return -1
	}
	return found[0]
}

// metered is a text that ends where the meter does.
type metered struct {
	text  []byte
	at    int
	meter *Meter
	size  int64
	err   error
}

// ReadRune gives the next character.
func (t *metered) ReadRune() (r rune, width int, err error) {
	if t.at >= len(t.text) || t.err != nil {
		return 0, 0, io.EOF
	}
	r, width = utf8.DecodeRune(t.text[t.at:])
	if t.err = t.meter.Spend(t.size * int64(width)); t.err != nil {
		return 0, 0, io.EOF
	}
	t.at += width
	return r, width, nil
}
