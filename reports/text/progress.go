package text

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"github.com/nemesh/nemesh/reports/record"
)

// Progress is how far a run is.
type Progress struct {
	// Total is how many scenarios the run has; 0 if that is not known.
	Total int
	// Done is how many scenarios have ended. Failed and Unproven are those among them.
	Done, Failed, Unproven int
	// Running are the names of the scenarios that run; the one that began first is the first.
	Running []string
	// Left is how long the rest of the run takes; 0 if that is not known.
	Left time.Duration
	// Kept are the ids of the worlds that are kept now (nemesh run --keep).
	Kept []string
}

// ProgressOf reads from the events so far how far a run is. Left is estimated from earlier runs (see
// Earlier), for procs scenarios side by side, at the time now of the record's clock.
func ProgressOf(o *record.Outcome, earlier Earlier, procs int, now int64) Progress {
	p := Progress{Total: o.Planned, Failed: o.Count(record.Failed), Unproven: o.Count(record.Unproven)}
	running := running(o)
	p.Done = len(o.Scenarios) - len(running)
	for _, s := range running {
		p.Running = append(p.Running, s.Name)
	}
	p.Left = earlier.left(o, procs, now)
	return p
}

// running lists the scenarios that have begun and not ended, by the time at which they began.
func running(o *record.Outcome) []*record.Scenario {
	var all []*record.Scenario
	for _, s := range o.Scenarios {
		if s.Verdict == nil {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *record.Scenario) int { return int(a.Began - b.Began) })
	return all
}

// Earlier is how long each scenario took in earlier runs, by name; the newest run is the first.
type Earlier []map[string]time.Duration

// took returns how long a scenario took in the newest run that has it.
func (e Earlier) took(name string) (time.Duration, bool) {
	for _, run := range e {
		if d, ok := run[name]; ok {
			return d, true
		}
	}
	return 0, false
}

// ahead returns how long the scenarios took that are still to begin. Their names are not in the record
// before they begin: an earlier run that had as many scenarios beside those that have begun is taken for
// the same. If there is none, the result is of all scenarios of earlier runs that have not begun.
func (e Earlier) ahead(o *record.Outcome) []time.Duration {
	begun := map[string]bool{}
	for _, s := range o.Scenarios {
		begun[s.Name] = true
	}
	others := func(run map[string]time.Duration) (rest []time.Duration) {
		for name, d := range run {
			if !begun[name] {
				rest = append(rest, d)
			}
		}
		return rest
	}
	all := map[string]time.Duration{}
	for _, run := range slices.Backward(e) {
		for name, d := range run {
			all[name] = d
		}
	}
	for _, run := range e {
		if rest := others(run); len(rest) == o.Planned-len(o.Scenarios) {
			return rest
		}
	}
	return others(all)
}

// left estimates how long the rest of a run takes: the work that is left, spread over procs, but no less
// than the longest scenario that is left. A scenario that no earlier run had takes the mean of those that
// are known, in earlier runs or else in this one. The result is 0 if too little is known.
func (e Earlier) left(o *record.Outcome, procs int, now int64) time.Duration {
	if o.Planned == 0 {
		return 0
	}
	ahead, unfinished := e.ahead(o), running(o)
	rest := max(0, o.Planned-len(o.Scenarios))
	mean, known := meanOf(ahead, o)
	if rest > 0 && !known {
		return 0
	}
	work := time.Duration(rest) * mean
	var longest time.Duration
	if len(ahead) == rest && rest > 0 {
		longest = slices.Max(ahead)
	}
	for _, s := range unfinished {
		takes, ok := e.took(s.Name)
		if !ok && !known {
			return 0
		}
		if !ok {
			takes = mean
		}
		takes = max(0, takes-time.Duration(now-s.Began))
		work += takes
		longest = max(longest, takes)
	}
	return max(longest, work/time.Duration(max(1, min(procs, rest+len(unfinished)))))
}

