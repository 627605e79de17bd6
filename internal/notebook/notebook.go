// Package notebook writes what a session's executions were as a Jupyter notebook.
package notebook

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// Write writes executions, the oldest first, as a notebook of nbformat 4.5. displays gives
// what one of them displayed, as [session.Manager.Displays] does. A cell is what one
// execution ran; its metadata names the execution and the checkpoint after it.
func Write(w io.Writer, all []session.Execution, displays func(session.Execution) ([]sandbox.Display, error)) error {
	kernel := kernelOf(all)
	book := document{
		Cells: []cell{}, NBFormat: 4, NBFormatMinor: 5,
		Metadata: metadata{kernel, languageInfo{kernel.Language}},
	}
	for n, e := range all {
		shown, err := displays(e)
		if err != nil {
			return fmt.Errorf("reading what the execution %s displayed: %w", e.ID, err)
		}
		book.Cells = append(book.Cells, cellOf(e, n, kernel.Language, shown))
	}
	to := json.NewEncoder(w)
	to.SetEscapeHTML(false)
	to.SetIndent("", " ")
	return to.Encode(book)
}

// document is a notebook, as https://nbformat.readthedocs.io describes it.
type document struct {
	Cells         []cell   `json:"cells"`
	Metadata      metadata `json:"metadata"`
	NBFormat      int      `json:"nbformat"`
	NBFormatMinor int      `json:"nbformat_minor"`
}

type metadata struct {
	Kernel   kernel       `json:"kernelspec"`
	Language languageInfo `json:"language_info"`
}

// kernel is what Jupyter would run the notebook with.
type kernel struct {
	Display  string `json:"display_name"`
	Language string `json:"language"`
	Name     string `json:"name"`
}

type languageInfo struct {
	Name string `json:"name"`
}

type cell struct {
	Type     string       `json:"cell_type"`
	Count    *int64       `json:"execution_count"` // null: it is not known
	ID       string       `json:"id"`
	Metadata cellMetadata `json:"metadata"`
	Outputs  []any        `json:"outputs"`
	Source   string       `json:"source"`
}

type cellMetadata struct {
	Paddock about      `json:"paddock"`
	VSCode  *editorTag `json:"vscode,omitempty"`
}

