package cli

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
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
func (cl *cli) load(c *cobra.Command) error {
	if err := cl.findPlaces(c.Flags()); err != nil {
		return err
	}
	given := map[string]string{}
	c.Flags().Visit(func(f *pflag.Flag) {
		if len(config.Flags(f.Name)) > 0 {
			given[f.Name] = f.Value.String()
		}
	})
	cl.Source = config.Source{
		File: cl.places.config, Project: trust.Name, Trusted: cl.trusted, Search: cl.places.search, Environ: os.Environ(), Flags: given,
	}
	var err error
	cl.Config, err = config.Load(cl.Source)
	cl.Log = cl.newLog(c)
	if cl.Config.Ignored != "" {
		cl.tellIgnored(c)
	}
	for _, warning := range cl.Config.Warnings {
		cl.warn(c, plain(warning))
	}
	return errors.Join(err, cl.CheckServers())
}

// findPlaces finds the folders and the configuration.
func (cl *cli) findPlaces(flags *pflag.FlagSet) error {
	home := homeFolder()
	for _, place := range []struct {
		to       *string
		flag     string
		variable string
		fallback string
	}{
		{&cl.StateDir, "state-dir", "PADDOCK_STATE_DIR", stateFolder(home)},
		{&cl.CacheDir, "cache-dir", "PADDOCK_CACHE_DIR", cacheFolder(home)},
		{&cl.places.config, "config", "PADDOCK_CONFIG", ""},
	} {
		*place.to = place.fallback
		if v := os.Getenv(place.variable); v != "" {
			*place.to = v
		}
		if v, err := flags.GetString(place.flag); err == nil && v != "" {
			*place.to = v
		}
	}
	for _, dir := range []*string{&cl.StateDir, &cl.CacheDir} {
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
		cl.places.search = []string{filepath.Join(dir, trust.Name)}
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

// loadServers loads the configuration for a command about servers.
func (cl *cli) loadServers(c *cobra.Command) error {
	if err := cl.load(c); err != nil {
		return err
	}
	return cl.explainFolder(privatefile.CheckFolder(cl.StateDir))
}

// explainFolder says which the state folder is, where it cannot be used.
func (cl *cli) explainFolder(err error) error {
	if err == nil {
		return nil
	}
	return cl.explainTokens(err)
}

// warnOfSecrets says when every user of this machine can read a secret in the
// configuration.
func (cl *cli) warnOfSecrets() {
	for _, key := range cl.exposedSecrets() {
		cl.say("warning", cl.Config.File+" has "+key+", and every user of this machine can read it")
		cl.say("hint", "chmod 600 "+cl.Config.File)
	}
}

// exposedSecrets are the keys of secrets in the configuration that every user of this
// machine can read.
func (cl *cli) exposedSecrets() (exposed []string) {
	file := cl.Config.File
	if file == "" || runtime.GOOS == "windows" {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode()&0o004 == 0 {
		return nil
	}
	keys := []string{"transport_http.auth_token", "registries.credentials"}
	for name, s := range cl.Config.Servers {
		if s.HasSecrets() {
			keys = append(keys, "servers."+name)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if strings.HasPrefix(cl.Config.Origin(key), file+":") {
			exposed = append(exposed, key)
		}
	}
	return exposed
}

// aboutConfig says which configuration counts.
func (cl *cli) aboutConfig() string {
	if cl.Config.File == "" {
		if cl.Config.Ignored != "" {
			return "no paddock.toml is read; variables, flags and defaults count"
		}
		return "there is no paddock.toml; variables, flags and defaults count"
	}
	return cl.Config.File + " is right"
}
