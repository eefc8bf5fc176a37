package agentconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"

	goyaml "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
)

// Defaults of Config.
const (
	DefaultFile     = "/etc/refit/agent.yaml"
	DefaultStateDir = "/var/lib/refit"
	// DefaultPort of the chunk server.
	DefaultPort = model.PortPeers
	// RunDir holds what is of no use after a reboot: the local status.
	RunDir = "/run/refit"
)

// Config of an agent. Every field has a default; the file is YAML with the
// field names below.
type Config struct {
	// Node is this node's name; default: that of the kubelet's certificate.
	Node string `json:"node,omitempty"`
	// Kubeconfig to speak to the API server with; default the kubelet's.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// StateDir is where everything is kept.
	StateDir string `json:"stateDir,omitempty"`
	// RunDir is where the local status is written.
	RunDir string `json:"runDir,omitempty"`
	// Runtime is the container runtime's socket; default: the one that the kubelet uses.
	Runtime string `json:"runtime,omitempty"`
	// Address under which peers reach the chunk server, host or host:port;
	// default: this node's address towards the API server, and the port of the node's
	// UpdatePool or 18740.
	Address string `json:"address,omitempty"`
	// Listen is the address that the chunk server binds, if it is not the host of
	// Address: behind address translation, or * for all of them.
	Listen string `json:"listen,omitempty"`
	// Media are files and devices to look at besides what is plugged in.
	Media []string `json:"media,omitempty"`
	// Devices are read besides removable ones and those on USB: patterns of names in
	// /dev (sd*), paths (/dev/disk/by-id/...), or "all". What is in use is never read.
	Devices []string `json:"devices,omitempty"`
	// NoDevices switches off looking at plugged-in devices.
	NoDevices bool `json:"noDevices,omitempty"`
	// LocalRegistries are image registries at loopback, link-local or metadata addresses
	// that the agent may ask, as HOST or HOST:PORT; it asks no others there.
	LocalRegistries []string `json:"localRegistries,omitempty"`

	// Problems are those of the file itself.
	Problems []statefile.Problem `json:"-"`
}

