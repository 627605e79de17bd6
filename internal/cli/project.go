package cli

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"paddock/internal/fault"
	"paddock/internal/trust"
)

func (cl *cli) trustedFiles() trust.Files { return trust.Files{Dir: cl.StateDir} }

// trusted reports whether a working folder's file counts. Where that cannot be told it does
// not.
func (cl *cli) trusted(path string, text []byte) bool {
	ok, err := cl.trustedFiles().Trusts(path, text)
	return ok && err == nil
}

// tellIgnored says in one line that the working folder's file is not read, and what to do:
// to people, and for those who read no terminal in the log.
func (cl *cli) tellIgnored(c *cobra.Command) {
	place, err := trust.Place(cl.Config.Ignored)
	if err != nil {
		place = cl.Config.Ignored
	}
	message := fmt.Sprintf("%s is not read: %s; paddock trust %s shows it and asks", plain(place), cl.whyIgnored(place), asWord(place))
	cl.warn(c, message)
}

// warn says something of the configuration in one line: to people, and for those who read
// no terminal in the log.
func (cl *cli) warn(c *cobra.Command, message string) {
	if c.Name() == "mcp" || c.Name() == "serve" {
		cl.Log.Warn(message)
		if cl.Log.Enabled(c.Context(), slog.LevelWarn) {
			return
		}
	}
	cl.say("notice", message)
}

// whyIgnored says why the file at a place does not count.
func (cl *cli) whyIgnored(place string) string {
	all, err := cl.trustedFiles().List()
	switch {
	case err != nil:
		return fault.Of(err).Message
	case slices.ContainsFunc(all, func(e trust.Entry) bool { return e.Path == place }):
		return "it has changed since it was trusted"
	}
	return "it is not trusted"
}

var ordinaryWord = regexp.MustCompile(`^[A-Za-z0-9_./:\\@+,-]+$`)

// asWord is a path as it can be typed; what a shell might take for something else is left
// to who types.
func asWord(path string) string {
	if ordinaryWord.MatchString(path) {
		return path
	}
	return "FILE"
}
