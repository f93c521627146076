package enter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/nemesh/nemesh/harness/sandbox"
)

// describeWithin bounds the wait for a server to describe its world.
const describeWithin = 5 * time.Second

// ErrNone means that no world is running.
var ErrNone = errors.New("no world is running that this user may enter (root may enter everybody's): " +
	"`nemesh run` builds worlds, and `nemesh run --keep` keeps that of a scenario that fails")

// Find lists the worlds that run on this machine and that this user may enter, sorted by id.
func Find() ([]World, error) {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("look for worlds: %w", err)
	}
	slices.SortFunc(pids, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	seen := map[string]bool{} // mount namespaces: the processes of a sandbox share one
	var all []World
	for _, p := range pids {
		ns, err := os.Readlink(p + "/ns/mnt")
		if err != nil || seen[ns] {
			continue // the process has ended, or is another user's
		}
		seen[ns] = true
		sockets, err := filepath.Glob(p + "/root" + sandbox.Dir + "/world-*/" + Socket)
		if err != nil {
			return nil, fmt.Errorf("look for worlds: %w", err)
		}
		for _, path := range sockets {
			w, err := describe(path)
			if err == nil && !slices.ContainsFunc(all, func(o World) bool { return o.ID == w.ID }) {
				all = append(all, w)
			}
		}
	}
	slices.SortFunc(all, func(a, b World) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func number(proc string) int {
	n, _ := strconv.Atoi(filepath.Base(proc))
	return n
}

// describe asks the server at a socket for its world. A world that is being torn down gives an error.
func describe(path string) (World, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return World{}, fmt.Errorf("connect to a world: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(describeWithin)); err != nil {
		return World{}, fmt.Errorf("connect to a world: %w", err)
	}
	var r response
	if err := json.NewEncoder(conn).Encode(request{}); err != nil {
		return World{}, fmt.Errorf("ask for a world's description: %w", err)
	}
	if err := json.NewDecoder(conn).Decode(&r); err != nil {
		return World{}, fmt.Errorf("ask for a world's description: %w", err)
	}
	if r.World == nil {
		return World{}, fmt.Errorf("ask for a world's description: %s", r.Error)
	}
	r.World.socket = path
	return *r.World, nil
}

// Choose returns the world that has a node. If several worlds are running, an id must say which; the error
// lists them.
func Choose(all []World, id, node string) (World, error) {
	if len(all) == 0 {
		return World{}, ErrNone
	}
	if id != "" {
		i := slices.IndexFunc(all, func(w World) bool { return w.ID == id })
		if i < 0 {
			return World{}, fmt.Errorf("there is no world %q; running are:\n%s", id, List(all))
		}
		all = all[i : i+1]
	}
	if len(all) > 1 {
		return World{}, fmt.Errorf("%d worlds are running; say which with --world ID:\n%s", len(all), List(all))
	}
	if !slices.Contains(all[0].Nodes, node) {
		return World{}, fmt.Errorf("there is no machine %q in this world:\n%s", node, List(all))
	}
	return all[0], nil
}
