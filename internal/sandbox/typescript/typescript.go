// Package typescript takes the types out of TypeScript programs, for runtimes
// that know JavaScript only.
package typescript

import (
	"fmt"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"paddock/internal/sandbox"
)

// Strip gives the JavaScript of a program called name, and the source map that
// leads back from it. failed is what is wrong with a program that has none, or is
// nested deeper, or has longer expressions, than any that people write.
func Strip(code, name string) (js, sourceMap string, failed *sandbox.ProgramError) {
	if line := TooDeep(code); line > 0 {
		const why = "the program is nested too deeply, or an expression in it is too long; give parts of it names of their own"
		return "", "", &sandbox.ProgramError{Type: "SyntaxError", Message: why, Line: line, Traceback: fmt.Sprintf("SyntaxError: %s (line %d)\n", why, line)}
	}
	r := api.Transform(code, api.TransformOptions{
		Loader: api.LoaderTS, Target: api.ESNext, Sourcefile: name, Sourcemap: api.SourceMapExternal,
		SourcesContent: api.SourcesContentExclude, LogLevel: api.LogLevelSilent,
		TsconfigRaw: `{"compilerOptions":{"verbatimModuleSyntax":true,"experimentalDecorators":false}}`,
	})
	if len(r.Errors) == 0 {
		return string(r.Code), string(r.Map), nil
	}
	first := r.Errors[0]
	failed = &sandbox.ProgramError{Type: "SyntaxError", Message: first.Text}
	failed.Traceback = fmt.Sprintf("SyntaxError: %s\n", first.Text)
	if strings.HasPrefix(first.Text, "Top-level return") {
		failed.Hint = "a program's result is the value of its last line: write the expression alone, without return"
	}
	if at := first.Location; at != nil {
		failed.Line = at.Line
		failed.Traceback = fmt.Sprintf("  %s\n  %s^\nSyntaxError: %s (line %d)\n", at.LineText, strings.Repeat(" ", min(at.Column, 200)), first.Text, at.Line)
	}
	return "", "", failed
}
