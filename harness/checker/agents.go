package checker

import (
	"fmt"
	"strings"
	"time"
)

func alive(s Snapshot) (wrong []string) {
	for _, n := range s.Nodes {
		if !n.Agent.Running && !n.Agent.Told {
			wrong = append(wrong, fmt.Sprintf("the agent on %s has ended though nobody told it to: %s", n.Name,
				n.Agent.End))
		}
	}
	return wrong
}

func progress(s Snapshot) (wrong []string) {
	if s.Join == nil {
		return nil
	}
	peer := fmt.Sprintf("%s of %s", keyOf(s.Join.Peer), s.Join.Peer.PublicIP)
	for _, r := range s.Join.Reactions {
		if len(r.Missing) > 0 {
			wrong = append(
				wrong,
				fmt.Sprintf("%s after %s was put into etcd %s lacks: %s", s.Join.Within, peer, r.Node,
					strings.Join(r.Missing, "; ")),
			)
		}
		if len(r.Stayed) > 0 {
			wrong = append(
				wrong,
				fmt.Sprintf("%s after %s was deleted from etcd %s still has: %s", s.Join.Within, peer,
					r.Node, strings.Join(r.Stayed, "; ")),
			)
		}
	}
	return wrong
}

func noPanic(s Snapshot) []string {
	return said(s, "panicked", func(a Agent) []string { return a.Panics })
}

func noRace(s Snapshot) []string {
	return said(s, "has a data race", func(a Agent) []string { return a.Races })
}

func said(s Snapshot, what string, of func(Agent) []string) (wrong []string) {
	for _, n := range s.Nodes {
		for _, line := range of(n.Agent) {
			wrong = append(wrong, fmt.Sprintf("the agent on %s %s: %s", n.Name, what, line))
		}
	}
	return wrong
}

// Rate of log that is allowed: a burst, for starts and what they say of an unusual world, and so many lines
// a second over the life of the world.
const (
	logBurst     = 150
	logPerSecond = 5
)

func logBounded(s Snapshot) (wrong []string) {
	for _, n := range s.Nodes {
		if limit := logBurst + int(logPerSecond*n.Agent.Age.Seconds()); n.Agent.Lines > limit {
			wrong = append(wrong, fmt.Sprintf("the agent on %s wrote %d lines of log in %s, which is more than %d",
				n.Name, n.Agent.Lines, n.Agent.Age.Round(time.Second), limit))
		}
	}
	return wrong
}

// Panic reports whether a line of a Go program's output is the first of a crash.
func Panic(line string) bool {
	return strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") ||
		strings.HasPrefix(line, "SIGSEGV:") || strings.Contains(line, "[recovered]")
}

// Race reports whether a line is the first of a report of Go's race detector.
func Race(line string) bool { return strings.HasPrefix(line, "WARNING: DATA RACE") }

func nothingLeft(s Snapshot) (wrong []string) {
	for _, l := range s.Left {
		wrong = append(wrong, "the closed world has left "+l)
	}
	return wrong
}
