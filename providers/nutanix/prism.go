package nutanix

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// Config is a Prism Central.
type Config struct {
	// Server is its address: https://prism.example:9440.
	Server string `json:"server"`
	// CAFile has the authorities of its certificate in PEM; empty trusts the system's.
	CAFile string `json:"caFile,omitempty"`
}

// Cloud is a Prism Central.
type Cloud struct {
	Config Config
	// Login returns user and password; they are read before each question.
	Login func() (user, password string, err error)
	// Transport wraps the transport of each connection; nil for none.
	Transport func(http.RoundTripper) http.RoundTripper
	// Poll is how often an image is observed while Prism processes it; 0 is two seconds.
	Poll time.Duration
}

// image is an image of the API; the parts that are not read stay in raw.
type image struct {
	Spec struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Resources   struct {
			Architecture string `json:"architecture"`
		} `json:"resources"`
	} `json:"spec"`
	Status struct {
		State     string `json:"state"`
		Resources struct {
			SizeBytes int64 `json:"size_bytes"`
			Checksum  struct {
				Algorithm string `json:"checksum_algorithm"`
				Value     string `json:"checksum_value"`
			} `json:"checksum"`
		} `json:"resources"`
	} `json:"status"`
	Metadata struct {
		UUID    string    `json:"uuid"`
		Created time.Time `json:"creation_time"`
	} `json:"metadata"`
}

// session sends requests to a Prism Central.
type session struct {
	client         *http.Client
	base           string
	user, password string
}

func (c *Cloud) session() (*session, error) {
	if !strings.HasPrefix(c.Config.Server, "https://") {
		return nil, fmt.Errorf("server %q must begin with https://: the password goes there", c.Config.Server)
	}
	user, password, err := c.Login()
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if c.Config.CAFile != "" {
		pem, err := os.ReadFile(c.Config.CAFile)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", c.Config.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	s := &session{client: &http.Client{Transport: t}, base: strings.TrimSuffix(c.Config.Server, "/") + "/api/nutanix/v3/images", user: user, password: password}
	if c.Transport != nil {
		s.client.Transport = c.Transport(t)
	}
	return s, nil
}

// maxAnswer is the size of the largest answer that is read, in bytes.
const maxAnswer = 16 << 20

// errNotFound says that Prism does not have the image.
var errNotFound = errors.New("it does not exist")

// send sends a request and returns the answer. The caller closes its body.
func (s *session) send(ctx context.Context, method, path, contentType string, body io.Reader, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, body)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		req.ContentLength = size
	}
	req.SetBasicAuth(s.user, s.password)
	req.Header.Set("Content-Type", contentType)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		resp.Body.Close()
		return nil, errNotFound
	case resp.StatusCode/100 != 2:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: Prism answers %s: %s", method, path, resp.Status, bytes.TrimSpace(text))
	}
	return resp, nil
}

// json sends a value and reads the answer into out, if there is one.
func (s *session) json(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	resp, err := s.send(ctx, method, path, "application/json", body, 0)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// pageLength is how many images a page has.
const pageLength = 100

// named lists the images with a name.
func (s *session) named(ctx context.Context, name string) ([]image, error) {
	var out []image
	for offset := 0; ; offset += pageLength {
		var page struct {
			Entities []image `json:"entities"`
		}
		err := s.json(ctx, http.MethodPost, "/list", map[string]any{"kind": "image", "filter": "name==" + name, "length": pageLength, "offset": offset}, &page)
		if err != nil {
			return nil, err
		}
		for _, i := range page.Entities {
			if i.Spec.Name == name {
				out = append(out, i)
			}
		}
		if len(page.Entities) < pageLength {
			return out, nil
		}
	}
}
