package stub

// PythonLiteral gives s as a string literal of Python, in which everything is visible.
func PythonLiteral(s string) string { return pythonText(s) }

// ScriptLiteral gives s as a string literal of JavaScript and TypeScript, in which
// everything is visible.
func ScriptLiteral(s string) string { return scriptText(s) }

// IsPythonKeyword reports whether Python keeps a name for itself.
func IsPythonKeyword(name string) bool { return keywordsPython[name] }
