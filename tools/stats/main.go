// Command stats prints how large the types and files of a module are, without its tests:
// for each of the largest types its methods and their lines, and the longest files.
//
//	stats FOLDER
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// shown is how many types and files are printed.
const shown = 20

// size is what a type or a file comes to.
type size struct {
	name           string
	methods, lines int
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: stats FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "stats:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	types, files := map[string]*size{}, []*size{}
	total := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || name == "tests" || name == "tools") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		lines := bytes.Count(text, []byte("\n"))
		total += lines
		files = append(files, &size{name: rel, lines: lines})
		return count(types, rel, text)
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d files, %d lines, %d types with methods\n\n", len(files), total, len(types))
	printLargest("TYPE", types)
	byName := map[string]*size{}
	for _, f := range files {
		byName[f.name] = f
	}
	printLargest("FILE", byName)
	return nil
}

// count adds the methods of one file to the types that they are of.
func count(types map[string]*size, path string, text []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		key := filepath.Dir(path) + "." + receiver(f.Recv.List[0].Type)
		if types[key] == nil {
			types[key] = &size{name: key}
		}
		types[key].methods++
		types[key].lines += set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
	}
	return nil
}

// receiver is the name of a method's type, without its pointer and parameters.
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
	}
	return "?"
}

// printLargest prints the largest.
func printLargest(what string, sizes map[string]*size) {
	all := make([]*size, 0, len(sizes))
	for _, s := range sizes {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *size) int {
		return cmp.Or(cmp.Compare(b.methods, a.methods), cmp.Compare(b.lines, a.lines), cmp.Compare(a.name, b.name))
	})
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s\tMETHODS\tLINES\n", what)
	for _, s := range all[:min(shown, len(all))] {
		methods := ""
		if s.methods > 0 {
			methods = fmt.Sprint(s.methods)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\n", s.name, methods, s.lines)
	}
	w.Flush()
	fmt.Println()
}
