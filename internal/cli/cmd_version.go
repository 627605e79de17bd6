package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionCommand is paddock version.
type versionCommand struct{ *cli }

// version is set when paddock is linked; empty: the module's own is told.
var version string

// buildInfo is what the binary knows of how it was built.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // there were changes that are not in the commit
	Time     string `json:"commit_time,omitempty"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func build() buildInfo {
	b := buildInfo{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "dev"
	}
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Time = s.Value
		}
	}
	return b
}

func (b buildInfo) String() string {
	return fmt.Sprintf("paddock %s (%s, %s/%s)", b.Version, b.Go, b.OS, b.Arch)
}

func (cmd versionCommand) command() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Prints the version, and what it was built with.

Exit codes: 0 done, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return cmd.printJSON(build())
			}
			_, err := fmt.Fprintln(cmd.stdout, build())
			return err
		},
	}
	jsonFlag(c, &asJSON)
	return c
}
