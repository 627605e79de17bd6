package guest

import "embed"

// PythonDriver are the sources of the Python driver as the guest's image has
// them, for a Python that is not WebAssembly: all but what is special about the
// place (_paddock_place, _paddock_loop, _paddock).
//
//go:embed python/_paddock_display.py python/_paddock_driver.py python/_paddock_errors.py
var PythonDriver embed.FS

// JavaScriptEdits is a module of the JavaScript driver that needs nothing but
// the language, for an engine that is not WebAssembly.
//
//go:embed js/driver/edits.js
var JavaScriptEdits []byte
