package pkgproxy

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"paddock/internal/fault"
)

// SitePackages is where pip installs to in the wasm guest: a folder of the workspace,
// and so a part of its checkpoints. The guest has it in sys.path, and reads no .pth
// files in it.
const SitePackages = "/workspace/.paddock/python/lib/python3.13/site-packages"

// sitePrefix is pip's --prefix for it.
const sitePrefix = "/workspace/.paddock/python"

// PythonInstall is what pip is to install in a wasm guest.
type PythonInstall struct {
	// Requirements are what to install.
	Requirements []Requirement
	// Upgrade takes newer versions also of what is there.
	Upgrade bool
	// Index is the URL of the front's simple index as the guest reaches it; empty:
	// http://packages.paddock.internal/pypi/simple/.
	Index string
	// Links, where it is set, is a folder in the guest that has all the wheels; no index
	// is asked then.
	Links string
	// Pip is the path in the guest of the folder or zip that holds pip.
	Pip string
}

//go:embed runpip.py
var pipProgram string

// Python gives the program that runs pip in a wasm guest. Its last line of output is a
// [PythonReport].
func Python(in PythonInstall) (string, error) {
	if len(in.Requirements) == 0 || in.Pip == "" {
		return "", fault.New(fault.Invalid, "there is nothing to install")
	}
	var lines []string
	hashed := false
	for _, r := range in.Requirements {
		line := r.String()
		for _, h := range r.Hashes {
			line, hashed = line+" --hash="+h, true
		}
		lines = append(lines, line)
	}
	index := in.Index
	if index == "" {
		index = "http://" + Host + "/pypi/simple/"
	}
	settings, err := json.Marshal(map[string]any{
		"pip": in.Pip, "prefix": sitePrefix, "site": SitePackages, "requirements": lines, "hashed": hashed,
		"upgrade": in.Upgrade, "index": index, "links": in.Links, "host": Host,
	})
	if err != nil {
		return "", err
	}
	quoted, err := json.Marshal(string(settings))
	if err != nil {
		return "", err
	}
	return strings.Replace(pipProgram, `"{}"`, string(quoted), 1), nil
}

// Installed is a package that is there.
type Installed struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// PythonReport is what the program says when pip has ended.
type PythonReport struct {
	Status    int         `json:"status"` // pip's exit code
	Installed []Installed `json:"installed"`
	// Printed is what pip printed, for [Packages.Explain].
	Printed string `json:"printed"`
}

// reportMark begins the report's line.
const reportMark = "paddock-pip-report:"

// ReadPythonReport finds the report in what the program printed. A guest wrote it, so
// that nothing in it is to be believed but by that guest.
func ReadPythonReport(stdout string) (PythonReport, error) {
	var r PythonReport
	at := strings.LastIndex(stdout, reportMark)
	if at < 0 {
		return r, fault.New(fault.Unavailable, "pip did not come to its end").WithHint("see what the program printed")
	}
	if err := json.Unmarshal([]byte(stdout[at+len(reportMark):]), &r); err != nil {
		return r, fault.New(fault.Unavailable, "pip did not come to its end").WithCause(fmt.Errorf("reading pip's report: %w", err))
	}
	return r, nil
}

// Environment are the variables by which pip, uv and npm in a machine use the front at
// a URL such as http://packages.paddock.internal.
func Environment(front string) map[string]string {
	front = strings.TrimSuffix(front, "/")
	env := map[string]string{
		"PIP_INDEX_URL": front + "/pypi/simple/", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1", "UV_DEFAULT_INDEX": front + "/pypi/simple/",
		"npm_config_registry": front + "/npm/", "npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false",
		"YARN_NPM_REGISTRY_SERVER": front + "/npm", "COREPACK_NPM_REGISTRY": front + "/npm",
	}
	if strings.HasPrefix(front, "http://") {
		env["PIP_TRUSTED_HOST"] = strings.TrimPrefix(front, "http://")
		env["UV_INSECURE_HOST"], env["YARN_UNSAFE_HTTP_WHITELIST"] = env["PIP_TRUSTED_HOST"], env["PIP_TRUSTED_HOST"]
	}
	return env
}
