package config

import (
	"fmt"
	"maps"
	"regexp"
)

// E2B is what E2B's SDKs are served.
type E2B struct {
	Enabled   bool
	Templates map[string]string // images, by the names of templates
}

// usualTemplates are those that E2B's SDKs ask for by themselves.
var usualTemplates = []string{"base", "code-interpreter-v1"}

// E2BTemplates are the images of machines by the names of templates; an empty one is the
// default image.
func (c *Config) E2BTemplates() map[string]string {
	all := map[string]string{}
	for _, name := range usualTemplates {
		all[name] = ""
	}
	maps.Copy(all, c.E2B.Templates)
	return all
}

var templateName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$`)

// templates is a table of images by the names of templates.
func templates() kind[map[string]string] {
	return table("a table of images by names; as a variable NAME=image,NAME=image", func(name, image string) error {
		switch {
		case !templateName.MatchString(name):
			return fmt.Errorf("%q cannot be the name of a template", name)
		case image == "" || len(image) > 512:
			return fmt.Errorf("the template %s has no image", name)
		}
		return nil
	})
}