// Read reads the file; one that is not there is an empty one.
func Read(path string) (Config, error) {
	var c Config
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	err = oneDocument(b)
	if err == nil {
		err = yaml.UnmarshalStrict(b, &c)
	}
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// oneDocument refuses what follows the first YAML document: the decoder passes over it,
// and a file with a damaged beginning would count as an empty one.
func oneDocument(b []byte) error {
	d := goyaml.NewDecoder(bytes.NewReader(b))
	var first, second any
	if err := d.Decode(&first); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	if err := d.Decode(&second); err == nil {
		return errors.New("it has more than one YAML document")
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("text after the end of its YAML document: %w", err)
	}
	return nil
}

// ReasonInvalid is the reason word of a configuration file that is not used as it is; it is
// in the API.
const ReasonInvalid = "AgentConfigInvalid"

// Last is where the last version of the file is that was understood whole.
func Last(path string) string { return path + ".last" }

// Understand reads the file and never fails: an agent with a damaged file, or with one of a
// newer version, works with what it understands, and says so. What it does not understand
// comes from the last version that was understood whole, then from the defaults.
func Understand(path string) Config {
	c, err := Read(path)
	if err == nil {
		return c
	}
	c, rest := understood(path), "the parts that can be read are used"
	if reflect.DeepEqual(c, Config{}) {
		rest = "the defaults are used"
		if old, oldErr := Read(Last(path)); oldErr == nil && !reflect.DeepEqual(old, Config{}) {
			c, rest = old, "its last whole version is used, "+Last(path)
		}
	}
	c.Problems = []statefile.Problem{{Reason: ReasonInvalid, Object: path, Message: err.Error() + "; " + rest,
		Fix: "correct the file, or update the agent if a newer version wrote it, then: systemctl restart refit-agent"}}
	return c
}

// understood are the fields that can be read.
func understood(path string) (c Config) {
	eachField(path, func(one []byte, _ string, _ any) {
		_ = yaml.UnmarshalStrict(one, &c) // what is not understood changes nothing
	})
	return c
}

// Unknown returns the fields of the file that this version cannot read, so that whoever
// writes the file keeps them for the version that can.
func Unknown(path string) map[string]any {
	out := map[string]any{}
	eachField(path, func(one []byte, name string, value any) {
		if yaml.UnmarshalStrict(one, &Config{}) != nil {
			out[name] = value
		}
	})
	return out
}

// eachField calls f with each field of a file, alone as YAML; a damaged file has none.
func eachField(path string, f func(one []byte, name string, value any)) {
	b, err := os.ReadFile(path)
	if err != nil {
		return
	}
	var fields map[string]any
	if oneDocument(b) != nil || yaml.Unmarshal(b, &fields) != nil {
		return
	}
	for name, value := range fields {
		if one, err := yaml.Marshal(map[string]any{name: value}); err == nil {
			f(one, name, value)
		}
	}
}

// Remember keeps the file's content for Understand. It is best effort.
func Remember(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if old, oldErr := os.ReadFile(Last(path)); err == nil && (oldErr != nil || !bytes.Equal(b, old)) {
		err = fsutil.WriteFile(Last(path), b, 0o600)
	}
	return err
}

// WithPlaces fills in the defaults of what is on this machine itself.
func (c Config) WithPlaces() Config {
	for _, d := range []struct {
		field *string
		value string
	}{
		{&c.Kubeconfig, kube.Paths{}.Kubeconfig()}, {&c.StateDir, DefaultStateDir},
		{&c.RunDir, RunDir}, {&c.Runtime, kube.RuntimeSocket(kube.Paths{})},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	return c
}

// Complete fills in the defaults. The node's name needs the kubeconfig.
func (c Config) Complete() (Config, error) {
	c = c.WithPlaces()
	if c.Node == "" {
		name, err := kube.NodeName(c.Kubeconfig)
		if err != nil {
			return c, err
		}
		c.Node = name
	}
	return c, nil
}

// PeerAddress is host:port of the chunk server. wanted is the port of the node's
// UpdatePool, 0 for none.
func (c Config) PeerAddress(wanted int32) (string, error) {
	if host, port, err := net.SplitHostPort(c.Address); err == nil {
		return net.JoinHostPort(host, port), nil
	}
	port := strconv.Itoa(DefaultPort)
	if wanted > 0 {
		port = strconv.Itoa(int(wanted))
	}
	if c.Address != "" {
		return net.JoinHostPort(c.Address, port), nil
	}
	host, err := c.ownAddress()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

// ListenAddress is what is bound for a PeerAddress: that address of the node only.
func (c Config) ListenAddress(peer string) (string, error) {
	host, port, err := net.SplitHostPort(peer)
	if err != nil {
		return "", fmt.Errorf("address %s: %w", peer, err)
	}
	switch c.Listen {
	case "":
	case "*":
		host = ""
	default:
		host = c.Listen
	}
	return net.JoinHostPort(host, port), nil
}

// ownAddress is the address that this node uses towards the API server; behind
// a balancer on the node itself that is a loopback address, and then the first
// other one is taken.
func (c Config) ownAddress() (string, error) {
	if server, err := kube.Server(c.Kubeconfig); err == nil {
		if u, err := url.Parse(server); err == nil {
			if host := towards(u); host != "" {
				return host, nil
			}
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("addresses of this node: %w", err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("this node has no address that peers could reach; name it with --address")
}

// towards asks the routing table by a socket that sends nothing.
func towards(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	conn, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return ""
	}
	defer conn.Close()
	a, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok || a.IP.IsLoopback() {
		return ""
	}
	return a.IP.String()
}

// RunPath of a file in the run directory.
func (c Config) RunPath(elem ...string) string {
	dir := c.RunDir
	if dir == "" {
		dir = RunDir
	}
	return filepath.Join(append([]string{dir}, elem...)...)
}

// Path of a file in the state directory.
func (c Config) Path(elem ...string) string {
	return filepath.Join(append([]string{c.StateDir}, elem...)...)
}
