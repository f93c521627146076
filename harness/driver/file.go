package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nemesh/nemesh/harness/node"
)

// File is an overlay described by a user in a file; fixtures/drivers/flannel.yaml is one with every field
// explained.
type File struct {
	fields fileFields
	ours   Ours
	path   string
}

// fileFields are the fields of a driver file.
type fileFields struct {
	Name            string    `yaml:"name"`
	Program         string    `yaml:"program"`
	Arguments       []string  `yaml:"arguments"`
	Environment     []string  `yaml:"environment"`
	Ready           Readiness `yaml:"ready"`
	SubnetFile      string    `yaml:"subnet_file"`
	KeyPrefix       string    `yaml:"key_prefix"`
	Device          string    `yaml:"device"`
	CNIConf         string    `yaml:"cni_conf"`
	CNIBinDirs      []string  `yaml:"cni_bin_dirs"`
	Lacks           []Feature `yaml:"lacks"`
	Needs           []string  `yaml:"needs"`
	Restart         bool      `yaml:"restart"`
	VersionArgument string    `yaml:"version_argument"`
}

// ReadFile reads a driver file. The CNI configuration and the plugins of ours serve where the file names
// none. The error names every field that is wrong, in a line each.
func ReadFile(path string, ours Ours) (File, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("read the driver file: %w", err)
	}
	f := File{ours: ours, path: path}
	if f.fields, err = parseFields(raw); err != nil {
		return File{}, fmt.Errorf("the driver file %s: %w", path, err)
	}
	if err := errors.Join(f.fields.check(), f.resolve()); err != nil {
		return File{}, fmt.Errorf("the driver file %s:\n%w", path, err)
	}
	return f, nil
}

func parseFields(raw []byte) (fileFields, error) {
	f := fileFields{
		Ready: ReadySubnetFile, SubnetFile: "/run/flannel/subnet.env", KeyPrefix: DefaultPrefix,
		Device: "flannel.{vni}", VersionArgument: "--version",
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	err := dec.Decode(&f)
	var wrong *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return f, errors.New("it is empty: name and program are needed at least")
	case errors.As(err, &wrong):
		return f, fmt.Errorf("%w\nthe fields are: %s", sentence(wrong), strings.Join(fieldNames(), ", "))
	case err != nil:
		return f, fmt.Errorf("it is not YAML: %w", err)
	}
	return f, nil
}

// unknownField is what the YAML library says of a field that a struct lacks.
var unknownField = regexp.MustCompile(`^line (\d+): field (\S+) not found in type \S+$`)

// sentence puts the library's findings into words.
func sentence(err *yaml.TypeError) error {
	var errs []error
	for _, found := range err.Errors {
		line := found
		if m := unknownField.FindStringSubmatch(line); m != nil {
			line = fmt.Sprintf("line %s has %q, which is no field of a driver", m[1], m[2])
		}
		errs = append(errs, errors.New(line))
	}
	return errors.Join(errs...)
}

func fieldNames() []string {
	var names []string
	for f := range reflect.TypeFor[fileFields]().Fields() {
		names = append(names, f.Tag.Get("yaml"))
	}
	return names
}

// placeholder is a word in braces within an argument.
var placeholder = regexp.MustCompile(`\{([a-z-]*)\}`)

// values are what placeholders stand for.
func (s Spec) values() map[string]string {
	return map[string]string{
		"node": s.Node, "public-ip": s.PublicIP.String(), "uplink": s.Uplink, "etcd-endpoints": s.endpoints(),
		"etcd-prefix": s.EtcdPrefix, "lease-ttl": s.LeaseTTL.String(), "resync": s.Resync.String(),
		"vni": strconv.Itoa(s.VNI),
	}
}

func (s Spec) fill(text string) string {
	values := s.values()
	return placeholder.ReplaceAllStringFunc(text, func(p string) string { return values[p[1:len(p)-1]] })
}

