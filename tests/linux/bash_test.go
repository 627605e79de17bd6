package linux

import (
	"strings"
	"testing"
)

func TestBashDoesRealWork(t *testing.T) {
	withPackages(t)
	c := connect(t, "linux")
	runAll(t, c, "bash", []program{
		{name: "pipelines", code: "printf 'b\\na\\nc\\n' | sort -r | head -2 | tr '\\n' ' '", stdout: "c b "},
		{name: "variables, functions and the folder", code: "export GREETING=hi; own=5; mkdir -p /tmp/sub; cd /tmp/sub; hello() { echo \"$GREETING $1\"; }"},
		{name: "are kept", code: "hello you; echo $own; pwd; env | grep GREETING; cd /workspace", stdout: "hi you\n5\n/tmp/sub\nGREETING=hi\n"},
		{name: "a here-document", code: "cat <<END\none $own\n  two\nEND", stdout: "one 5\n  two\n"},
		{name: "arrays", code: "list=(a 'b c'); list+=(d); declare -A map=([k]=v); echo ${#list[@]} \"${list[1]}\" ${map[k]}", stdout: "3 b c v\n"},
		{name: "an exit code", code: "grep -q nothing /dev/null", exit: 1, error: "CommandError"},
		{name: "an error that the program told", code: "ls /nowhere", exit: 2, error: "No such file or directory"},
		{name: "a command that is not there", code: "echo\nnosuchcommand", stdout: "\n", exit: 127, error: "CommandError: nosuchcommand: command not found"},
		{name: "a mistake", code: "if true; then\n  echo x\ndone", exit: 2, error: "SyntaxError"},
		{name: "set -e ends the shell", code: "echo before\nset -e\nfalse\necho never", stdout: "before\n", exit: 1, error: "CommandError"},
		{name: "and the next call goes on", code: "echo $own; hello again", stdout: "5\nhi again\n"},
		{name: "set -o pipefail", code: "set -euo pipefail\nfalse | cat\necho never", exit: 1, error: "CommandError"},
		{name: "set -u", code: "set -u; echo $nobody; echo never", exit: 1, error: "unbound variable"},
		{name: "a job", code: "sleep 300 & jobs", stdout: "~sleep 300"},
		{name: "is there later, and ends alone", code: "jobs; kill %1; wait %1; echo $?", stdout: "~sleep 300 &\n143\n"},
		{name: "jobs that are killed at once", code: "for k in {1..30}; do sleep 300 & kill %1; wait %1; echo $?; done | uniq -c | tr -s ' '", stdout: " 30 143\n"},
		{name: "a trap that kills all", code: "kept=1; trap 'echo told' TERM; trap 'kill 0' EXIT; sleep 300 & echo x", stdout: "x\n"},
		{name: "ends the job alone", code: "wait; echo $kept; kill $BASHPID; trap - TERM", stdout: "1\ntold\n"},
		{name: "exit and a trap", code: "trap 'echo bye' EXIT; exit 7", stdout: "bye\n", exit: 7},
		{name: "no input", code: "read -r line; echo \"[$line]\"", stdout: "[]\n"},
		{name: "other languages", code: "python3 - <<'END'\nprint(6 * 7)\nEND\nnode -e 'console.log(7 * 6)'", stdout: "42\n42\n"},
		{name: "no network", code: "git clone -q https://example.com/x", exit: 128, error: "CommandError", hint: "no network"},
		{name: "pip", code: "pip --version | cut -d' ' -f1; python3 -m pip --version | cut -d' ' -f1", stdout: "pip\npip\n"},
		{name: "a compiler", code: "cat > h.c <<'END'\n#include <stdio.h>\nint main(int n, char **a) { printf(\"hello %s\\n\", a[1]); return 3; }\nEND\ngcc -O2 -o h h.c && ./h you", stdout: "hello you\n", exit: 3, error: "CommandError", files: "h h.c"},
		{name: "git", code: "git init -q r && cd r && git config user.email a@b.c && git config user.name me && echo hi >f && git add f && git commit -qm first && git log --oneline | wc -l; cd ..", stdout: "1\n", files: "r/.git/ r/f"},
		{name: "50 MB in pipelines", code: "seq 1 6500000 >big.txt; stat -c %s big.txt; sort -rn big.txt | head -1; awk '{s+=$1%10} END {print s}' big.txt; sed -n 100p big.txt; grep -c 77 big.txt; tar czf big.tgz big.txt && tar tzf big.tgz; rm big.txt big.tgz",
			stdout: "50888896\n6500000\n29250000\n100\n292889\nbig.txt\n"},
	})
}

func TestCommandsHaveArgumentsAndSandboxesAFolder(t *testing.T) {
	c := connect(t, "linux")
	box := map[string]any{"sandbox": "work", "namespace": "tests"}
	with := func(more ...any) map[string]any {
		all := map[string]any{}
		for name, value := range box {
			all[name] = value
		}
		for k := 0; k < len(more); k += 2 {
			all[more[k].(string)] = more[k+1]
		}
		return all
	}
	c.call(t, "sandbox_start", with("config", map[string]any{"image": image(), "envs": []string{"COLOUR=red"}}), nil)
	for _, p := range []struct {
		name, command string
		args          []string
		stdout        string
		exit          int
	}{
		{"arguments stay as they are", "printf", []string{"[%s]", "a b", "$HOME", "*", "'"}, "[a b][$HOME][*][']", 0},
		{"the environment", "sh", []string{"-c", "echo $COLOUR"}, "red\n", 0},
		{"an exit code", "sh", []string{"-c", "exit 9"}, "", 9},
		{"a folder that is shared", "sh", []string{"-c", "echo kept > note; pwd"}, "/workspace\n", 0},
		{"no input", "cat", nil, "", 0},
		{"a program that is not there", "nosuchprogram", nil, "", 127},
	} {
		t.Run(p.name, func(t *testing.T) {
			var out struct {
				ExitCode int `json:"exit_code"`
				Success  bool
				Output   []struct{ Stream, Text string }
			}
			arguments := with("command", p.command)
			if p.args != nil {
				arguments["args"] = p.args
			}
			c.call(t, "sandbox_run_command", arguments, &out)
			var stdout strings.Builder
			for _, o := range out.Output {
				if o.Stream == "stdout" {
					stdout.WriteString(o.Text + "\n")
				}
			}
			switch {
			case strings.TrimSuffix(stdout.String(), "\n") != strings.TrimSuffix(p.stdout, "\n"):
				t.Errorf(`strings.TrimSuffix(stdout.String(), "\n") = %v, want %v: %+v`,
					strings.TrimSuffix(stdout.String(), "\n"), strings.TrimSuffix(p.stdout, "\n"), out)
			case out.ExitCode != p.exit:
				t.Errorf("out.ExitCode = %v, want %v: %+v", out.ExitCode, p.exit, out)
			case out.Success != (p.exit == 0):
				t.Errorf("out.Success = %v, want %v: %+v", out.Success, p.exit == 0, out)
			}
		})
	}
	var out struct{ Output []struct{ Text string } }
	c.call(t, "sandbox_run_code", with("code", "print(open('note').read().strip())", "language", "python"), &out)
	if len(out.Output) != 1 || strings.TrimSpace(out.Output[0].Text) != "kept" {
		t.Errorf("the file is %+v", out)
	}
	c.call(t, "sandbox_stop", box, nil)
}
