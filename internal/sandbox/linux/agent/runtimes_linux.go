package agent

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// versionTime bounds how long an interpreter may take to tell its version.
const versionTime = 5 * time.Second

// offered are the runtimes in the order in which they are told.
var offered = []struct {
	name, title, about string
	languages          []string
}{
	{"python", "CPython", " with the image's packages, threads, processes and a shell beside it, top-level await", []string{"python"}},
	{"javascript", "Node.js", " with the image's packages, modules, top-level await; TypeScript is translated", []string{"javascript", "typescript"}},
	{"bash", "GNU bash", " whose folder, variables and functions stay from call to call, and the image's programs", []string{"bash"}},
}

var versionNumber = regexp.MustCompile(`\d+\.\d+[\w.()-]*`)

// runtimes are those whose interpreters are there and tell their version.
func (a *agent) runtimes() []sandbox.Runtime {
	var all []sandbox.Runtime
	for _, o := range offered {
		in := &instance{agent: a, dir: "/", language: languages[o.name], start: wire.StartBody{Runtime: o.name}}
		in.setEnvironment()
		path, err := in.find(in.language.program)
		if err != nil {
			continue
		}
		if version := versionNumber.FindString(in.output(path, "--version")); version != "" {
			all = append(all, sandbox.Runtime{
				Name: o.name, Languages: o.languages, Version: o.title + " " + version, Description: o.title + " " + version + o.about,
			})
		}
	}
	return all
}

// output is the beginning of what a program prints that ends soon; empty when it
// does not.
func (in *instance) output(path string, args ...string) string {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC) != nil {
		return ""
	}
	r, w := os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output")
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		w.Close()
		return ""
	}
	defer null.Close()
	c, err := in.agent.reap.start(path, append([]string{path}, args...), &syscall.ProcAttr{
		Dir: "/", Env: in.environ, Files: []uintptr{null.Fd(), w.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	w.Close()
	if err != nil {
		return ""
	}
	t := time.AfterFunc(versionTime, func() { c.signal(syscall.SIGKILL) })
	defer t.Stop()
	var text bytes.Buffer
	_, _ = io.CopyN(&text, r, 1<<10) // short, or it was killed
	<-c.ended
	return text.String()
}
