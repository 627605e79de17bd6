package guest

import "embed"

// PythonDriver are the sources of the Python driver as the guest's image has
// them, for a Python that is not WebAssembly: all but what is special about the
// place (_paddock_place, _paddock_loop, _paddock).
//
//go:embed python/_paddock_display.py python/_paddock_driver.py python/_paddock_errors.py python/_paddock_servers.py
var PythonDriver embed.FS

// JavaScriptEdits and JavaScriptServers are modules of the JavaScript driver that
// need nothing but the language, for an engine that is not WebAssembly.
var (
	//go:embed js/driver/edits.js
	JavaScriptEdits []byte
	//go:embed js/driver/servers.js
	JavaScriptServers []byte
)
