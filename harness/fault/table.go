package fault

import (
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Entry is one kind of fault: a row of the table of faults.
type Entry struct {
	// ID is its stable name in kebab case, such as "uplink-down". About says in one line what it does.
	ID, About string
	// Component is what it breaks, Promise what the overlay says should be felt.
	Component Component
	Promise   string
	// Params lists what can be given besides the node, with the values that hold otherwise.
	Params map[string]string
	// Lasting says that the world is not as before when it is healed: a subnet has moved, for one.
	Lasting bool
	// Make makes the fault. Its identity has the row's ID.
	Make func(p Place) (Fault, error)

	from string // where the row was registered
}

// New makes the fault in a world, on a node where it is of one. Params that the entry does not have are an
// error.
func (e Entry) New(w World, node string, params map[string]string) (Fault, error) {
	if _, err := w.Machine(node); err != nil {
		return nil, fmt.Errorf("%s: %w", e.ID, err)
	}
	all := maps.Clone(e.Params)
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range params {
		if _, known := e.Params[name]; !known {
			return nil, fmt.Errorf("%s has no parameter %q: it has %s", e.ID, name,
				strings.Join(append(slices.Sorted(maps.Keys(e.Params)), "no other"), ", "))
		}
		all[name] = value
	}
	f, err := e.Make(Place{w, node, all})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.ID, err)
	}
	return f, nil
}

// Place is where a fault is made and with what.
type Place struct {
	World  World
	Node   string
	Params map[string]string
}

// Share reads a parameter that is a percentage, over 0 and up to 100, as a share of 1.
func (p Place) Share(param string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(p.Params[param], "%"), 64)
	if err == nil && (n <= 0 || n > 100) {
		err = fmt.Errorf("%g is not over 0 and up to 100", n)
	}
	if err != nil {
		return 0, fmt.Errorf("%s is a percentage: %w", param, err)
	}
	return n / 100, nil
}

// Duration reads a parameter that is a time, such as 50ms.
func (p Place) Duration(param string) (time.Duration, error) {
	d, err := time.ParseDuration(p.Params[param])
	if err != nil {
		return 0, fmt.Errorf("%s is a time, such as 50ms: %w", param, err)
	}
	return d, nil
}

// Number reads a parameter that is a whole number.
func (p Place) Number(param string) (int, error) {
	n, err := strconv.Atoi(p.Params[param])
	if err != nil {
		return 0, fmt.Errorf("%s is a number: %w", param, err)
	}
	return n, nil
}

// other is a node that is not the one of the fault.
func (p Place) other() string {
	for _, n := range p.World.Nodes() {
		if n != p.Node {
			return n
		}
	}
	return p.Node
}

// Catalogue lists every kind of fault: those of this package, by what they break, then those that other
// modules have registered.
func Catalogue() []Entry { return faults.all() }

// Find returns the row with an id.
func Find(id string) (Entry, bool) { return faults.find(id) }

// Register adds a fault of another module to the table; call it from an init function or a variable. A row
// that lacks something, or whose id is taken, is a mistake in that module: Register panics and says which.
func Register(e Entry) {
	e.from = "unknown"
	if _, file, line, ok := runtime.Caller(1); ok {
		e.from = fmt.Sprintf("%s:%d", file, line)
	}
	if err := faults.add(e); err != nil {
		panic("fault.Register: " + err.Error())
	}
}

// faults is the table that list, record and reports show.
var faults = ours()

// ours is the table with the faults of this package alone. A new kind is a struct and a row in one of these.
func ours() *table {
	t := &table{}
	for _, e := range slices.Concat(ofEtcd(), ofAgents(), ofNodes(), ofKernels(), ofDisks(), ofCNI()) {
		e.from = "package fault"
		if err := t.add(e); err != nil {
			panic(err)
		}
	}
	return t
}

// table is a table of faults. The zero value is empty.
type table struct {
	mu   sync.RWMutex
	rows []Entry
}

// kebab is what an id looks like: it is a label, a key of the record and an argument on a command line.
var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func (t *table) add(e Entry) error {
	lacks := func(what string) error {
		return fmt.Errorf("the row %q of %s has no %s: a row has an id, a sentence about it, a component, a "+
			"promise and a constructor", e.ID, e.from, what)
	}
	switch {
	case !kebab.MatchString(e.ID) || e.ID == Custom:
		return fmt.Errorf("the id %q of %s is not in kebab case, such as toy-route-delete, or is reserved: give "+
			"it another", e.ID, e.from)
	case e.About == "":
		return lacks("sentence about it")
	case e.Component == "":
		return lacks("component")
	case e.Promise == "":
		return lacks("promise")
	case e.Make == nil:
		return lacks("constructor")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.rows {
		if other.ID == e.ID {
			return fmt.Errorf("the id %q of %s (%q) is taken by %s (%q): choose another, such as one that begins "+
				"with the module's name", e.ID, e.from, e.About, other.from, other.About)
		}
	}
	t.rows = append(t.rows, e)
	return nil
}

func (t *table) all() []Entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.rows)
}

func (t *table) find(id string) (Entry, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i := slices.IndexFunc(t.rows, func(e Entry) bool { return e.ID == id })
	if i < 0 {
		return Entry{}, false
	}
	return t.rows[i], true
}
