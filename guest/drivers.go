package guest

import "embed"

// PythonDriver are the sources of the Python driver as the guest's image has
// them, for a Python that is not WebAssembly.
//
//go:embed python/_paddock_display.py python/_paddock_driver.py python/_paddock_errors.py
var PythonDriver embed.FS
