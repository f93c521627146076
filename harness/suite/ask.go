package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/nemesh/nemesh/harness/driver"
	"github.com/nemesh/nemesh/harness/fault"
)

const (
	// AskEnv names the environment variable that has a suite's Main print its Answer, as JSON, in place of
	// running scenarios.
	AskEnv = "NEMESH_ASK"
	// DirEnv names the environment variable with the folder of a suite that runs from elsewhere. Main changes
	// to it, so that a scenario finds its files as it does under `go test`.
	DirEnv = "NEMESH_SUITE_DIR"
)

// Answer is what a suite has of its own, beside its scenarios.
type Answer struct {
	Agents     []AgentAnswer     `json:"agents,omitempty"`
	Invariants []InvariantAnswer `json:"invariants,omitempty"`
	Faults     []FaultAnswer     `json:"faults,omitempty"`
}

// AgentAnswer is a driver that the suite registers.
type AgentAnswer struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // "" where it cannot be asked
	// Refused is what Check says, "" if nothing keeps the agent from running.
	Refused string    `json:"refused,omitempty"`
	Lacks   []Feature `json:"lacks,omitempty"`
}

// InvariantAnswer is an invariant that the suite registers.
type InvariantAnswer struct {
	ID        string `json:"id"`
	Statement string `json:"statement"`
}

// FaultAnswer is a row of the suite's table of faults, those of nemesh among them.
type FaultAnswer struct {
	ID        string            `json:"id"`
	About     string            `json:"about"`
	Component string            `json:"component"`
	Promise   string            `json:"promise"`
	Params    map[string]string `json:"params,omitempty"`
	Lasting   bool              `json:"lasting,omitempty"`
}

// answer writes what the suite has of its own.
func answer(ctx context.Context, w io.Writer) error {
	var a Answer
	for _, name := range driver.Registered() {
		d, err := driver.Open(driver.Choice{Agent: name}, "")
		if err != nil {
			return err
		}
		one := AgentAnswer{Name: name, Lacks: driver.Lacking(d)}
		if err := d.Check(); err != nil {
			one.Refused = err.Error()
		} else if version, err := driver.VersionOf(ctx, d); err == nil {
			one.Version = version
		}
		a.Agents = append(a.Agents, one)
	}
	for _, v := range registered.list() {
		a.Invariants = append(a.Invariants, InvariantAnswer{v.ID, v.Statement})
	}
	for _, e := range fault.Catalogue() {
		a.Faults = append(
			a.Faults,
			FaultAnswer{e.ID, e.About, string(e.Component), e.Promise, e.Params, e.Lasting},
		)
	}
	if err := json.NewEncoder(w).Encode(a); err != nil {
		return fmt.Errorf("say what the suite has: %w", err)
	}
	return nil
}
