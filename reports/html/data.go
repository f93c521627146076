package html

import (
	"maps"
	"slices"

	"github.com/nemesh/nemesh/reports/record"
	"github.com/nemesh/nemesh/reports/text"
)

// What follows is the data that the page's scripts read, as JSON in a script element for each scenario and
// each cluster. Times are milliseconds since the cluster's first event; round trip times are microseconds.

// scenarioData is one scenario.
type scenarioData struct {
	Name           string     `json:"name"`
	State          string     `json:"state"`
	Sentence       string     `json:"sentence,omitempty"`
	Reported       string     `json:"reported,omitempty"`
	Message        string     `json:"message,omitempty"`
	Location       string     `json:"location,omitempty"`
	Rerun          string     `json:"rerun"`
	Labels         []string   `json:"labels,omitempty"`
	Broke          []string   `json:"broke,omitempty"`
	Active         []string   `json:"active,omitempty"`
	Contradictions []string   `json:"contradictions,omitempty"`
	Figures        [][]string `json:"figures,omitempty"` // label and value
	// Clusters are indices of clusters; Began and Ended are the scenario's times in each.
	Clusters   []int              `json:"clusters,omitempty"`
	Began      []float64          `json:"began,omitempty"`
	Ended      []float64          `json:"ended,omitempty"`
	Reach      []record.Reach     `json:"reach,omitempty"`
	Invariants []record.Invariant `json:"invariants,omitempty"`
	Traces     []record.Trace     `json:"traces,omitempty"`
}

// clusterData is one cluster.
type clusterData struct {
	Agent   string      `json:"agent,omitempty"`
	Network string      `json:"network,omitempty"`
	Device  string      `json:"device,omitempty"`
	Length  float64     `json:"length"`
	Nodes   []nodeData  `json:"nodes"` // members of the control plane among them
	Pods    []podData   `json:"pods"`
	Steps   []stepData  `json:"steps"`
	Faults  []faultData `json:"faults"`
	Marks   []markData  `json:"marks"`
	Logs    []logData   `json:"logs"`
	Dropped int         `json:"dropped,omitempty"`
	Pairs   []pairData  `json:"pairs"`
	ICMP    []icmpData  `json:"icmp,omitempty"`
	// Moments are the times of the snapshots and State what they hold: a line with the moments that have it.
	Moments []momentData `json:"moments"`
	State   []stateData  `json:"state"`
	Open    bool         `json:"open,omitempty"` // it was not torn down
}

type nodeData struct {
	Name string `json:"name"`
	Addr string `json:"addr"`
	// Role is "node", or the name of the control plane of which it is a member.
	Role string `json:"role"`
}

type podData struct {
	Name string  `json:"name"`
	Node string  `json:"node"`
	Addr string  `json:"addr"`
	From float64 `json:"from"`
	To   float64 `json:"to,omitempty"`
}

type stepData struct {
	T    float64 `json:"t"`
	Text string  `json:"text"`
	Of   string  `json:"of,omitempty"` // the scenario
}

type faultData struct {
	Name string `json:"name"`
	// ID, Component, Nodes and Params are as in the record; Promised is what should be felt.
	ID        string            `json:"id,omitempty"`
	Component string            `json:"component"`
	Promised  string            `json:"promised"`
	Nodes     []string          `json:"nodes,omitempty"`
	Params    map[string]string `json:"params,omitempty"`
	// Lane is the same for all injections of one fault.
	Lane   int     `json:"lane"`
	From   float64 `json:"from"`
	Proved float64 `json:"proved,omitempty"`
	To     float64 `json:"to,omitempty"`
	Error  string  `json:"error,omitempty"`
	Once   bool    `json:"once,omitempty"` // over at once, never healed
}

// markData is an event of a process or of a key in etcd.
type markData struct {
	T    float64 `json:"t"`
	Kind string  `json:"kind"`         // start, exit, lease, unseen
	On   string  `json:"on,omitempty"` // the machine of a process
	Text string  `json:"text"`
}

type logData struct {
	T  float64 `json:"t"`
	M  string  `json:"m"`
	P  string  `json:"p"`
	Tx string  `json:"x"`
}

type pairData struct {
	From    string       `json:"from"`
	To      string       `json:"to"`
	Sent    uint64       `json:"sent"`
	Lost    uint64       `json:"lost"`
	Outages [][3]float64 `json:"outages,omitempty"` // start, length, lost
	// B are the buckets in columns: start, length, sent, lost, mean and greatest round trip time.
	B [6][]float64 `json:"b"`
}

type icmpData struct {
	T    float64 `json:"t"`
	Text string  `json:"text"`
}

type momentData struct {
	T    float64 `json:"t"`
	When string  `json:"when"`
}

type stateData struct {
	Where string     `json:"where"`
	What  string     `json:"what"`
	Lines []lineData `json:"lines"`
}

type lineData struct {
	Text string `json:"x"`
	Has  uint64 `json:"h"` // bit i: there at moment i
}

// ms converts a time to milliseconds after from, with a resolution of a tenth of one; 0 stays 0.
func ms(at, from int64) float64 {
	if at == 0 {
		return 0
	}
	return float64((at-from)/1e5) / 10
}

const (
	// logBudget bounds the bytes of output in a page: the record has all of it.
	logBudget = 4 << 20
	// bucketBudget bounds the buckets in a page.
	bucketBudget = 150_000
	// maxMoments bounds the snapshots of a cluster that are compared.
	maxMoments = 8
)

