package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Answer is what the traces tell, most important first.
type Answer struct {
	Findings []Finding
	// Machines are those whose packets were traced; Sightings counts lines and frames with a packet.
	Machines  []string
	Sightings int
	// Notes say what was left out, and why.
	Notes []string
}

// Finding is one flow.
type Finding struct {
	// Flow names it: "172.16.0.7 → 172.16.3.12 (ICMP echo, id 492)".
	Flow string
	// Sentence says where it ends.
	Sentence string
	// Trouble is true where something was lost, refused or complained about.
	Trouble bool
	// Paths are the ways of the packets that the sentence is about, one line for each direction.
	Paths []string

	rank   rank
	lost   int
	number int
}

// rank orders outcomes, worst first.
type rank int

const (
	rankDropped rank = iota
	rankLost
	rankComplaint
	rankGone
	rankSilent
	rankOneWay
	rankFine
)

// analysis holds what is learnt from everything before anything is told.
type analysis struct {
	follow   *follower
	homes    map[netip.Addr]home
	passes   map[ruleKey]bool
	underlay map[int32]netip.Addr
}

// Answer tells what was read so far. The error wraps ErrNoPacket when there was no packet in it.
func (e *Explainer) Answer() (*Answer, error) {
	f := e.follow
	if f.sightings == 0 {
		return nil, ErrNoPacket
	}
	f.unify()
	a := &analysis{follow: f, passes: map[ruleKey]bool{}, underlay: map[int32]netip.Addr{}}
	a.findHomes()
	a.learnRules()
	a.findUnderlay()
	a.attach()
	answer := &Answer{Sightings: f.sightings}
	for _, fl := range f.order {
		answer.Findings = append(answer.Findings, a.finding(fl))
	}
	slices.SortStableFunc(answer.Findings, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(y.lost, x.lost), cmp.Compare(x.number, y.number))
	})
	for i := range f.hosts {
		if f.hosts[i].traced {
			answer.Machines = append(answer.Machines, f.hosts[i].name)
		}
	}
	slices.Sort(answer.Machines)
	if f.overflow > 0 {
		answer.Notes = append(answer.Notes, fmt.Sprintf(
			"more than %d flows: %d sightings of further ones were not followed", maxFlows, f.overflow))
	}
	if f.longLines > 0 {
		answer.Notes = append(answer.Notes, fmt.Sprintf(
			"%d lines longer than %d bytes were skipped", f.longLines, maxLine))
	}
	return answer, nil
}

// Text renders the answer for a terminal, with at most so many flows; 0 means all.
func (a *Answer) Text(most int) string {
	var b strings.Builder
	shown := a.Findings
	if most > 0 && len(shown) > most {
		shown = shown[:most]
	}
	for _, f := range shown {
		fmt.Fprintf(&b, "%s: %s\n", f.Flow, f.Sentence)
		for _, p := range f.Paths {
			fmt.Fprintf(&b, "    %s\n", p)
		}
	}
	if rest := a.Findings[len(shown):]; len(rest) > 0 {
		troubled := 0
		for _, f := range rest {
			if f.Trouble {
				troubled++
			}
		}
		fmt.Fprintf(&b, "… and %d flows more, %d of them in trouble\n", len(rest), troubled)
	}
	if len(a.Findings) == 0 {
		b.WriteString("Only packets of the links' own housekeeping, such as neighbour discovery: nothing to " +
			"follow.\n")
	}
	fmt.Fprintf(&b, "\nread: packets seen %d times, %s, on %s\n", a.Sightings, counted(len(a.Findings), "flow"),
		strings.Join(a.Machines, ", "))
	for _, n := range a.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// finding tells one flow.
func (a *analysis) finding(fl *flow) Finding {
	var f Finding
	if fl.echo {
		f = a.echoes(fl)
	} else {
		f = a.stream(fl)
	}
	f.number = fl.number
	for i := range fl.complaints {
		if i == 3 {
			break
		}
		f.Sentence += "; " + a.tell(fl, &fl.complaints[i])
		f.rank = min(f.rank, rankComplaint)
	}
	if _, exact := fl.estimate(); !exact {
		n, _ := fl.estimate()
		f.Sentence += fmt.Sprintf(" (a sample of %d was followed, of some %d)", len(fl.exchanges), n)
	}
	f.Sentence += "."
	f.Trouble = f.rank < rankOneWay
	return f
}