// about is where a cell is in its session.
type about struct {
	Execution  string `json:"execution_id"`
	Checkpoint string `json:"checkpoint"`
	// FirstLineOnly says that of the code only the first line was kept, and no output.
	FirstLineOnly bool   `json:"first_line_only,omitempty"`
	Notice        string `json:"notice,omitempty"`
	// Refused, Told and Waiting are what the execution's result said of it as well.
	Refused string   `json:"refused,omitempty"`
	Told    string   `json:"told,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
}

// editorTag has VS Code show a cell in another language than the notebook's.
type editorTag struct {
	Language string `json:"languageId"`
}

type stream struct {
	Type string `json:"output_type"`
	Name string `json:"name"`
	Text string `json:"text"`
}

type display struct {
	Type     string         `json:"output_type"`
	Data     map[string]any `json:"data"`
	Metadata struct{}       `json:"metadata"`
}

type result struct {
	display
	Count *int64 `json:"execution_count"`
}

type failure struct {
	Type      string   `json:"output_type"`
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// kernels are those of the languages; Deno's runs both of the last two.
var kernels = map[string]kernel{
	"python":     {"Python 3", "python", "python3"},
	"bash":       {"Bash", "bash", "bash"},
	"javascript": {"Deno", "javascript", "deno"},
	"typescript": {"Deno", "typescript", "deno"},
}

// kernelOf is the kernel of the language that most executions are in.
func kernelOf(all []session.Execution) kernel {
	counts := map[string]int{}
	most := "python"
	for _, e := range all {
		counts[e.Language]++
		if _, known := kernels[e.Language]; known && counts[e.Language] > counts[most] {
			most = e.Language
		}
	}
	return kernels[most]
}

// magics begin the cells of another language in a notebook of Python's kernel.
var magics = map[string]string{
	"bash":       "%%bash\n",
	"javascript": "%%script node --input-type=module -\n",
	"typescript": "%%script node --input-type=module-typescript -\n",
}

// editorLanguage is what VS Code calls a language.
func editorLanguage(language string) string {
	if language == "bash" {
		return "shellscript"
	}
	return language
}

var idPattern = regexp.MustCompile(`^[a-zA-Z0-9-_]{1,64}$`)

func cellOf(e session.Execution, n int, language string, shown []sandbox.Display) cell {
	c := cell{
		Type: "code", ID: e.ID, Outputs: []any{}, Source: e.Code,
		Metadata: cellMetadata{Paddock: about{e.ID, e.Checkpoint, !e.Kept, e.Notice, e.Refused, e.Told, e.Waiting}},
	}
	if !idPattern.MatchString(c.ID) {
		c.ID = fmt.Sprintf("cell-%d", n+1)
	}
	if e.Number > 0 {
		c.Count = &e.Number
	}
	if e.Language != language && e.Language != "" {
		c.Metadata.VSCode = &editorTag{editorLanguage(e.Language)}
		if language == "python" {
			c.Source = magics[e.Language] + c.Source
		}
	}
	stderr := e.Stderr
	if e.Error != nil { // whose traceback is at the end of stderr as well
		stderr = strings.TrimSuffix(stderr, e.Error.Traceback)
	}
	for _, s := range []stream{{"stream", "stdout", e.Stdout}, {"stream", "stderr", stderr}} {
		if s.Text != "" {
			c.Outputs = append(c.Outputs, s)
		}
	}
	for k, d := range shown {
		data := map[string]any{}
		if d.Data != nil {
			kind, _, _ := strings.Cut(d.MIME, ";")
			if v := valueOf(kind, d.Data); v != nil {
				data[kind] = v
			} else {
				data["text/plain"] = fmt.Sprintf("[%d bytes that are not %s]", len(d.Data), kind)
			}
		} else {
			data["text/plain"] = missing(e, k, d.MIME)
		}
		c.Outputs = append(c.Outputs, display{Type: "display_data", Data: data})
	}
	if e.Result != "" {
		c.Outputs = append(c.Outputs, result{display{Type: "execute_result", Data: map[string]any{"text/plain": e.Result}}, c.Count})
	}
	if f := failureOf(e); f != nil {
		c.Outputs = append(c.Outputs, f)
	}
	return c
}

// missing is shown in place of what was displayed and is not kept.
func missing(e session.Execution, k int, mime string) string {
	if k < len(e.Displays) {
		return fmt.Sprintf("[%s of %d bytes, which was not kept]", mime, e.Displays[k].Size)
	}
	return fmt.Sprintf("[%s, which was not kept]", mime)
}

// failureOf is how an execution failed; nil: it did not, or it is not known.
func failureOf(e session.Execution) *failure {
	stopped := e.Kept && !e.Success && e.Cause != sandbox.Exited.String() && e.Cause != sandbox.Waiting.String()
	switch {
	case e.Error != nil:
		f := &failure{Type: "error", Name: e.Error.Type, Value: e.Error.Message, Traceback: []string{}}
		if stopped {
			f.Value += "; the program was stopped: " + e.Cause
		}
		if text := strings.TrimRight(e.Error.Traceback, "\n"); text != "" {
			f.Traceback = strings.Split(text, "\n")
		}
		return f
	case stopped:
		return &failure{Type: "error", Name: "Stopped", Value: "the program was stopped: " + e.Cause, Traceback: []string{}}
	case e.Kept && e.ExitCode != 0:
		return &failure{Type: "error", Name: "SystemExit", Value: fmt.Sprint(e.ExitCode), Traceback: []string{}}
	}
	return nil
}

// valueOf is a display's data as a notebook has it: a text, a value of JSON, or base64; nil:
// it is not what its type says.
func valueOf(kind string, data []byte) any {
	switch {
	case kind == "application/json" || strings.HasSuffix(kind, "+json"):
		if json.Valid(data) {
			return json.RawMessage(data)
		}
		return nil
	case strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+xml") || kind == "application/javascript":
		if utf8.Valid(data) {
			return string(data)
		}
		return nil
	}
	return base64.StdEncoding.EncodeToString(data)
}
