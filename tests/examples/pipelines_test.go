package examples

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v3"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// verdicts are what both pipelines leave in results.txt.
const verdicts = `submissions/ada.py right
submissions/curious.py failed with 1
submissions/endless.py timed out
`

// TestTheWorkflowOfGitHub checks github.yml, and runs its steps as a runner does: each in a
// shell of its own that ends at the first error, and after a failure only those that are
// always to run.
func TestTheWorkflowOfGitHub(t *testing.T) {
	p := openPipeline(t)
	file := filepath.Join(p.dir, "github.yml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mistakes, err := linter.Lint(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		t.Errorf("github.yml: %v", m)
	}
	workflow, _ := actionlint.Parse(text) // the linter has told the mistakes
	job := workflow.Jobs["sandboxed"]
	if job == nil || job.Env == nil || job.Env.Vars["paddock_url"] == nil {
		t.Fatal("github.yml has no job sandboxed with the variable PADDOCK_URL")
	}
	path, summary := filepath.Join(p.home, "path"), filepath.Join(p.home, "summary")
	p.env = append(p.env, "GITHUB_PATH="+path, "GITHUB_STEP_SUMMARY="+summary)
	ran, failed := 0, ""
	for _, step := range job.Steps {
		run, ok := step.Exec.(*actionlint.ExecRun)
		if !ok || failed != "" && step.If == nil {
			continue // an action, such as the checkout
		}
		ran++
		if added, err := os.ReadFile(path); err == nil {
			p.env = append(p.env, "PATH="+strings.TrimSpace(string(added))+string(os.PathListSeparator)+os.Getenv("PATH"))
		}
		out, err := p.bash(t, run.Run.Value)
		if t.Logf("%s\n%s", step.Name.Value, out); err != nil {
			failed += step.Name.Value
		}
	}
	if ran != 4 {
		t.Errorf("%d steps ran, want 4", ran)
	}
	if failed != "Check the submissions" {
		t.Errorf("the step %q failed, want that which checks the submissions", failed)
	}
	wantVerdicts(t, summary)
}

// gitlab are the keywords of GitLab that the example uses; any other is a mistake.
type gitlab map[string]struct {
	Image, Timeout string
	BeforeScript   []string `yaml:"before_script"`
	Script         []string
	Artifacts      struct {
		When  string
		Paths []string
	}
}

// TestThePipelineOfGitLab checks gitlab.yml, and runs its commands as a runner does, in one
// shell that ends at the first error.
func TestThePipelineOfGitLab(t *testing.T) {
	p := openPipeline(t)
	text, err := os.ReadFile(filepath.Join(p.dir, "gitlab.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file gitlab
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatalf("gitlab.yml: %v", err)
	}
	job := file["sandboxed"]
	if job.Artifacts.When != "always" || len(job.Artifacts.Paths) != 1 {
		t.Fatalf("the artifacts are %+v, want one path, always", job.Artifacts)
	}
	out, err := p.bash(t, strings.Join(append(job.BeforeScript, job.Script...), "\n"))
	if t.Logf("%s", out); err == nil {
		t.Error("the job succeeds, although submissions are wrong")
	}
	wantVerdicts(t, filepath.Join(p.dir, job.Artifacts.Paths[0]))
}

// pipeline is a runner with the example's folder checked out, and without a paddock.
type pipeline struct {
	*example
	home string
}

func openPipeline(t *testing.T) *pipeline {
	t.Helper()
	x := open(t, "ci")
	p := &pipeline{x, filepath.Join(filepath.Dir(x.dir), "home")}
	if err := os.Mkdir(p.home, 0o700); err != nil {
		t.Fatal(err)
	}
	binary, err := filepath.Abs(sandboxtest.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "HOME="+p.home, "PATH="+os.Getenv("PATH"), "PADDOCK_URL=file://"+binary)
	return p
}

// bash runs commands until the first error.
func (p *pipeline) bash(t *testing.T, commands string) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = p.dir, p.env
	inGroup(cmd)
	return cmd.CombinedOutput()
}

func wantVerdicts(t *testing.T, file string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !paddocktest.Prints(string(got), verdicts) {
		t.Errorf("it found\n%s\nwant\n%s", got, verdicts)
	}
}
