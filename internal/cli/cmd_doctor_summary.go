package cli

import (
	"fmt"
	"slices"
	"strings"
)

// inMachines is the isolation that runs Linux programs.
const inMachines = "linux"

// summarize says in three lines what a user can do here.
func (d *diagnosis) summarize() {
	var ran []string // languages
	for _, i := range d.Isolations {
		if i.Available && i.Name != inMachines {
			for _, r := range i.Runtimes {
				ran = append(ran, r.Languages...)
			}
		}
	}
	run := "run code:       not here; the lines marked " + bad + " say why"
	if d.OK && len(ran) > 0 {
		run = "run code:       paddock run FILE, in " + strings.Join(ran, ", ")
	}
	linux := "Linux programs: not here"
	switch k := slices.IndexFunc(d.Isolations, func(i isolationJSON) bool { return i.Name == inMachines }); {
	case k >= 0 && d.Isolations[k].Available:
		linux = "Linux programs: paddock run -l sh FILE, or --image NAME"
	case k >= 0:
		for _, f := range d.Findings {
			if f.Name == "isolation "+inMachines {
				linux += ": " + f.Detail
			}
		}
	}
	d.Summary = []string{run, linux, "AI clients:     paddock setup CLIENT, such as claude-code, cursor or vscode"}
}

// repair does what the findings' fixes do, and says what that was.
func (d *diagnosis) repair() (done []string) {
	for _, f := range d.Findings {
		if f.fix == nil {
			continue
		}
		if err := f.fix(); err != nil {
			done = append(done, fmt.Sprintf("%s could not be: %v", f.Name, err))
			continue
		}
		done = append(done, f.fixed)
	}
	return done
}
