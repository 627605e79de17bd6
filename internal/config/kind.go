package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// kind is what a key may be: how it reads as a flag or variable, how it reads
// in the file (a value as TOML decodes it), and how it is shown again (a
// string, number, boolean, list or table).
type kind[T any] struct {
	accepts string
	text    func(s string) (T, error)
	file    func(v any) (T, error)
	data    func(v T) any
}

// words is text with at least and at most so many characters.
func words(least, most int) kind[string] {
	text := func(s string) (string, error) {
		if n := utf8.RuneCountInString(s); n < least || n > most {
			return "", fmt.Errorf("it has %d characters, not %d to %d", n, least, most)
		}
		return s, nil
	}
	return kind[string]{
		accepts: fmt.Sprintf("text of %d to %d characters", least, most),
		text:    text, file: fromString(text), data: func(s string) any { return s },
	}
}

// oneOf is one word of several.
func oneOf(choice ...string) kind[string] {
	text := func(s string) (string, error) {
		if !slices.Contains(choice, s) {
			return "", fmt.Errorf("%q is not one of %s", s, strings.Join(choice, ", "))
		}
		return s, nil
	}
	return kind[string]{
		accepts: "one of " + strings.Join(choice, ", "),
		text:    text, file: fromString(text), data: func(s string) any { return s },
	}
}

func level() kind[slog.Level] {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError}
	text := func(s string) (slog.Level, error) {
		l, ok := levels[strings.ToLower(s)] // INFO is how some write it
		if !ok {
			return 0, fmt.Errorf("%q is not one of debug, info, warn, error", s)
		}
		return l, nil
	}
	return kind[slog.Level]{
		accepts: "one of debug, info, warn, error",
		text:    text, file: fromString(text), data: func(l slog.Level) any { return strings.ToLower(l.String()) },
	}
}

func boolean() kind[bool] {
	return kind[bool]{
		accepts: "true or false",
		text: func(s string) (bool, error) {
			v, err := strconv.ParseBool(s)
			if err != nil {
				return false, fmt.Errorf("%q is neither true nor false", s)
			}
			return v, nil
		},
		file: func(v any) (bool, error) {
			b, ok := v.(bool)
			if !ok {
				return false, fmt.Errorf("it is %s, not true or false", describe(v))
			}
			return b, nil
		},
		data: func(b bool) any { return b },
	}
}

// count is an integer.
func count(least, most int64) kind[int64] {
	check := func(n int64) (int64, error) {
		if n < least || n > most {
			return 0, fmt.Errorf("%d is not between %d and %d", n, least, most)
		}
		return n, nil
	}
	return kind[int64]{
		accepts: fmt.Sprintf("an integer from %d to %d", least, most),
		text: func(s string) (int64, error) {
			n, err := integer(s)
			if err != nil {
				return 0, err
			}
			return check(n)
		},
		file: func(v any) (int64, error) {
			n, ok := v.(int64)
			if !ok {
				return 0, fmt.Errorf("it is %s, not an integer", describe(v))
			}
			return check(n)
		},
		data: func(n int64) any { return n },
	}
}

// integer reads digits; 20_000_000 is easier to read, and right in TOML too.
func integer(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is too large", s)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not an integer", s)
	}
	return n, nil
}

// seconds is a span of time: whole seconds, or as a flag 1.5s or 2m too.
func seconds(most time.Duration) kind[time.Duration] {
	check := func(d time.Duration) (time.Duration, error) {
		if d < time.Millisecond || d > most {
			return 0, fmt.Errorf("%v is not between 1ms and %v", d, most)
		}
		return d, nil
	}
	whole := func(n int64) (time.Duration, error) {
		if n < 1 || n > int64(most/time.Second) {
			return 0, fmt.Errorf("%d is not between 1 and %d", n, most/time.Second)
		}
		return time.Duration(n) * time.Second, nil
	}
	return kind[time.Duration]{
		accepts: fmt.Sprintf("seconds, from 1 to %d", most/time.Second),
		text: func(s string) (time.Duration, error) {
			if n, err := integer(s); err == nil {
				return whole(n)
			}
			d, err := time.ParseDuration(s)
			if err != nil {
				return 0, fmt.Errorf("%q is neither seconds nor a duration such as 30s or 2m", s)
			}
			return check(d)
		},
		file: func(v any) (time.Duration, error) {
			n, ok := v.(int64)
			if !ok {
				return 0, fmt.Errorf("it is %s, not an integer of seconds", describe(v))
			}
			return whole(n)
		},
		data: func(d time.Duration) any {
			if d%time.Second == 0 {
				return int64(d / time.Second)
			}
			return d.Seconds()
		},
	}
}

var (
	sizePattern = regexp.MustCompile(`(?i)^([0-9_]+(?:\.[0-9]+)?) ?([a-z]*)$`)
	sizeUnits   = map[string]int64{
		"b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30,
		"kb": 1e3, "mb": 1e6, "gb": 1e9,
	}
)

