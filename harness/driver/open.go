package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The environment variables that choose the overlay under test for a suite that is started without flags.
const (
	// AgentEnv is what Choice.Agent says.
	AgentEnv = "NEMESH_AGENT"
	// CNIConfEnv is the path of a CNI configuration list, CNIDirsEnv the folders of plugins, as in PATH.
	CNIConfEnv = "NEMESH_CNI_CONF"
	CNIDirsEnv = "NEMESH_CNI_BIN_DIR"
)

// Choice is what a user says of the overlay to test.
type Choice struct {
	// Agent is the name of a driver that has been registered, a driver file (*.yaml, *.yml) or a binary: one
	// whose name begins with "overlayd" is driven as this repository's, any other as flannel's. Empty, or
	// "ours", is this repository's own.
	Agent string
	// CNIConf is a CNI configuration list to use instead of the driver's, CNIDirs where its plugins are.
	CNIConf string
	CNIDirs []string
}

// FromEnv reads a choice from the environment.
func FromEnv() Choice {
	return Choice{
		Agent:   os.Getenv(AgentEnv),
		CNIConf: os.Getenv(CNIConfEnv),
		CNIDirs: filepath.SplitList(os.Getenv(CNIDirsEnv)),
	}
}

// Env renders a choice as environment variables, for a child that reads it with FromEnv.
func (c Choice) Env() []string {
	return []string{
		AgentEnv + "=" + c.Agent, CNIConfEnv + "=" + c.CNIConf,
		CNIDirsEnv + "=" + strings.Join(c.CNIDirs, string(filepath.ListSeparator)),
	}
}

// Absolute makes the paths of a choice independent of the working directory, and checks that the sandbox,
// which has a /run of its own, will see them.
func (c Choice) Absolute() (Choice, error) {
	var errs []error
	abs := func(path string) string {
		full, err := filepath.Abs(path)
		if err == nil && strings.HasPrefix(full, "/run/") {
			err = fmt.Errorf("%s is under /run, of which the sandbox has one of its own: move it elsewhere", full)
		}
		errs = append(errs, err)
		return full
	}
	if _, own := registered(c.Agent); !own && c.Agent != "" && c.Agent != oursWord {
		c.Agent = abs(c.Agent)
	}
	if c.CNIConf != "" {
		c.CNIConf = abs(c.CNIConf)
	}
	dirs := make([]string, 0, len(c.CNIDirs))
	for _, d := range c.CNIDirs {
		dirs = append(dirs, abs(d))
	}
	c.CNIDirs = dirs
	return c, errors.Join(errs...)
}

const oursWord = "ours"

// Open returns the driver of a choice. Bin is the folder with this repository's binaries, whose CNI plugins
// serve an agent that comes without. That a binary is missing is for Check to say.
func Open(c Choice, bin string) (Driver, error) {
	if d, found, err := openRegistered(c); found {
		return d, err
	}
	ours := Ours{Bin: bin, CNIDirs: c.CNIDirs}
	if c.CNIConf != "" {
		raw, err := readConfList(c.CNIConf)
		if err != nil {
			return nil, err
		}
		ours.CNIConf = raw
	}
	base := filepath.Base(c.Agent)
	switch {
	case c.Agent == "" || c.Agent == oursWord:
		return ours, nil
	case strings.HasSuffix(base, ".yaml") || strings.HasSuffix(base, ".yml"):
		return ReadFile(c.Agent, ours)
	case strings.HasPrefix(base, "overlayd"):
		ours.Agent = c.Agent
		return ours, nil
	default:
		f := Flannel{Ours: ours, Path: c.Agent}
		// A binary that does not say its version is for Check, or for its start, to complain of.
		if version, err := f.Version(context.Background()); err == nil {
			f.V2, f.NoIPv6 = older(version, firstV3), older(version, firstIPv6)
			f.OnDemand = older(version, firstPermanent)
		}
		return f, nil
	}
}