// check reports every field that is wrong.
func (f fileFields) check() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("  "+format, args...)) }
	if f.Name == "" {
		refuse("name is missing: what the overlay is called in reports")
	}
	if f.Program == "" {
		refuse("program is missing: the agent's binary")
	}
	if f.Ready != ReadyNotify && f.Ready != ReadySubnetFile {
		refuse("ready is %q: it is %s (sd_notify) or %s", f.Ready, ReadyNotify, ReadySubnetFile)
	}
	if f.Ready == ReadySubnetFile && f.SubnetFile == "" {
		refuse("ready is %s and subnet_file is \"\": without such a file it is %s", f.Ready, ReadyNotify)
	}
	for name, path := range map[string]string{"subnet_file": f.SubnetFile, "key_prefix": f.KeyPrefix} {
		if path != "" && !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
			refuse("%s is %q: it begins with a slash and does not end with one, or is \"\" for none", name, path)
		}
	}
	for _, l := range f.Lacks {
		if _, ok := Features()[l]; !ok {
			refuse("lacks names %q, which is no feature: they are %s", l, strings.Join(featureNames(), ", "))
		}
	}
	known := Spec{}.values()
	for _, text := range append(append(slices.Clip(f.Arguments), f.Environment...), f.Device) {
		for _, p := range placeholder.FindAllStringSubmatch(text, -1) {
			if _, ok := known[p[1]]; !ok {
				refuse("%q has the placeholder {%s}, which stands for nothing: there are {%s}", text, p[1],
					strings.Join(sortedKeys(known), "}, {"))
			}
		}
	}
	for _, e := range f.Environment {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			refuse("environment has %q: each is NAME=value", e)
		}
	}
	return errors.Join(errs...)
}

func featureNames() []string {
	var names []string
	for f := range Features() {
		names = append(names, string(f))
	}
	slices.Sort(names)
	return names
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// resolve finds the files that a driver file names: relative to itself, or a program without a slash in
// PATH. What the user has given on the command line comes first.
func (f *File) resolve() error {
	var errs []error
	expand := func(text string) string {
		return os.Expand(text, func(name string) string {
			value, ok := os.LookupEnv(name)
			if !ok {
				errs = append(
					errs,
					fmt.Errorf("  %s asks for the environment variable %s, which is not set", text, name),
				)
			}
			return value
		})
	}
	beside := func(path string) string {
		if path = expand(path); path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(filepath.Dir(f.path), path)
	}
	f.fields.Program = expand(f.fields.Program)
	if p := f.fields.Program; p != "" && !strings.Contains(p, "/") {
		found, err := exec.LookPath(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("  program %s is not in PATH: give its path", p))
		}
		f.fields.Program = found
	}
	f.fields.Program = beside(f.fields.Program)
	for _, d := range f.fields.CNIBinDirs {
		f.ours.CNIDirs = append(slices.Clip(f.ours.CNIDirs), beside(d))
	}
	if f.fields.CNIConf != "" && f.ours.CNIConf == nil {
		raw, err := readConfList(beside(f.fields.CNIConf))
		errs = append(errs, err)
		f.ours.CNIConf = raw
	}
	return errors.Join(errs...)
}

// readConfList reads a CNI configuration list and refuses what is none.
func readConfList(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the CNI configuration: %w", err)
	}
	var list struct {
		Name    string
		Plugins []struct{ Type string }
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("the CNI configuration %s is not JSON: %w", path, err)
	}
	if list.Name == "" || len(list.Plugins) == 0 {
		return nil, fmt.Errorf("%s is no CNI configuration list: it needs a name and plugins (a single plugin's "+
			"configuration goes into the list \"plugins\")", path)
	}
	return raw, nil
}

// Name implements Driver.
func (f File) Name() string { return f.fields.Name }

// Check looks for the program, the programs that it needs, and the plugins of ours.
func (f File) Check() error {
	return errors.Join(
		f.ours.Check(),
		checkProgram(f.fields.Program),
		checkNeeded(f.fields.Name, f.fields.Needs...),
	)
}

// Command implements Driver.
func (f File) Command(s Spec) node.Command {
	c := node.Command{Name: f.fields.Name, Path: f.fields.Program}
	for _, a := range f.fields.Arguments {
		c.Args = append(c.Args, s.fill(a))
	}
	c.Args = append(c.Args, s.ExtraArgs...)
	if len(f.fields.Environment) > 0 {
		c.Env = os.Environ()
	}
	for _, e := range f.fields.Environment {
		c.Env = append(c.Env, s.fill(e))
	}
	return c
}

// SubnetFile implements Driver.
func (f File) SubnetFile() string { return f.fields.SubnetFile }

// Device implements Driver.
func (f File) Device(vni int) string { return Spec{VNI: vni}.fill(f.fields.Device) }

// CNI implements Driver.
func (f File) CNI() ([]byte, []string) { return f.ours.CNI() }

// Readiness is what the file says.
func (f File) Readiness() Readiness { return f.fields.Ready }

// Supervised is what the file says (restart).
func (f File) Supervised() bool { return f.fields.Restart }

// KeyPrefix is what the file says.
func (f File) KeyPrefix() string { return f.fields.KeyPrefix }

// Lacks lists the features that the file says the agent has not.
func (f File) Lacks() []Feature { return f.fields.Lacks }

// Version asks the program with the file's version_argument.
func (f File) Version(ctx context.Context) (string, error) {
	return askVersion(ctx, f.fields.Program, f.fields.VersionArgument)
}