// size is a number of bytes. A bare number counts units of so many bytes.
func size(unit, least, most int64) kind[int64] {
	check := func(f float64) (int64, error) {
		if f < float64(least) || f > float64(most) {
			return 0, fmt.Errorf("it is not between %s and %s", sizeText(least), sizeText(most))
		}
		return int64(math.Round(f)), nil
	}
	text := func(s string) (int64, error) {
		m := sizePattern.FindStringSubmatch(s)
		if m == nil {
			return 0, fmt.Errorf("%q is not a size such as 256MiB", s)
		}
		number, err := strconv.ParseFloat(strings.ReplaceAll(m[1], "_", ""), 64)
		scale, known := sizeUnits[strings.ToLower(m[2])]
		if m[2] == "" {
			scale, known = unit, true
		}
		if err != nil || !known {
			return 0, fmt.Errorf("%q is not a size such as 256MiB", s)
		}
		return check(number * float64(scale))
	}
	return kind[int64]{
		accepts: fmt.Sprintf("a size from %s to %s; a bare number counts %s", sizeText(least), sizeText(most), map[bool]string{true: "bytes", false: "MiB"}[unit == 1]),
		text:    text,
		file: func(v any) (int64, error) {
			switch v := v.(type) {
			case int64:
				return check(float64(v) * float64(unit))
			case string:
				return text(v)
			}
			return 0, fmt.Errorf("it is %s, not an integer or a size such as \"256MiB\"", describe(v))
		},
		data: func(n int64) any {
			if n%unit == 0 {
				return n / unit
			}
			return sizeText(n)
		},
	}
}

func sizeText(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// list is some words of several, each once.
func list(choice ...string) kind[[]string] {
	check := func(words []string) ([]string, error) {
		for i, w := range words {
			if !slices.Contains(choice, w) {
				return nil, fmt.Errorf("%q is not one of %s", w, strings.Join(choice, ", "))
			}
			if slices.Contains(words[:i], w) {
				return nil, fmt.Errorf("%q is there twice", w)
			}
		}
		return words, nil
	}
	return texts("some of "+strings.Join(choice, ", "), check)
}

// texts is a list of texts that check accepts.
func texts(accepts string, check func([]string) ([]string, error)) kind[[]string] {
	return kind[[]string]{
		accepts: accepts,
		text:    func(s string) ([]string, error) { return check(splitList(s)) },
		file: func(v any) ([]string, error) {
			values, ok := v.([]any)
			words := make([]string, len(values))
			for i, e := range values {
				s, isText := e.(string)
				words[i], ok = s, ok && isText
			}
			if !ok {
				return nil, fmt.Errorf("it is %s, not a list of texts", describe(v))
			}
			return check(words)
		},
		data: func(words []string) any { return slices.Concat([]string{}, words) },
	}
}

// splitList reads words with commas or spaces between them.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// environment is a table of variables; as a flag or variable NAME=value,…
func environment() kind[map[string]string] {
	return table("a table of texts; as a variable NAME=value,NAME=value", func(name, value string) error {
		if !variableName.MatchString(name) {
			return fmt.Errorf("%q is not a variable's name", name)
		}
		if strings.ContainsRune(value, 0) {
			return fmt.Errorf("the value of %s holds a zero byte", name)
		}
		return nil
	})
}

// table is one of texts, each of which check accepts with its name.
func table(accepts string, check func(name, value string) error) kind[map[string]string] {
	checkAll := func(all map[string]string) (map[string]string, error) {
		for _, name := range sortedKeys(all) {
			if err := check(name, all[name]); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return kind[map[string]string]{
		accepts: accepts,
		text: func(s string) (map[string]string, error) {
			all := map[string]string{}
			for pair := range strings.SplitSeq(s, ",") {
				name, value, ok := strings.Cut(pair, "=")
				if !ok && s != "" {
					return nil, fmt.Errorf("%q is not of the form NAME=value", pair)
				}
				if ok {
					all[strings.TrimSpace(name)] = value
				}
			}
			return checkAll(all)
		},
		file: func(v any) (map[string]string, error) {
			table, ok := v.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("it is %s, not a table of texts", describe(v))
			}
			all := map[string]string{}
			for name, value := range table {
				if all[name], ok = value.(string); !ok {
					return nil, fmt.Errorf("%s is %s, not a text", name, describe(value))
				}
			}
			return checkAll(all)
		},
		data: func(all map[string]string) any { return all },
	}
}

func fromString[T any](text func(string) (T, error)) func(any) (T, error) {
	return func(v any) (T, error) {
		s, ok := v.(string)
		if !ok {
			var none T
			return none, fmt.Errorf("it is %s, not a text", describe(v))
		}
		return text(s)
	}
}

// describe names what TOML decoded.
func describe(v any) string {
	switch v := v.(type) {
	case string:
		return "a text"
	case int64:
		return fmt.Sprintf("the integer %d", v)
	case float64:
		return "a number with a point"
	case bool:
		return fmt.Sprintf("the boolean %v", v)
	case map[string]any:
		return "a table"
	case time.Time:
		return "a date"
	}
	return "a list"
}

// bareKey is what TOML takes as a key without quotes.
var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// literal writes a kind's data as paddock.toml has it.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case []string:
		words := make([]string, len(v))
		for i, w := range v {
			words[i] = quote(w)
		}
		return "[" + strings.Join(words, ", ") + "]"
	case map[string]string:
		var pairs []string
		for _, name := range sortedKeys(v) {
			key := name
			if !bareKey.MatchString(name) {
				key = quote(name)
			}
			pairs = append(pairs, key+" = "+quote(v[name]))
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	}
	return fmt.Sprint(v)
}

// quote writes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
