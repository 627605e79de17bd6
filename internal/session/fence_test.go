package session

import "testing"

func TestABlockOfMarkdownIsItsProgram(t *testing.T) {
	for _, c := range []struct{ code, program, language string }{
		{"```python\nprint(1)\n```", "\nprint(1)", "python"},
		{"\n```py\nprint(1)\n\nprint(2)\n```  \n", "\n\nprint(1)\n\nprint(2)", "python"},
		{"~~~js\n1\n~~~", "\n1", "javascript"},
		{"````ts\n`a`\n```\n````", "\n`a`\n```", "typescript"},
		{"```\n1\n```", "\n1", ""},
		{"```cobol\n1\n```", "\n1", ""},
		{"```{.python}\n1\n```", "\n1", "python"},
		{"```python\r\n1\r\n```", "\n1\r", "python"},
		{"```sh\n```", "", "bash"},
		// What is not one block is what it was.
		{"print(1)", "print(1)", ""},
		{"", "", ""},
		{"```python\nprint(1)", "```python\nprint(1)", ""},
		{"```python\n1\n```\nand\n```python\n2\n```", "```python\n1\n```\nand\n```python\n2\n```", ""},
		{"x = '''\n```\n'''", "x = '''\n```\n'''", ""},
		{"``\n1\n``", "``\n1\n``", ""},
		{"```", "```", ""},
		{"`~`\n1\n`~`", "`~`\n1\n`~`", ""},
	} {
		if program, language := Unfenced(c.code); program != c.program {
			t.Errorf("program: got %v, want %v", program, c.program)
		} else if language != c.language {
			t.Errorf("language: got %v, want %v", language, c.language)
		}
	}
}
