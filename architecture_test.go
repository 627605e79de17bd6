package paddock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/config"
)

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	sourceName = regexp.MustCompile(`^[\w./-]+\.(go|py|js|c)$`)
	goName     = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}$`)
	humps      = regexp.MustCompile(`^[A-Za-z]*[a-z][A-Z]\w*$`)
	// nameOf and namesIn find a file with what is named beside it in prose:
	// "`name` in `file`" or "`name` (`file`", and "`file` (`name`, `name`)".
	nameOf  = regexp.MustCompile("`([\\w.]+)`(?: in | \\()`([\\w./-]+\\.go)`")
	namesIn = regexp.MustCompile("`([\\w./-]+\\.go)` \\(((?:`[\\w.]+`(?:, )?)+)\\)")
)

// ofOthers are code spans of the documents that look like names of this source.
var ofOthers = []string{"httputil.ReverseProxy", "os.Root", "index.db", "CHANGELOG.md"}

// ARCHITECTURE.md and CONTRIBUTING.md send readers to files and functions: each is there.
func TestDocumentsNameWhatExists(t *testing.T) {
	code, err := readSource()
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(string(text), "\n\n") {
			if strings.HasPrefix(block, "|") {
				continue // a table
			}
			block = strings.Join(strings.Fields(block), " ")
			for _, span := range codeSpan.FindAllStringSubmatch(block, -1) {
				named += code.checkSpan(t, document, span[1])
			}
			for _, found := range nameOf.FindAllStringSubmatch(block, -1) {
				code.checkBeside(t, document, found[2], found[1])
			}
			for _, found := range namesIn.FindAllStringSubmatch(block, -1) {
				for _, span := range codeSpan.FindAllStringSubmatch(found[2], -1) {
					code.checkBeside(t, document, found[1], span[1])
				}
			}
		}
	}
	if named < 120 {
		t.Errorf("found %d files and names in the documents, want at least 120", named)
	}
}

// The table of ARCHITECTURE.md that says where to change what has whole paths, and after
// each of them what is declared in that file.
func TestTableOfPlacesNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n## Where to change what\n")
	if !found {
		t.Fatal(`ARCHITECTURE.md has no section "Where to change what"`)
	}
	table, _, _ = strings.Cut(table, "\n## ")
	code, err := readSource()
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.SplitSeq(table, "\n") {
		question, places, row := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !row || !strings.Contains(places, "`") {
			continue
		}
		rows++
		file := ""
		for _, span := range codeSpan.FindAllStringSubmatch(places, -1) {
			switch name := span[1]; {
			case sourceName.MatchString(name):
				if file = name; code.files[file] == nil {
					t.Errorf("%s: there is no file %s", question, file)
				}
			case file == "":
				t.Errorf("%s: %s comes before a file", question, name)
			case code.files[file] != nil && !code.files[file][name]:
				t.Errorf("%s: %s does not declare %s", question, file, name)
			}
		}
		if file == "" {
			t.Errorf("%s: no file is named", question)
		}
	}
	if rows < 18 {
		t.Errorf("the table has %d rows, want at least 18", rows)
	}
}

// source is what the files of this module declare: functions, types, constants, variables,
// and methods and fields as Type.Name.
type source struct {
	files    map[string]map[string]bool // by path
	packages map[string]map[string]bool // by a package's name
}

// checkSpan checks a code span of prose, and returns 1 if it names something of the source:
// a file by the end of its path, a folder, a name in mixed case, or one with a dot, whose
// first part may be its package.
func (s source) checkSpan(t *testing.T, document, span string) int {
	t.Helper()
	switch first, rest, dotted := strings.Cut(span, "."); {
	case sourceName.MatchString(span):
		if len(s.filesNamed(span)) == 0 {
			t.Errorf("%s: there is no file %s", document, span)
		}
	case strings.HasPrefix(span, "internal/") || strings.HasPrefix(span, "cmd/"):
		if _, err := os.Stat(span); err != nil {
			t.Errorf("%s: there is no folder %s", document, span)
		}
	case humps.MatchString(span):
		if !s.member(span) {
			t.Errorf("%s: %s is not declared", document, span)
		}
	case !dotted || !goName.MatchString(span) || slices.Contains(ofOthers, span) || isKey(span):
		return 0
	case s.packages[first] != nil:
		if !declares(s.packages[first], rest) {
			t.Errorf("%s: package %s does not declare %s", document, first, rest)
		}
	case !s.anywhere(span):
		t.Errorf("%s: %s is not declared", document, span)
	}
	return 1
}

