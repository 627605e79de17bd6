package worker

import (
	"fmt"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/go-sourcemap/sourcemap"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// lineMap leads from the lines of translated code back to the user's. The
// zero value is for code that was not translated.
type lineMap struct{ consumer *sourcemap.Consumer }

func (l lineMap) original(line int) int {
	if l.consumer == nil || line <= 0 {
		return line
	}
	for column := range 200 {
		if _, _, original, _, ok := l.consumer.Source(line, column); ok {
			return original
		}
	}
	return line
}

// translate gives the code that the runtime can run. failed is how the run
// ends when there is none.
func (in *instance) translate(body wire.RunBody) (code string, lines lineMap, failed *sandbox.Exit) {
	switch body.Language {
	case "", in.program.guest.Name:
		return body.Code, lines, nil
	case "typescript":
		if in.program.guest.Name != "javascript" {
			break
		}
		code, lines, problem := transform(body.Code, body.Name)
		if problem != nil {
			return "", lines, &sandbox.Exit{Cause: sandbox.Exited, Code: 1, State: sandbox.Kept, Error: problem.program()}
		}
		return code, lines, nil
	}
	return "", lines, &sandbox.Exit{Cause: sandbox.Exited, Code: 1, State: sandbox.Kept, Error: &sandbox.ProgramError{
		Type: "Unsupported", Message: fmt.Sprintf("the %s runtime does not run %s", in.program.guest.Name, body.Language),
		Traceback: "this runtime does not run " + body.Language + "\n",
	}}
}

// problem is what is wrong with TypeScript code.
type problem struct {
	text, line   string
	number, from int
}

func (p *problem) Error() string { return p.text }

func (p *problem) program() *sandbox.ProgramError {
	return &sandbox.ProgramError{
		Type: "SyntaxError", Message: p.text, Line: p.number,
		Traceback: fmt.Sprintf("  %s\n  %s^\nSyntaxError: %s (line %d)\n", p.line, strings.Repeat(" ", p.from), p.text, p.number),
	}
}

// transform takes the types out of TypeScript code; everything else stays,
// line breaks aside.
func transform(code, name string) (string, lineMap, *problem) {
	r := api.Transform(code, api.TransformOptions{
		Loader: api.LoaderTS, Target: api.ESNext, Sourcefile: name, Sourcemap: api.SourceMapExternal,
		SourcesContent: api.SourcesContentExclude, LogLevel: api.LogLevelSilent,
		TsconfigRaw: `{"compilerOptions":{"verbatimModuleSyntax":true,"experimentalDecorators":false}}`,
	})
	if len(r.Errors) > 0 {
		first := r.Errors[0]
		p := &problem{text: first.Text}
		if l := first.Location; l != nil {
			p.number, p.from, p.line = l.Line, min(l.Column, 200), l.LineText
		}
		return "", lineMap{}, p
	}
	consumer, err := sourcemap.Parse("", r.Map)
	if err != nil {
		return string(r.Code), lineMap{}, nil
	}
	return string(r.Code), lineMap{consumer}, nil
}
