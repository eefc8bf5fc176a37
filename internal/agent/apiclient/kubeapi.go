package apiclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/refit-dev/refit/internal/agent/host/kube"
)

// RequestTimeout bounds a request.
const RequestTimeout = 3 * time.Second

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 1 << 20

// ErrNotFound says that the API server has no such object.
var ErrNotFound = errors.New("the API server has no such object")

// UnavailableError says that the API server gives no usable answer.
type UnavailableError struct {
	// Message is for people. Cause is for errors.Is; it is nil if the server answered.
	Message string
	Cause   error
}

func (e UnavailableError) Error() string { return e.Message }
func (e UnavailableError) Unwrap() error { return e.Cause }

// Get requests a path. own sends it to the API server on this node, if it has one.
func Get(ctx context.Context, kubeconfig string, p kube.Paths, own bool, path string) ([]byte, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig: %w", err)
	}
	if own {
		local, err := Local(p)
		if err != nil {
			return nil, err
		}
		if local != "" {
			conf.Host = local
		}
	}
	client, err := rest.HTTPClientFor(conf)
	if err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(conf.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, UnavailableError{"the API server does not answer", err}
	}
	defer resp.Body.Close()
	return readAnswer(resp)
}

func readAnswer(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, UnavailableError{"the API server does not answer", err}
	case resp.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case resp.StatusCode != http.StatusOK:
		return nil, UnavailableError{"the API server answers " + resp.Status, nil}
	}
	return body, nil
}

// Local is the URL of this node's own API server, "" if it has none.
func Local(p kube.Paths) (string, error) {
	pods, err := kube.StaticPods(p.Manifests())
	if err != nil {
		return "", err
	}
	return kube.LocalAPIServer(pods), nil
}