// meanOf returns the mean of durations or, if there are none, of the scenarios that have ended.
func meanOf(all []time.Duration, o *record.Outcome) (mean time.Duration, known bool) {
	if len(all) == 0 {
		for _, s := range o.Scenarios {
			if s.Verdict != nil {
				all = append(all, s.Verdict.Took())
			}
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	for _, d := range all {
		mean += d
	}
	return mean / time.Duration(len(all)), true
}

// minName is the room that the name of a running scenario is given at least, in columns.
const minName = 24

// Progress renders how far a run is as one line that is at most columns wide; 0 for no limit. It is ""
// before anything is known.
func (s Style) Progress(p Progress, columns int) string {
	if p.Total == 0 && p.Done == 0 && len(p.Running) == 0 {
		return ""
	}
	if columns <= 0 {
		columns = 1 << 20
	}
	var line strings.Builder
	room := columns
	// add appends a part with a separator, if both fit.
	add := func(part, color string) {
		if line.Len() > 0 {
			if room < 3+wide(part) {
				return
			}
			line.WriteString(" · ")
			room -= 3
		}
		part = shortened(part, room)
		room -= wide(part)
		if s.Color && color != "" {
			part = color + part + "\x1b[0m"
		}
		line.WriteString(part)
	}
	if p.Total > 0 {
		add(fmt.Sprintf("%d/%d done", p.Done, p.Total), "")
	} else {
		add(fmt.Sprintf("%d done", p.Done), "")
	}
	if p.Failed > 0 {
		add(fmt.Sprintf("%d failed", p.Failed), marks[record.Failed].color)
	}
	if p.Unproven > 0 {
		add(fmt.Sprintf("%d not proven", p.Unproven), marks[record.Unproven].color)
	}
	switch {
	case len(p.Kept) == 1:
		add("world "+p.Kept[0]+" is kept until Ctrl-C", "")
		return line.String()
	case len(p.Kept) > 1:
		add(fmt.Sprintf("%d worlds are kept until Ctrl-C", len(p.Kept)), "")
		return line.String()
	}
	if p.Left > 0 {
		add(about(p.Left)+" left", "")
	}
	if len(p.Running) > 0 {
		add(names(p.Running, room-3), "")
	}
	return line.String()
}

// about renders an estimate as coarsely as it is meant.
func about(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return "a few seconds"
	case d < 90*time.Second:
		return fmt.Sprintf("about %d s", d.Round(10*time.Second)/time.Second)
	default:
		return fmt.Sprintf("about %d min", d.Round(time.Minute)/time.Minute)
	}
}

// names renders the names of running scenarios within some columns: as many as have minName, and how many
// more there are. If there is no room for one, it is the number alone.
func names(all []string, columns int) string {
	const running = "running "
	n := len(all)
	for ; n > 0; n-- {
		need := len(running) + len(more(len(all)-n)) + 2*(n-1)
		for _, name := range all[:n] {
			need += min(minName, wide(name))
		}
		if need <= columns {
			break
		}
	}
	if n == 0 {
		return fmt.Sprintf("%d running", len(all))
	}
	room := columns - len(running) - len(more(len(all)-n)) - 2*(n-1)
	// The shortest names are placed first, so that what they leave goes to longer ones.
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return wide(all[a]) - wide(all[b]) })
	short := make([]string, n)
	for i, at := range order {
		short[at] = shortened(all[at], room/(n-i))
		room -= wide(short[at])
	}
	return running + strings.Join(short, ", ") + more(len(all)-n)
}

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" +%d", n)
}

// shortened renders a text in at most some columns of a terminal. What is too long loses its middle, since
// the names of scenarios often differ at the end only. Control characters become spaces.
func shortened(text string, columns int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, record.Plain(text))
	if wide(text) <= columns {
		return text
	}
	if columns < 1 {
		return ""
	}
	runes := []rune(text)
	head, used := 0, 0
	for used+runeColumns(runes[head]) <= columns/2 {
		used += runeColumns(runes[head])
		head++
	}
	tail := len(runes)
	for used+runeColumns(runes[tail-1]) <= columns-1 {
		used += runeColumns(runes[tail-1])
		tail--
	}
	return string(runes[:head]) + "…" + string(runes[tail:])
}

// wide returns how many columns of a terminal a text takes.
func wide(text string) (n int) {
	for _, r := range text {
		n += runeColumns(r)
	}
	return n
}

// runeColumns returns how many columns a character takes: none if it is combined with the one before it, two
// if it is wide (Unicode Standard Annex #11), and otherwise one.
func runeColumns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}
