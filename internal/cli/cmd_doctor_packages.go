package cli

import (
	"fmt"

	"paddock/internal/app"
)

// examinePackages tells where packages come from.
func (cmd doctorCommand) examinePackages(d *diagnosis) {
	python, npm, err := cmd.PackageSources()
	if err != nil {
		d.fail("packages", err)
		return
	}
	hint := ""
	switch {
	case python.Indexes == 0 || npm.Indexes == 0:
		hint = "packages.pypi.index and packages.npm.index say where they come from"
		if npm.Indexes == 0 && python.Public != "" {
			hint = "packages.npm.index names a registry; without it the one counts that an installed npm asks"
		}
	case python.Public != "" || npm.Public != "":
		hint = "packages.public = false turns that off, and so does an index of your own in packages.pypi.index or packages.npm.index"
	}
	d.add("packages", good, describeSource("Python packages", "pip", python)+"; "+describeSource("npm packages", "npm", npm), hint)
}

func describeSource(kind, client string, s app.PackageSource) string {
	switch {
	case s.Indexes == 0:
		return kind + " cannot be installed (" + s.Key + ")"
	case s.Public != "":
		return fmt.Sprintf("%s come from where %s gets them by itself (%s)", kind, client, s.Public)
	case s.Machine != "":
		return fmt.Sprintf("%s come from %d indexes of this machine's own (%s)", kind, s.Indexes, s.Machine)
	}
	return fmt.Sprintf("%s come from %d indexes of %s", kind, s.Indexes, s.Key)
}
