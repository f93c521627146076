package suite

import (
	"go/parser"
	"go/token"
	"strings"
)

// reported returns what the file of a scenario says was reported: the comment that follows its package
// clause. It is "" when the file is not there to be read, as when the suite was built elsewhere.
func reported(file string) string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return ""
	}
	for _, c := range parsed.Comments {
		if c.Pos() > parsed.Name.End() && (len(parsed.Imports) == 0 || c.End() < parsed.Imports[0].Pos()) {
			return strings.TrimSpace(c.Text())
		}
	}
	return ""
}
