package record

import (
	"fmt"
	"slices"
	"strings"
)

// ReachTable renders expected and actual reachability side by side: a row for each source, a column for each
// target, "." for an answer, "x" for none, blank where nothing was asked. Wrong pairs stand in brackets.
func ReachTable(reach []Reach) string {
	var froms, tos []string
	pairs := map[[2]string]Reach{}
	for _, r := range reach {
		if !slices.Contains(froms, r.From) {
			froms = append(froms, r.From)
		}
		if !slices.Contains(tos, r.To) {
			tos = append(tos, r.To)
		}
		pairs[[2]string{r.From, r.To}] = r
	}
	slices.Sort(froms)
	slices.Sort(tos)
	label := 0
	for _, f := range froms {
		label = max(label, len(f))
	}
	var b strings.Builder
	width := 4 * len(tos)
	fmt.Fprintf(&b, "%*s  %-*s  %s\n", label, "", width, "expected", "actual")
	numbers := ""
	for i := range tos {
		numbers += fmt.Sprintf("%3d ", i+1)
	}
	fmt.Fprintf(&b, "%*s  %s  %s\n", label, "", numbers, numbers)
	wrong := []string{}
	for _, f := range froms {
		want, got := "", ""
		for _, t := range tos {
			r, asked := pairs[[2]string{f, t}]
			switch {
			case !asked:
				want, got = want+"    ", got+"    "
			case r.Want != r.Got:
				want, got = want+"  "+sign(r.Want)+" ", got+" ["+sign(r.Got)+"]"
				wrong = append(wrong, fmt.Sprintf("%s → %s: %d of %d echoes lost", f, t, r.Lost, r.Sent))
			default:
				want, got = want+"  "+sign(r.Want)+" ", got+"  "+sign(r.Got)+" "
			}
		}
		fmt.Fprintf(&b, "%*s  %s  %s\n", label, f, want, strings.TrimRight(got, " "))
	}
	for i, t := range tos {
		fmt.Fprintf(&b, "%*s  %d = %s\n", label, "", i+1, t)
	}
	for _, w := range wrong {
		fmt.Fprintf(&b, "wrong: %s\n", w)
	}
	return b.String()
}

func sign(answered bool) string {
	if answered {
		return "."
	}
	return "x"
}
