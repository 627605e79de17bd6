package cli

import (
	"fmt"
	"os"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/vault"
)

// examineServers looks at what is known of other servers, without connecting to them,
// and at where the key is of what is kept encrypted.
func (cmd doctorCommand) examineServers(d *diagnosis) {
	all, err := cmd.Servers()
	defer func() {
		for _, k := range all {
			k.Close()
		}
	}()
	if err != nil {
		f := fault.Of(err)
		d.add("servers", weak, f.Message, f.Hint)
	}
	configured := len(cmd.Config.Servers)
	detail := fmt.Sprintf("%d of paddock.toml and %d added", configured, len(all)-configured)
	if n := len(cmd.Config.MCP.Allowlist); n > 0 {
		detail += fmt.Sprintf("; sessions may bind what %d rules allow (mcp.allowlist)", n)
		if t := cmd.Config.MCP.Tools; len(t.Allow)+len(t.Ask)+len(t.Deny) > 0 {
			detail += ", and call of it what mcp.tools leaves"
		}
	} else {
		detail += "; sessions may bind none themselves (mcp.allowlist)"
	}
	hint := ""
	if len(all) > 0 {
		hint = "paddock server ls --check connects to them"
	}
	d.add("servers", good, detail, hint)
	for _, k := range all {
		if k.Err != nil {
			f := fault.Of(fault.Apart(k.Err)[0])
			d.add("server "+k.Name, weak, strings.ReplaceAll(k.Err.Error(), "\n", "; "), f.Hint)
		}
	}
	cmd.examineVault(d)
}

func (cmd doctorCommand) examineVault(d *diagnosis) {
	kept, err := vault.Kept(cmd.StateDir)
	rings := vault.System(os.Getenv)
	switch {
	case err != nil:
		f := fault.Of(err)
		d.add("encryption", weak, f.Message, f.Hint)
		return
	case kept == "" && len(rings) > 0 && cmd.Config.Vault.Keyring != "off":
		d.add("encryption", good, "nothing is kept encrypted yet; the key would be put into "+rings[0].Name()+" if that takes it, else into a file of the state folder (vault.keyring)", "")
		return
	case kept == "" && cmd.Config.Vault.Keyring == "off":
		d.add("encryption", good, "nothing is kept encrypted yet; the key would be in a file of the state folder (vault.keyring is off)", "")
		return
	case kept == "":
		d.add("encryption", good, "nothing is kept encrypted yet; the key would be in a file of the state folder: there is no keyring here", "")
		return
	}
	// That it is said to be there is not enough.
	if err := cmd.OpenVault(); err != nil {
		f := fault.Of(err)
		d.add("encryption", weak, f.Message, f.Hint)
		return
	}
	d.add("encryption", good, "the key of what is kept encrypted is in "+kept, "")
}