// builder turns an outcome into data.
type builder struct {
	o       *record.Outcome
	index   map[*record.Cluster]int
	perLog  int // budget of each cluster
	merging int64
}

func newBuilder(o *record.Outcome) *builder {
	b := &builder{o: o, index: map[*record.Cluster]int{}}
	buckets := 0
	for i, c := range o.Clusters {
		b.index[c] = i
		for _, p := range c.Pairs {
			for _, l := range p.Lines {
				buckets += len(l.Buckets)
			}
		}
	}
	b.perLog = logBudget / max(1, len(o.Clusters))
	b.merging = int64(buckets/bucketBudget) + 1
	return b
}

func (b *builder) scenario(s *record.Scenario) scenarioData {
	d := scenarioData{
		Name: s.Name, State: stateOf(s), Sentence: s.Sentence(), Rerun: text.Rerun(s),
		Reach: s.Reach, Invariants: s.Invariants, Traces: s.Traces, Contradictions: s.Recheck(),
	}
	for _, f := range s.Figures {
		d.Figures = append(d.Figures, []string{f.Name, number(f.Value) + " " + f.Unit})
	}
	began, ended := s.Began, s.Ended
	if v := s.Verdict; v != nil {
		d.Reported, d.Message, d.Location, d.Labels = v.Reported, record.Plain(v.Message), v.Location, v.Labels
		d.Broke, d.Active = v.Broke, v.Active
		began = s.Ended - v.Duration
	}
	for _, c := range s.Clusters {
		d.Clusters = append(d.Clusters, b.index[c])
		d.Began = append(d.Began, max(0, ms(began, c.First)))
		end := ms(c.Last, c.First)
		if ended > 0 {
			end = min(end, ms(ended, c.First))
		}
		d.Ended = append(d.Ended, end)
	}
	return d
}

func (b *builder) cluster(c *record.Cluster) clusterData {
	d := clusterData{
		Length: ms(c.Last, c.First), Open: c.Closed == 0,
		Nodes: []nodeData{}, Pods: []podData{}, Steps: []stepData{}, Pairs: []pairData{},
		Marks: []markData{}, Logs: []logData{}, Moments: []momentData{}, State: []stateData{},
	}
	if w := c.World; w != nil {
		d.Agent, d.Network, d.Device = w.Agent, w.Network, w.Device
	}
	for _, m := range c.Machines() {
		d.Nodes = append(d.Nodes, nodeData(m))
	}
	for _, p := range c.Pods {
		if !p.Of.Gone {
			d.Pods = append(
				d.Pods,
				podData{Name: p.Of.Name, Node: p.Of.Node, Addr: p.Of.Addr, From: ms(p.At, c.First)},
			)
			continue
		}
		for i := range d.Pods {
			if d.Pods[i].Name == p.Of.Name && d.Pods[i].To == 0 {
				d.Pods[i].To = ms(p.At, c.First)
			}
		}
	}
	for _, s := range c.Steps {
		d.Steps = append(d.Steps, stepData{T: ms(s.At, c.First), Text: s.Of, Of: s.Scenario})
	}
	d.Faults = b.faults(c)
	d.Marks = marks(c)
	d.Logs, d.Dropped = b.logs(c)
	for _, p := range c.Pairs {
		d.Pairs = append(d.Pairs, b.pair(c, p))
	}
	if c.Probe != nil {
		for _, e := range c.Probe.Errors {
			d.ICMP = append(d.ICMP, icmpData{T: ms(e.First, c.First), Text: icmpText(e)})
		}
	}
	d.Moments, d.State = moments(c)
	return d
}

// faults lists the faults of a cluster as bars. One that was proved, was never healed and is not active in
// any verdict was over at once.
func (b *builder) faults(c *record.Cluster) []faultData {
	var active []record.Injection
	for _, s := range b.o.Scenarios {
		if s.Verdict != nil && slices.Contains(s.Clusters, c) {
			for _, i := range s.Verdict.Injected() {
				if i.Active {
					active = append(active, i)
				}
			}
		}
	}
	faults := []faultData{}
	for _, s := range c.Spans() {
		of := s.Of
		f := faultData{
			Name: of.Name, ID: of.ID, Nodes: of.Nodes, Params: of.Params, From: ms(s.Injected, c.First),
			Proved: ms(s.Proved, c.First), To: ms(s.Healed, c.First), Error: s.Error,
		}
		f.Component, f.Promised = text.Said(
			b.o.KindOf(record.Injection{ID: of.ID, Name: of.Name, Component: of.Component}))
		if s.Injected == 0 {
			f.From = f.Proved
		}
		isActive := slices.ContainsFunc(active, func(i record.Injection) bool { return s.Is(i, c.ID) })
		f.Once = s.Healed == 0 && s.Proved > 0 && !isActive && c.Closed > 0
		f.Lane = len(faults)
		if i := slices.IndexFunc(faults, f.same); i >= 0 {
			f.Lane = faults[i].Lane
		}
		faults = append(faults, f)
	}
	return faults
}

// same reports whether another is an injection of the same fault.
func (f faultData) same(o faultData) bool {
	return f.ID == o.ID && f.Name == o.Name && slices.Equal(f.Nodes, o.Nodes) && maps.Equal(f.Params, o.Params)
}
