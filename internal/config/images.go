package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// imageName is what an image may be called in the configuration.
var imageName = regexp.MustCompile(`^[a-z0-9][a-z0-9._/-]{0,99}$`)

// references is a table of images by their names. What a reference may be is for
// those who read it to say.
func references() kind[map[string]string] {
	return table("a table of references by names; as a variable NAME=reference,NAME=reference", func(name, ref string) error {
		switch {
		case !imageName.MatchString(name) || name == "host":
			return fmt.Errorf("%q cannot be the name of an image", name)
		case ref == "" || len(ref) > 512 || strings.ContainsFunc(ref, func(r rune) bool { return r <= ' ' || r > '~' }):
			return fmt.Errorf("%s stands for no reference", name)
		}
		return nil
	})
}

// credentials is a table of USER:PASSWORD by hosts, of which only the hosts are
// shown.
func credentials() kind[map[string]string] {
	hidden := func(all map[string]string) any {
		shown := map[string]string{}
		for host := range all {
			shown[host] = "(hidden)"
		}
		return shown
	}
	k := table("a table of USER:PASSWORD by hosts; as a variable HOST=USER:PASSWORD,HOST=…", func(host, secret string) error {
		if host == "" || strings.ContainsAny(host, "/*?#@ ") {
			return fmt.Errorf("%q is not a host", host)
		}
		if user, password, ok := strings.Cut(secret, ":"); !ok || user == "" || password == "" {
			return fmt.Errorf("what it has for %s is not of the form USER:PASSWORD", host)
		}
		return nil
	})
	k.data = hidden
	text := k.text
	k.text = func(s string) (map[string]string, error) {
		all, err := text(s)
		if err != nil && strings.Contains(err.Error(), "is not of the form NAME=value") {
			err = errors.New("it is not of the form HOST=USER:PASSWORD,HOST=…") // without repeating it
		}
		return all, err
	}
	return k
}

// folders is some absolute paths.
func folders() kind[[]string] {
	return each("absolute paths", func(s string) error {
		if !filepath.IsAbs(s) {
			return fmt.Errorf("%q is not an absolute path", s)
		}
		return nil
	})
}
