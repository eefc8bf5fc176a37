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

// AskTime bounds a question.
const AskTime = 3 * time.Second

// mostAnswer is how much of an answer is read, in bytes.
const mostAnswer = 1 << 20

// ErrNotFound says that the API server has no such object.
var ErrNotFound = errors.New("the API server has no such object")

// AwayError says that the API server gives no answer that can be used.
type AwayError struct {
	// Says is for people, Why for who has to know; Why is nil if it answered.
	Says string
	Why  error
}

func (e AwayError) Error() string { return e.Says }
func (e AwayError) Unwrap() error { return e.Why }

// Get asks for a path. own asks the API server on this node, if it has one.
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
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(conf.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, AwayError{"the API server does not answer", err}
	}
	defer resp.Body.Close()
	return answer(resp)
}

func answer(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	switch {
	case err != nil:
		return nil, AwayError{"the API server does not answer", err}
	case resp.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case resp.StatusCode != http.StatusOK:
		return nil, AwayError{"the API server answers " + resp.Status, nil}
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
