package suite

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// reported returns what the file of a scenario says was reported: the comment in front of the innermost call
// around a line, such as It or DescribeTable, that has one, else the comment that follows the package
// clause. It is "" when the file is not there to be read, as when the suite was built elsewhere.
func reported(file string, line int) string {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
	if err != nil {
		return ""
	}
	endingAt, top := map[int]string{}, ""
	for _, c := range parsed.Comments {
		text := strings.TrimSpace(c.Text())
		endingAt[set.Position(c.End()).Line] = text
		if top == "" && c.Pos() > parsed.Name.End() &&
			(len(parsed.Imports) == 0 || c.End() < parsed.Imports[0].Pos()) {
			top = text
		}
	}
	text := top
	ast.Inspect(parsed, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		first, last := set.Position(n.Pos()).Line, set.Position(n.End()).Line
		if line < first || line > last {
			return false
		}
		if _, isCall := n.(*ast.CallExpr); isCall && endingAt[first-1] != "" {
			text = endingAt[first-1]
		}
		return true
	})
	return text
}
