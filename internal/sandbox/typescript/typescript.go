// Package typescript takes the types out of TypeScript programs, for runtimes
// that know JavaScript only.
//
// esbuild does that, which is made for what people write: a megabyte of "(" takes all of
// its stack, which ends the process, a few lines of enums that are made of each other take
// terabytes, and functions in one another take years. So it works in a helper's process,
// which ends with what it cannot do.
package typescript

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"

	"paddock/internal/helper"
	"paddock/internal/sandbox"
	"paddock/internal/textsafe"
)

// Job translates a [sandbox.Source] in a helper's process, which is kept: a program of
// some lines takes less than a millisecond. One of the largest takes some 400 MiB.
var Job = helper.Job{
	Name: "typescript", Doing: "translating TypeScript", Run: run,
	Memory: 768 << 20, Time: 10 * time.Second, MaxOutput: 32 << 20, Keep: time.Minute,
}

// run is the job.
func run(_ context.Context, in io.Reader, out io.Writer) error {
	var s sandbox.Source
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return fmt.Errorf("reading what is to be translated: %w", err)
	}
	var t sandbox.Translation
	t.Code, t.Map, t.Error = Strip(s.Code, s.Name)
	return encode(out, t)
}

func encode(to io.Writer, v any) error {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// NewTranslator makes a translator whose work is done by helpers of a program that has
// the [Job].
func NewTranslator(helpers *helper.Runner) sandbox.Translator {
	return func(ctx context.Context, owner string, s sandbox.Source) (sandbox.Translation, error) {
		return translate(ctx, helpers, Job, owner, s)
	}
}

func translate(ctx context.Context, helpers *helper.Runner, job helper.Job, owner string, s sandbox.Source) (t sandbox.Translation, err error) {
	var in bytes.Buffer
	if err := encode(&in, s); err != nil {
		return t, err
	}
	out, err := helpers.Run(ctx, job, helper.Call{Owner: owner, In: &in})
	if helper.Ended(err) {
		why := "the program is nested too deeply, or an expression in it is too long; give parts of it names of their own"
		if helper.TimedOut(err) {
			why = fmt.Sprintf("translating the TypeScript took longer than %v; split the program into smaller parts that are nested less, or write it in JavaScript", job.Time)
		}
		return sandbox.Translation{Error: &sandbox.ProgramError{Type: "SyntaxError", Message: why, Traceback: "SyntaxError: " + why + "\n"}}, nil
	}
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(out, &t)
}

// Strip gives the JavaScript of a program called name, and the source map that
// leads back from it. failed is what is wrong with a program that has none. It is for
// what people wrote, or for a process of its own: there are programs that end the process,
// and such that do not end.
func Strip(code, name string) (js, sourceMap string, failed *sandbox.ProgramError) {
	r := api.Transform(code, api.TransformOptions{
		Loader: api.LoaderTS, Target: api.ESNext, Sourcefile: name, Sourcemap: api.SourceMapExternal,
		SourcesContent: api.SourcesContentExclude, LogLevel: api.LogLevelSilent,
		TsconfigRaw: `{"compilerOptions":{"verbatimModuleSyntax":true,"experimentalDecorators":false}}`,
	})
	if len(r.Errors) == 0 {
		return string(r.Code), string(r.Map), nil
	}
	first := r.Errors[0]
	message := textsafe.Shorten(first.Text, maxMessage)
	failed = &sandbox.ProgramError{Type: "SyntaxError", Message: message}
	failed.Traceback = fmt.Sprintf("SyntaxError: %s\n", message)
	if strings.HasPrefix(first.Text, "Top-level return") {
		failed.Hint = "a program's result is the value of its last line: write the expression alone, without return"
	}
	if at := first.Location; at != nil {
		failed.Line = at.Line
		shown, indent := excerpt(at.LineText, at.Column)
		failed.Traceback = fmt.Sprintf("  %s\n  %s^\nSyntaxError: %s (line %d)\n", shown, indent, message, at.Line)
	}
	return "", "", failed
}

const (
	// maxMessage bounds what is told of a mistake, in bytes: it may hold a name of the program.
	maxMessage = 1000
	// maxBefore and maxAfter bound what a traceback shows of a line before the mistake and
	// from there on, in bytes.
	maxBefore, maxAfter = 100, 200
)

// excerpt gives the part of a line that is around a column, in bytes, and the blanks that
// lead to the column below it.
func excerpt(line string, column int) (shown, indent string) {
	column = min(max(column, 0), len(line))
	visible := func(s string) string { return textsafe.Escape(strings.ReplaceAll(s, "\t", " ")) }
	from := max(column-maxBefore, 0)
	for from > 0 && from < column && !utf8.RuneStart(line[from]) {
		from++
	}
	before := visible(line[from:column])
	if from > 0 {
		before = "…" + before
	}
	return before + visible(textsafe.Shorten(line[column:], maxAfter)), strings.Repeat(" ", utf8.RuneCountInString(before))
}
