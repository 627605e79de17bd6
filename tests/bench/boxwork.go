package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/session"
)

// programTime bounds one of the programs.
const programTime = 5 * time.Minute

// programs runs the same programs in a session and on this machine's own kernel,
// with the same interpreters of the same image and the folder on the same disk.
func (x boxes) programs(ctx context.Context) error {
	p, err := x.open("programs")
	if err != nil {
		return err
	}
	defer p.close()
	folder := filepath.Join(x.dir, "native")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := os.Chown(folder, nativeUser, nativeUser); err != nil {
		return err
	}
	for _, c := range []struct {
		group, language, code string
		rounds                int
		target                string
	}{
		{"cpu python", "python", cpuPython, 5, "<= 1.05x"},
		{"cpu javascript in a kernel", "javascript", cpuJavaScript, 5, ""}, // whose names are kept for the next call
		{"cpu node", nodeProgram, cpuJavaScript, 5, "<= 1.05x"},
		{"cpu numpy, pandas", "python", numericPython, 5, "<= 1.05x"},
		{"files python", "python", filesPython, 2, ""},
		{"system", "python", machinePython, 1, ""},
		{"agent mix", "python", agentPython, 2, ""},
	} {
		inside := func() (string, error) { return p.inSession(ctx, c.language, c.code) }
		outside := func() (string, error) { return x.outside(folder, c.language, c.code) }
		if err := x.t.compare(c.group, c.rounds, inside, outside, "the same on this kernel", c.target); err != nil {
			return err
		}
	}
	return nil
}

// nodeProgram is a program that node runs by itself, as outside.
const nodeProgram = "node"

// inSession runs a program in a session of its own.
func (p *place) inSession(ctx context.Context, language, code string) (string, error) {
	if language == nodeProgram {
		language, code = "bash", "cat >program.cjs <<'the end of it'\n"+code+"\nthe end of it\nnode program.cjs"
	}
	i, err := p.Create(ctx, session.Local, "", session.Settings{Language: language})
	if err != nil {
		return "", err
	}
	r, err := p.say(ctx, i.ID, language, code)
	if e := p.Destroy(ctx, session.Local, i.ID); err == nil {
		err = e
	}
	return r.Stdout, err
}

// outside runs a program of the image on this machine's kernel.
func (x boxes) outside(folder, language, code string) (string, error) {
	const file = "program.txt"
	name := filepath.Join(folder, file)
	if err := os.WriteFile(name, []byte(code), 0o644); err != nil {
		return "", err
	}
	defer os.Remove(name)
	if language != "python" { // node goes by a file's ending
		return native(x.root, folder, x.env, "node", "-e", code)
	}
	return native(x.root, folder, x.env, "python3", file)
}
