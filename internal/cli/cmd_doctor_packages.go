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
	if python.Indexes == 0 || npm.Indexes == 0 {
		hint = "packages.pypi.index and packages.npm.index say where they come from"
	}
	d.add("packages", good, describeSource("Python packages", python)+"; "+describeSource("npm packages", npm), hint)
}

func describeSource(kind string, s app.PackageSource) string {
	switch {
	case s.Indexes == 0:
		return kind + " cannot be installed (" + s.Key + ")"
	case s.Machine != "":
		return fmt.Sprintf("%s come from %d indexes of this machine's own (%s)", kind, s.Indexes, s.Machine)
	}
	return fmt.Sprintf("%s come from %d indexes of %s", kind, s.Indexes, s.Key)
}
