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

// answerWithin bounds the wait for a door to say which world it is of.
const answerWithin = 5 * time.Second

// Found is a world and how to its door.
type Found struct {
	World
	path string
}

// ErrNone says that there is no world.
var ErrNone = errors.New("no world is running that this user may enter (root may enter everybody's): " +
	"`nemesh run` builds worlds, and `nemesh run --keep` keeps that of a scenario that fails")

// Find lists the worlds that are running on this machine and that this user may enter, by id.
func Find() ([]Found, error) {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("look for worlds: %w", err)
	}
	slices.SortFunc(pids, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	seen := map[string]bool{} // mount namespaces: a sandbox has many processes in its own
	var all []Found
	for _, p := range pids {
		ns, err := os.Readlink(p + "/ns/mnt")
		if err != nil || seen[ns] {
			continue // it has ended, or is another user's
		}
		seen[ns] = true
		doors, err := filepath.Glob(p + "/root" + sandbox.Dir + "/world-*/" + File)
		if err != nil {
			return nil, fmt.Errorf("look for worlds: %w", err)
		}
		for _, path := range doors {
			if w, err := ask(path); err == nil && !slices.ContainsFunc(all, w.same) {
				all = append(all, Found{w, path})
			}
		}
	}
	slices.SortFunc(all, func(a, b Found) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func (w World) same(f Found) bool { return f.ID == w.ID }

func number(proc string) int {
	n, _ := strconv.Atoi(filepath.Base(proc))
	return n
}

// ask asks a door which world it is of. A world that is being torn down gives an error.
func ask(path string) (World, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return World{}, fmt.Errorf("knock at a world's door: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return World{}, fmt.Errorf("knock at a world's door: %w", err)
	}
	var a answer
	if err := json.NewEncoder(conn).Encode(question{}); err != nil {
		return World{}, fmt.Errorf("ask which world it is: %w", err)
	}
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return World{}, fmt.Errorf("ask which world it is: %w", err)
	}
	if a.World == nil {
		return World{}, fmt.Errorf("ask which world it is: %s", a.Error)
	}
	return *a.World, nil
}

// Choose finds the world with a node. An id is needed where several worlds are running; an error says
// which.
func Choose(all []Found, id, node string) (Found, error) {
	if len(all) == 0 {
		return Found{}, ErrNone
	}
	if id != "" {
		i := slices.IndexFunc(all, func(f Found) bool { return f.ID == id })
		if i < 0 {
			return Found{}, fmt.Errorf("there is no world %q; running are:\n%s", id, List(all))
		}
		all = all[i : i+1]
	}
	if len(all) > 1 {
		return Found{}, fmt.Errorf("%d worlds are running; say which with --world ID:\n%s", len(all), List(all))
	}
	if !slices.Contains(all[0].Nodes, node) {
		return Found{}, fmt.Errorf("there is no machine %q in this world:\n%s", node, List(all))
	}
	return all[0], nil
}
