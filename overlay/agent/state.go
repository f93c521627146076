package agent

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/nemesh/nemesh/overlay/lease"
	"github.com/nemesh/nemesh/overlay/plan"
)

// saved is the state that a node keeps over restarts and reboots. It is enough to start without etcd.
type saved struct {
	// Instance is the node's identity; PublicIP and PublicIPv6 the addresses it registered with.
	Instance             string
	PublicIP, PublicIPv6 netip.Addr
	// Subnet is the key of the node's subnet and LeaseID the etcd lease it hangs on.
	Subnet            string
	LeaseID           int64
	VtepMAC, VtepMAC6 lease.MAC
	// Networks are all that the node has had a subnet of, this one included.
	Networks []netip.Prefix `json:",omitempty"`
	// FormerRoutes and FormerDevices are what the node may still have of a former configuration.
	FormerRoutes  []plan.Gateway      `json:",omitempty"`
	FormerDevices []plan.FormerDevice `json:",omitempty"`
	// Config, Leases and Owners are the network as last seen, the last two by key.
	Config json.RawMessage        `json:",omitempty"`
	Leases map[string]lease.Attrs `json:",omitempty"`
	Owners map[string]lease.Owner `json:",omitempty"`
}

const stateFile = "state.json"

// load reads the saved state. A missing file is not an error. A file that cannot be read is renamed and
// kept, and the node starts as a new one.
func load(dir string) (saved, error) {
	path := filepath.Join(dir, stateFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return fresh(), nil
	}
	if err != nil {
		return saved{}, fmt.Errorf("read the saved state: %w", err)
	}
	var s saved
	if err := json.Unmarshal(raw, &s); err != nil || s.Instance == "" {
		aside := path + ".damaged"
		return fresh(), errors.Join(fmt.Errorf("saved state %s is damaged and set aside as %s", path, aside), err,
			os.Rename(path, aside))
	}
	return s, nil
}

func fresh() saved {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails (crypto/rand)
	return saved{Instance: hex.EncodeToString(raw)}
}

// moved reports whether the node has another public address than the one it was saved with.
func (s saved) moved(now Options) bool {
	if s.PublicIP.IsValid() {
		return s.PublicIP != now.PublicIP
	}
	return s.PublicIPv6 != now.PublicIPv6
}

// view returns the network as it was saved.
func (s saved) view() (lease.View, bool) {
	v := lease.View{Config: s.Config}
	for key, attrs := range s.Leases {
		n, err := lease.ParseKey(key)
		if err != nil {
			return lease.View{}, false
		}
		v.Leases = append(v.Leases, lease.Lease{Subnet: n, Attrs: attrs})
	}
	for key, owner := range s.Owners {
		n, err := lease.ParseKey(key)
		if err != nil {
			return lease.View{}, false
		}
		owner.Subnet = n
		v.Owners = append(v.Owners, owner)
	}
	v.Sort()
	return v, len(s.Config) > 0
}

// remember takes over the network as it is seen now.
func (s *saved) remember(v lease.View, config []byte) {
	s.Config, s.Leases, s.Owners = config, map[string]lease.Attrs{}, map[string]lease.Owner{}
	for _, l := range v.Leases {
		s.Leases[l.Subnet.Key()] = l.Attrs
	}
	for _, o := range v.Owners {
		s.Owners[o.Subnet.Key()] = o
	}
}

func (s saved) encode() ([]byte, error) {
	raw, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	return append(raw, '\n'), nil
}

func (s saved) save(dir string) error {
	raw, err := s.encode()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, stateFile), raw, 0o600)
}

// writeFile replaces a file so that a reader, or a node that lost power, sees the old content or the new one
// and nothing else.
func writeFile(path string, data []byte, mode os.FileMode) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if err = os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
