package notifications

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Types of receivers.
const (
	typeWebhook      = "webhook"
	typeAlertmanager = "alertmanager"
)

// maxReceivers bounds the queues and the labels of the metric.
const maxReceivers = 20

// configFile is the file of receivers, as an administrator writes it.
type configFile struct {
	// Cluster is a name of this cluster; it is in every message.
	Cluster   string           `json:"cluster,omitempty"`
	Receivers []receiverConfig `json:"receivers"`
}

// receiverConfig is one receiver of the file. Its files are in the same directory.
type receiverConfig struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// URL of a webhook, or the base URL of an Alertmanager.
	URL string `json:"url"`
	// Events that are sent; empty for all.
	Events []string `json:"events,omitempty"`
	// HMACKeyFile has the key that signs messages to a webhook.
	HMACKeyFile string `json:"hmacKeyFile,omitempty"`
	// BearerTokenFile has a token that is sent with each request.
	BearerTokenFile string `json:"bearerTokenFile,omitempty"`
	// CAFile has the authorities of the server's certificate; without it those of the system.
	CAFile string `json:"caFile,omitempty"`
}

// settings are the valid content of the file.
type settings struct {
	cluster   string
	receivers []receiver
	// sum is of all files, to notice a change.
	sum [sha256.Size]byte
}

// receiver is a receiver with the contents of its files.
type receiver struct {
	name, kind string
	url        *url.URL
	events     []string
	key        []byte
	token      string
	roots      *x509.CertPool
}

func (r *receiver) wants(event string) bool {
	return len(r.events) == 0 || slices.Contains(r.events, event)
}

var receiverName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// loadSettings reads the file and the files that it names. A file that does not exist has no
// receivers: the Secret that it comes from is optional.
func loadSettings(file string) (settings, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return settings{}, nil
	}
	if err != nil {
		return settings{}, fmt.Errorf("read the receivers of notifications: %w", err)
	}
	out, err := parseSettings(data, func(name string) ([]byte, error) {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%q is not the name of a file in the directory of %s", name, file)
		}
		return os.ReadFile(filepath.Join(filepath.Dir(file), name))
	})
	if err != nil {
		return settings{}, fmt.Errorf("receivers of notifications in %s: %w", file, err)
	}
	return out, nil
}

// parseSettings validates a file of receivers. Errors name no URL and no content of a file.
func parseSettings(data []byte, read func(name string) ([]byte, error)) (settings, error) {
	var f configFile
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return settings{}, errors.New("it is not valid YAML, or has a field that is not known: valid are cluster and receivers with name, type, url, events, hmacKeyFile, bearerTokenFile and caFile")
	}
	if len(f.Receivers) > maxReceivers {
		return settings{}, fmt.Errorf("it has %d receivers, %d are allowed", len(f.Receivers), maxReceivers)
	}
	sum := sha256.New()
	_, _ = sum.Write(data) // a hash accepts every write
	out := settings{cluster: f.Cluster}
	for i := range f.Receivers {
		c := &f.Receivers[i]
		r, err := parseReceiver(c, func(name string) ([]byte, error) {
			data, err := read(name)
			fmt.Fprintf(sum, "\n%s %d\n%s", name, len(data), data)
			return data, err
		})
		if err != nil {
			return settings{}, fmt.Errorf("receiver %q: %w", c.Name, err)
		}
		if slices.ContainsFunc(out.receivers, func(o receiver) bool { return o.name == r.name }) {
			return settings{}, fmt.Errorf("receiver %q is there twice: give each its own name", c.Name)
		}
		out.receivers = append(out.receivers, r)
	}
	out.sum = [sha256.Size]byte(sum.Sum(nil))
	return out, nil
}

func parseReceiver(c *receiverConfig, read func(name string) ([]byte, error)) (receiver, error) {
	r := receiver{name: c.Name, kind: c.Type, events: c.Events}
	if err := checkReceiver(c); err != nil {
		return r, err
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return r, errors.New("its url is not http://HOST or https://HOST") // err has the URL, which may be a secret
	}
	r.url = u
	if r.key, err = readSecret(c.HMACKeyFile, read); err != nil {
		return r, fmt.Errorf("hmacKeyFile: %w", err)
	}
	token, err := readSecret(c.BearerTokenFile, read)
	if err != nil {
		return r, fmt.Errorf("bearerTokenFile: %w", err)
	}
	r.token = string(token)
	r.roots, err = readAuthorities(c.CAFile, read)
	return r, err
}

func checkReceiver(c *receiverConfig) error {
	if !receiverName.MatchString(c.Name) {
		return errors.New("its name is not 1 to 63 of a-z, 0-9 and -")
	}
	if c.Type != typeWebhook && c.Type != typeAlertmanager {
		return fmt.Errorf("type %q is not %s or %s", c.Type, typeWebhook, typeAlertmanager)
	}
	if c.Type == typeAlertmanager && c.HMACKeyFile != "" {
		return errors.New("hmacKeyFile is for webhooks: Alertmanager checks no signature")
	}
	for _, e := range c.Events {
		if !slices.Contains(events, e) {
			return fmt.Errorf("event %q is not one of %s", e, strings.Join(events, ", "))
		}
	}
	return nil
}

// readSecret reads a file without the line break at its end; nil for no file.
func readSecret(name string, read func(string) ([]byte, error)) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	data, err := read(name)
	if err != nil {
		return nil, err
	}
	out := strings.TrimRight(string(data), "\r\n")
	if out == "" || strings.ContainsAny(out, "\r\n") {
		return nil, fmt.Errorf("%s does not have exactly one line", name)
	}
	return []byte(out), nil
}

func readAuthorities(name string, read func(string) ([]byte, error)) (*x509.CertPool, error) {
	if name == "" {
		return nil, nil
	}
	data, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("caFile: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("caFile: %s has no certificate in PEM", name)
	}
	return pool, nil
}
