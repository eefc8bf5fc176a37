package service

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeletPort is the kubelet's own API on this node.
const kubeletPort = "https://127.0.0.1:10250"

// Configz returns the kubelet's effective configuration, nil if the kubelet refuses. Its API
// accepts the administrator's credentials, which only control planes have. It accepts those of
// the node if an administrator granted that.
func (p servicePart) Configz(ctx context.Context) (map[string]any, error) {
	for _, kubeconfig := range []string{p.host.paths.AdminConfig(), p.host.kubeconfig} {
		if c := configz(ctx, kubeconfig); c != nil {
			return c, nil
		}
	}
	return nil, nil
}

func configz(ctx context.Context, kubeconfig string) map[string]any {
	conf, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil
	}
	tlsConf, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: conf.TLSClientConfig})
	if err != nil || tlsConf == nil {
		return nil
	}
	// The kubelet's certificate is usually self-signed. The connection is loopback, and
	// presents only a client certificate.
	tlsConf.InsecureSkipVerify, tlsConf.RootCAs, tlsConf.MinVersion = true, nil, tls.VersionTLS12
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, kubeletPort+"/configz", nil)
	if err != nil {
		return nil
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: tlsConf, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil
	}
	var out struct {
		Config map[string]any `json:"kubeletconfig"`
	}
	if json.Unmarshal(body, &out) != nil {
		return nil
	}
	return out.Config
}
