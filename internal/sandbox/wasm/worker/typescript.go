package worker

import (
	"fmt"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// translate gives the code that the runtime can run, and the source map that
// leads back from it; empty: it is the code as it came. failed is how the run
// ends when there is none.
func (in *instance) translate(body wire.RunBody) (code, sourceMap string, failed *sandbox.Exit) {
	switch body.Language {
	case "", in.program.guest.Name:
		return body.Code, "", nil
	case "typescript":
		if in.program.guest.Name != "javascript" {
			break
		}
		code, sourceMap, problem := transform(body.Code, body.Name)
		if problem != nil {
			return "", "", &sandbox.Exit{Cause: sandbox.Exited, Code: 1, State: sandbox.Kept, Error: problem.program()}
		}
		return code, sourceMap, nil
	}
	return "", "", &sandbox.Exit{Cause: sandbox.Exited, Code: 1, State: sandbox.Kept, Error: &sandbox.ProgramError{
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

// transform takes the types out of TypeScript code, and gives the source map.
func transform(code, name string) (js, sourceMap string, failed *problem) {
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
		return "", "", p
	}
	return string(r.Code), string(r.Map), nil
}
