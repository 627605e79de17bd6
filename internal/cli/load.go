package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/telemetry"
	"paddock/internal/trust"
)

// places are where the configuration is.
type places struct {
	config string   // the file that was asked for; empty: search
	search []string // where it may be else, beside the working folder
}

// keyFlag adds a flag that sets keys of the configuration.
func keyFlag(flags *pflag.FlagSet, name, usage string) {
	keys := config.Flags(name)
	if len(keys) == 0 {
		panic("cli: no key has the flag --" + name)
	}
	flags.String(name, "", fmt.Sprintf("%s (%s)", usage, keys[0].Name))
}

// listFlag is keyFlag for one that may be given several times: what each says is added to
// what the others say.
func listFlag(flags *pflag.FlagSet, name, usage string) {
	keyFlag(flags, name, usage)
	f := flags.Lookup(name)
	f.Value, f.DefValue = &listed{}, ""
}

// listed is the value of a flag that may be given several times, as one line.
type listed struct{ all []string }

func (l *listed) String() string { return strings.Join(l.all, ", ") }
func (l *listed) Type() string   { return "string" }

func (l *listed) Set(text string) error {
	l.all = append(l.all, text)
	return nil
}

// netFlag lets programs reach hosts.
func netFlag(flags *pflag.FlagSet) {
	listFlag(flags, "net-allow", "let programs reach these `HOSTS`, such as api.example.com or \"GET *.example.com/v1/*\"; may be repeated")
}

// secretFlag gives sessions secrets.
func secretFlag(flags *pflag.FlagSet) {
	listFlag(flags, "secret", "give programs a placeholder of the secret `NAME`, in the variable of that name; may be repeated")
}

// load finds the places, reads the configuration and opens the log. Its error
// joins every mistake in the configuration; what is right of it counts then.
func (p *program) load(c *cobra.Command) error {
	if err := p.findPlaces(c.Flags()); err != nil {
		return err
	}
	given := map[string]string{}
	c.Flags().Visit(func(f *pflag.Flag) {
		if len(config.Flags(f.Name)) > 0 {
			given[f.Name] = f.Value.String()
		}
	})
	p.Source = config.Source{
		File: p.places.config, Project: trust.Name, Trusted: p.trusted, Search: p.places.search, Environ: os.Environ(), Flags: given,
	}
	var err error
	p.Config, err = config.Load(p.Source)
	p.Log = telemetry.NewLogger(p.stderr, p.Config.Logging.Level, p.Config.Logging.Structured)
	if p.Config.Ignored != "" {
		p.tellIgnored(c)
	}
	for _, warning := range p.Config.Warnings {
		p.warn(c, plain(warning))
	}
	return errors.Join(err, p.CheckServers())
}

// findPlaces finds the folders and the configuration.
func (p *program) findPlaces(flags *pflag.FlagSet) error {
	home := homeFolder()
	for _, place := range []struct {
		to       *string
		flag     string
		variable string
		fallback string
	}{
		{&p.StateDir, "state-dir", "PADDOCK_STATE_DIR", stateFolder(home)},
		{&p.CacheDir, "cache-dir", "PADDOCK_CACHE_DIR", cacheFolder(home)},
		{&p.places.config, "config", "PADDOCK_CONFIG", ""},
	} {
		*place.to = place.fallback
		if v := os.Getenv(place.variable); v != "" {
			*place.to = v
		}
		if v, err := flags.GetString(place.flag); err == nil && v != "" {
			*place.to = v
		}
	}
	for _, dir := range []*string{&p.StateDir, &p.CacheDir} {
		if *dir == "" {
			return fault.New(fault.Unavailable, "the user has no home folder").WithHint("say where to keep files with --state-dir and --cache-dir")
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("finding the current folder: %w", err)
		}
		*dir = abs
	}
	if dir := configFolder(home); dir != "" {
		p.places.search = []string{filepath.Join(dir, trust.Name)}
	}
	return nil
}

// homeFolder is the user's home folder, also where a client starts paddock
// without any environment; empty: there is none.
func homeFolder() string {
	if home, err := os.UserHomeDir(); err == nil {
		return home
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// stateFolder is where the system keeps what a program has to remember.
func stateFolder(home string) string {
	return userFolder("XDG_STATE_HOME", home, map[string]string{
		"windows": "AppData/Local/paddock/state",
		"darwin":  "Library/Application Support/paddock",
		"":        ".local/state/paddock",
	})
}

// cacheFolder is where the system keeps what can be made again.
func cacheFolder(home string) string {
	return userFolder("XDG_CACHE_HOME", home, map[string]string{
		"windows": "AppData/Local/paddock/cache",
		"darwin":  "Library/Caches/paddock",
		"":        ".cache/paddock",
	})
}

func configFolder(home string) string {
	return userFolder("XDG_CONFIG_HOME", home, map[string]string{
		"windows": "AppData/Roaming/paddock",
		"darwin":  "Library/Application Support/paddock",
		"":        ".config/paddock",
	})
}

// userFolder is paddock's folder below the one that a variable names, or below the
// home folder, by system.
func userFolder(variable, home string, below map[string]string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "paddock")
	}
	path, special := below[runtime.GOOS]
	if !special {
		path = below[""]
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, filepath.FromSlash(path))
}

// terminal tells whether a person looks at w.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
