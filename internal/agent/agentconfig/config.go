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

	goyaml "go.yaml.in/yaml/v2"
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
	// DefaultRegistryAuth has the node's logins to registries of bundles.
	DefaultRegistryAuth = "/etc/refit/registry-auth.json"
	// RunDir holds files that a reboot may remove: the local status, locks, problems.
	RunDir = "/run/refit"
)

// Config of an agent. Every field has a default; the file is YAML with the
// field names below.
type Config struct {
	// Node is this node's name; default: that of the kubelet's certificate.
	Node string `json:"node,omitempty"`
	// Kubeconfig for the API server; default: the kubelet's.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// StateDir is the directory of all state and blobs.
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
	// Media are additional files and devices to scan.
	Media []string `json:"media,omitempty"`
	// Devices are scanned in addition to removable and USB devices: patterns of names in
	// /dev (sd*), paths (/dev/disk/by-id/...), or "all". The agent never reads a device
	// that is in use.
	Devices []string `json:"devices,omitempty"`
	// NoDevices disables the scan of devices.
	NoDevices bool `json:"noDevices,omitempty"`
	// LocalRegistries are image registries at loopback, link-local or metadata addresses
	// that the agent may ask, as HOST or HOST:PORT; it asks no others there.
	LocalRegistries []string `json:"localRegistries,omitempty"`
	// RegistryAuth is a file with logins to the registries of bundles, in the form of docker
	// and podman; default: /etc/refit/registry-auth.json.
	RegistryAuth string `json:"registryAuth,omitempty"`
	// StatusPage is the address of a page with this node's state, HOST or HOST:PORT; empty
	// for none.
	StatusPage string `json:"statusPage,omitempty"`
	// Console shows this node's state above the login prompt of its consoles.
	Console bool `json:"console,omitempty"`
	// StatusHook is a program that the agent runs when this node's state changes: for a light or
	// a beeper. Empty for none.
	StatusHook string `json:"statusHook,omitempty"`

	// Problems are those that reading the file found.
	Problems []statefile.Problem `json:"-"`
}

// ReadFile reads the file. A missing file is an empty configuration.
func ReadFile(path string) (Config, error) {
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

// oneDocument refuses content after the first YAML document: the decoder ignores it, so that a
// file with a damaged beginning would count as empty.
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

// ReasonInvalid is the reason word of a configuration file that the agent cannot use as it is.
const ReasonInvalid = "AgentConfigInvalid"

// LastValidPath returns the path of the last version of the file that was valid.
func LastValidPath(path string) string { return path + ".last" }

// ReadOrRecover reads the file and never fails. With a damaged file, or one of a newer version, the
// agent uses the fields that it can read and reports a problem. If it can read none, it uses the
// last valid version of the file, then the defaults.
func ReadOrRecover(path string) Config {
	c, err := ReadFile(path)
	if err == nil {
		return c
	}
	c, rest := readableFields(path), "the readable fields are used"
	if reflect.DeepEqual(c, Config{}) {
		rest = "the defaults are used"
		if old, oldErr := ReadFile(LastValidPath(path)); oldErr == nil && !reflect.DeepEqual(old, Config{}) {
			c, rest = old, "the last valid version is used, "+LastValidPath(path)
		}
	}
	c.Problems = []statefile.Problem{{Reason: ReasonInvalid, Object: path, Message: err.Error() + "; " + rest,
		Fix: "Correct the file, or update the agent if a newer version wrote it. Then: systemctl restart refit-agent."}}
	return c
}

// readableFields returns the fields that this version can read.
func readableFields(path string) (c Config) {
	eachField(path, func(one []byte, _ string, _ any) {
		_ = yaml.UnmarshalStrict(one, &c) // an unreadable field changes nothing
	})
	return c
}

// UnknownFields returns the fields of the file that this version cannot read, so that the installer
// keeps them for a version that can.
func UnknownFields(path string) map[string]any {
	out := map[string]any{}
	eachField(path, func(one []byte, name string, value any) {
		if yaml.UnmarshalStrict(one, &Config{}) != nil {
			out[name] = value
		}
	})
	return out
}

// eachField calls f with each field of a file as a YAML document; a damaged file has none.
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

// SaveLastValid stores the file's content for ReadOrRecover, as best effort.
func SaveLastValid(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if old, oldErr := os.ReadFile(LastValidPath(path)); err == nil && (oldErr != nil || !bytes.Equal(b, old)) {
		err = fsutil.WriteFile(LastValidPath(path), b, 0o600)
	}
	return err
}

// WithDefaultPaths fills in the default paths of this machine.
func (c Config) WithDefaultPaths() Config {
	var kubeconfig, socket string
	if c.Kubeconfig == "" || c.Runtime == "" {
		kubeconfig, socket = kube.DefaultPlaces("/")
	}
	for _, d := range []struct {
		field *string
		value string
	}{
		{&c.Kubeconfig, kubeconfig}, {&c.StateDir, DefaultStateDir},
		{&c.RunDir, RunDir}, {&c.Runtime, socket},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	return c
}

// Complete fills in the defaults. The node's name needs the kubeconfig.
func (c Config) Complete() (Config, error) {
	c = c.WithDefaultPaths()
	if c.Node == "" {
		name, err := kube.NodeName(c.Kubeconfig)
		if err != nil {
			return c, err
		}
		c.Node = name
	}
	return c, nil
}

// PeerAddress returns host:port of the chunk server. wanted is the port of the node's
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

// ListenAddress returns the address to bind for a PeerAddress: by default only that address.
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

// ownAddress returns the address from which this node connects to the API server. With a load
// balancer on the node itself that is a loopback address; then it returns the first other one.
func (c Config) ownAddress() (string, error) {
	if server, err := kube.Server(c.Kubeconfig); err == nil {
		if u, err := url.Parse(server); err == nil {
			if host := sourceAddress(u); host != "" {
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
	return "", errors.New("this node has no address that peers can reach; set --address")
}

// sourceAddress returns the address from which this node connects to u, "" if it is a loopback
// address. It asks the routing table with a socket that sends nothing.
func sourceAddress(u *url.URL) string {
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
