package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire/serve"
)

// shellBlock is how much the shell's driver reads at first, in bytes: most requests,
// with which it has no need to read again.
const shellBlock = 512

// encodeShell makes of a request what the shell's driver evaluates: assignments,
// filled up to one block; or a block that reads them, and evaluates them.
func encodeShell(number uint32, r request) ([]byte, error) {
	if r.Stdin != "" {
		r.Op = "feed"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "__pd_number=%d __pd_op=%s __pd_in=%s __pd_code=%s; builtin set --", number, quote(r.Op), quote(r.Stdin), quote(r.Code))
	for _, arg := range r.Args {
		text.WriteString(" " + quote(arg))
	}
	if text.Len() > 99_999_999 {
		return nil, fmt.Errorf("a program of %d bytes is too long for a shell", len(r.Code))
	}
	if text.Len() <= shellBlock {
		return filled(text.String()), nil
	}
	read := fmt.Sprintf(`LC_ALL=C IFS= builtin read -r -N %d -u 240 __pd_text; builtin eval "$__pd_text"`, text.Len())
	return append(filled(read), text.String()...), nil
}

// filled is a block with this text in it.
func filled(text string) []byte {
	block := bytes.Repeat([]byte{' '}, shellBlock)
	copy(block, text)
	return block
}

// quote makes one word of a text. A shell holds no zero bytes.
func quote(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, "\x00", ""), "'", `'\''`) + "'"
}

// maxLine is how long a line of the shell's driver may be, and maxVariables how
// many of them an inspection has.
const (
	maxLine      = 64 << 10
	maxVariables = 200
)

// readLines reads what the shell's driver says: "b NUMBER", "v NUMBER NAME
// ATTRIBUTES VALUE" and "a NUMBER STATUS PID HOW", and makes answers of it.
func readLines(c *channel, s *os.File) error {
	lines := bufio.NewReaderSize(s, maxLine)
	var variables []sandbox.Variable
	for {
		line, err := lines.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			return errBroken
		}
		if err != nil {
			return io.EOF
		}
		words := strings.SplitN(strings.TrimSuffix(string(line), "\n"), " ", 5)
		if len(words) < 2 {
			return errBroken
		}
		n, err := strconv.ParseUint(words[1], 10, 32)
		if err != nil {
			return errBroken
		}
		switch {
		case words[0] == "b":
			c.began(uint32(n))
		case words[0] == "v" && len(words) == 5:
			if len(variables) < maxVariables {
				variables = append(variables, variable(words[2], words[3], words[4]))
			}
		case words[0] == "a" && len(words) == 5:
			answer, err := shellAnswer(words[2], words[3], words[4], variables)
			if err != nil {
				return errBroken
			}
			variables = nil
			c.answered(uint32(n), answer)
		default:
			return errBroken
		}
	}
}

var unescape = regexp.MustCompile(`\\(.)`)

func variable(name, attributes, value string) sandbox.Variable {
	kind := "string"
	switch {
	case strings.Contains(attributes, "A"):
		kind = "associative array"
	case strings.Contains(attributes, "a"):
		kind = "array"
	case strings.Contains(attributes, "i"):
		kind = "integer"
	}
	if value == "''" {
		value = ""
	} else if !strings.HasPrefix(value, "$'") { // as the shell quotes what it cannot otherwise
		value = unescape.ReplaceAllString(value, "$1")
	}
	return sandbox.Variable{Name: name, Type: kind, Preview: strings.ToValidUTF8(value, "\ufffd")}
}

// shellAnswer is a driver's answer, as the others give it.
func shellAnswer(status, pid, how string, variables []sandbox.Variable) ([]byte, error) {
	o := outcome{Outcome: serve.Outcome{Status: "done", Variables: variables}}
	var err error
	if o.ExitCode, err = strconv.Atoi(status); err != nil {
		return nil, err
	}
	if o.PID, err = strconv.Atoi(pid); err != nil {
		return nil, err
	}
	switch {
	case how == "interrupted":
		o.Error = &serve.Failure{Type: "Interrupted", Message: "the program was interrupted", Kind: "interrupted"}
	case how != "exit" && how != "inspected" && o.ExitCode != 0:
		o.Error = &serve.Failure{Type: "CommandError", Message: fmt.Sprintf("the last command ended with status %d", o.ExitCode)}
	}
	return json.Marshal(o)
}

// shellLine is how the shell begins what it says of a program: its own name, the
// line, and what is wrong.
var shellLine = regexp.MustCompile(`^(?:bash|environment|main): (?:eval: )?line (\d+): (.*)$`)

// noNetwork is what programs say that miss one.
var noNetwork = regexp.MustCompile(`(?i)could not resolve host|temporary failure in name resolution|network is unreachable|unable to resolve host`)

// shellError finds out from the end of stderr what went wrong, as far as the
// shell said so itself.
func shellError(o *outcome, tail string) {
	e := o.Error
	if e.Kind != "" {
		return
	}
	lines := strings.Split(strings.TrimRight(tail, "\n"), "\n")
	for n := len(lines) - 1; n >= 0 && n >= len(lines)-5; n-- {
		found := shellLine.FindStringSubmatch(lines[n])
		if found == nil {
			continue
		}
		e.Line, _ = strconv.Atoi(found[1])
		if text := found[2]; !strings.HasPrefix(text, "`") { // the line that a syntax error shows
			e.Message = text
			if o.ExitCode == 127 && !strings.Contains(text, "not found") && !strings.Contains(text, "No such file") {
				o.ExitCode = 1 // an error of an expansion: what scripts end with then
			}
			if strings.HasPrefix(text, "syntax error") || strings.HasPrefix(text, "unexpected EOF") {
				e.Type = "SyntaxError"
			}
			break
		}
	}
	last := lines[len(lines)-1]
	if e.Line == 0 && last != "" && len(last) < 1<<10 {
		e.Message += ": " + last
	}
	if noNetwork.MatchString(tail) {
		e.Hint = "there is no network in this sandbox; only what listens in it can be reached, on 127.0.0.1; the operator can allow hosts (network.allow, PADDOCK_NET_ALLOW)"
	}
	if strings.Contains(last, "No space left on device") || strings.Contains(last, "Disk quota exceeded") || strings.Contains(last, "File too large") {
		e.Kind = "space"
	}
}
