package skill

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"paddock/internal/helper"
)

// Script is the job that makes a module of the JavaScript of a skill's instructions. A
// parser reads that, whose stack, memory and time are not known beforehand.
var Script = helper.Job{
	Name: "skill-script", Doing: "reading the skill's JavaScript", Run: readScript,
	Time: 5 * time.Second, MaxOutput: 1 << 20, Keep: 10 * time.Second,
}

// scriptResult is the job's result: what [Skill.script] gives.
type scriptResult struct{ Module, Why string }

// readScript is the job.
func readScript(_ context.Context, in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading a skill's instructions: %w", err)
	}
	var r scriptResult
	r.Module, r.Why = (&Skill{Instructions: string(text)}).script()
	return json.NewEncoder(out).Encode(r)
}

// script has a helper make the module of a skill's JavaScript. Where that is no module, it
// is left out, and why says why. The skills that come with paddock are read here.
func (s *Store) script(ctx context.Context, owner string, of *Skill, from Kind) (module, why string, err error) {
	if from == Builtin || len(of.scripts()) == 0 {
		module, why = of.script()
		return module, why, nil
	}
	out, err := s.config.Helpers.Run(ctx, Script, helper.Call{Owner: owner, In: strings.NewReader(of.Instructions)})
	if helper.TimedOut(err) {
		return noScript, fmt.Sprintf("reading it took longer than %v; split it into smaller parts that are nested less", Script.Time), nil
	}
	if helper.Ended(err) {
		return noScript, "it is nested too deeply, or an expression in it is too long", nil
	}
	var r scriptResult
	if err := cmp.Or(err, json.Unmarshal(out, &r)); err != nil {
		return "", "", fmt.Errorf("reading the JavaScript of the skill %s: %w", of.Name, err)
	}
	return r.Module, r.Why, nil
}