// isKey reports whether the configuration has a key.
func isKey(name string) bool {
	return slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return k.Name == name })
}

// checkBeside checks that a file, named by the end of its path, declares what is named beside it.
func (s source) checkBeside(t *testing.T, document, file, name string) {
	t.Helper()
	for _, found := range s.filesNamed(file) {
		// The name may begin with its package.
		if _, rest, _ := strings.Cut(name, "."); s.files[found][name] || s.files[found][rest] {
			return
		}
	}
	t.Errorf("%s: %s does not declare %s", document, file, name)
}

func (s source) filesNamed(end string) (found []string) {
	for file := range s.files {
		if file == end || strings.HasSuffix(file, "/"+end) {
			found = append(found, file)
		}
	}
	return found
}

// declares reports whether a package has a name; a method or a field is also found without
// its type, as in broker.Provide.
func declares(names map[string]bool, name string) bool {
	if names[name] {
		return true
	}
	for declared := range names {
		if _, member, _ := strings.Cut(declared, "."); member == name {
			return true
		}
	}
	return false
}

// anywhere reports whether a package of this module has a name.
func (s source) anywhere(name string) bool {
	for _, names := range s.packages {
		if names[name] {
			return true
		}
	}
	return false
}

// member reports whether a package of this module has a name, or one of its types a member
// that is called so.
func (s source) member(name string) bool {
	for _, names := range s.packages {
		if declares(names, name) {
			return true
		}
	}
	return false
}

// readSource reads the files of the module, tests too, once.
var readSource = sync.OnceValues(func() (source, error) {
	s := source{files: map[string]map[string]bool{}, packages: map[string]map[string]bool{}}
	notOurs := []string{"testdata", "dist", "node_modules", "bin"}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(notOurs, name) || file != "." && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case d.IsDir() || !sourceName.MatchString(name):
			return nil
		}
		file = filepath.ToSlash(file)
		if path.Ext(file) == ".go" {
			return s.readGo(file)
		}
		s.files[file], err = declaredByScript(file)
		return err
	})
	return s, err
})

// scriptName finds what a file in Python, JavaScript or C declares: a function, a class, a
// method or a constant, where the line begins with it.
var scriptName = regexp.MustCompile(`(?m)^\s*(?:export\s+)?(?:async\s+)?` +
	`(?:(?:def|class|function|const|let)\s+(\w+)|(\w+)\([^;]*\)\s*\{$)`)

func declaredByScript(file string) (map[string]bool, error) {
	text, err := os.ReadFile(file)
	names := map[string]bool{}
	for _, found := range scriptName.FindAllStringSubmatch(string(text), -1) {
		names[found[1]+found[2]] = true
	}
	return names, err
}

func (s source) readGo(file string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	s.files[file] = names
	for _, decl := range parsed.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			names[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				declaredBy(spec, names)
			}
		}
	}
	if strings.HasSuffix(file, "_test.go") {
		return nil
	}
	of := s.packages[parsed.Name.Name]
	if of == nil {
		of = map[string]bool{}
		s.packages[parsed.Name.Name] = of
	}
	for name := range names {
		of[name] = true
	}
	return nil
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	default:
		return ""
	}
}

// declaredBy adds the names of a constant, a variable or a type, and a type's members.
func declaredBy(spec ast.Spec, names map[string]bool) {
	switch d := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range d.Names {
			names[name.Name] = true
		}
	case *ast.TypeSpec:
		names[d.Name.Name] = true
		var members *ast.FieldList
		switch of := d.Type.(type) {
		case *ast.StructType:
			members = of.Fields
		case *ast.InterfaceType:
			members = of.Methods
		default:
			return
		}
		for _, member := range members.List {
			for _, name := range member.Names {
				names[d.Name.Name+"."+name.Name] = true
			}
		}
	}
}

// A package's comment names the package, so that a renamed one is not called by its old name.
func TestPackageCommentsNameTheirPackage(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || len(d.Name()) > 1 && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(f.Doc.Text(), "Package ")
		if !ok {
			return nil
		}
		seen++
		if name, _, _ = strings.Cut(name, " "); name != f.Name.Name {
			t.Errorf("%s: the comment is of package %s, want %s", path, name, f.Name.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Errorf("found %d package comments, want at least 50", seen)
	}
}
