package cli

import (
	"io/fs"
	"os"
	"runtime"

	"paddock/internal/privatefile"
)

// canFix is the hint of what paddock doctor --fix changes.
const canFix = "paddock doctor --fix changes that"

// examineRights looks at who can read and write what is the user's alone.
func (cmd doctorCommand) examineRights(d *diagnosis) {
	if runtime.GOOS == "windows" {
		return // folders of a user are that user's there
	}
	if keys := cmd.exposedSecrets(); len(keys) > 0 {
		file := cmd.Config.File
		d.Findings = append(d.Findings, finding{
			Name: "configuration", Status: weak, Detail: file + " has " + keys[0] + ", and every user of this machine can read it", Hint: canFix,
			fix: func() error { return os.Chmod(file, 0o600) }, fixed: file + " is its user's alone now",
		})
	}
	for name, dir := range map[string]string{"state folder": cmd.StateDir, "cache folder": cmd.CacheDir} {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || info.Mode()&0o700 == 0o700 || privatefile.CheckFolder(dir) != nil {
			continue // it is not there yet, or another user's
		}
		d.Findings = append(d.Findings, finding{
			Name: name, Status: bad, Detail: dir + " cannot be used by its own user", Hint: canFix,
			fix: func() error { return os.Chmod(dir, info.Mode()&fs.ModePerm|0o700) }, fixed: dir + " can be used by its user now",
		})
	}
}
