package clusterapi

import (
	"strings"
	"testing"
)

// For every kubeconfig of a tenant, the configuration uses no file, no
// program, no proxy and no other identity of the controller's.
func FuzzKubeconfig(f *testing.F) {
	good := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
		"clusters: [{name: k, cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: YQ==}}]\nusers: [{name: u, user: {token: t}}]\n"
	f.Add([]byte(good))
	for _, bad := range []string{"tokenFile: /var/run/secrets/token", "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}", "client-key: /etc/key", "as: admin", "auth-provider: {name: gcp}", "username: a"} {
		f.Add([]byte(strings.Replace(good, "token: t", "token: t, "+bad, 1)))
	}
	f.Add([]byte(strings.Replace(good, "certificate-authority-data", "proxy-url: 'http://192.0.2.2', certificate-authority-data", 1)))
	if _, err := inlineConfig([]byte(good)); err != nil {
		f.Fatalf("the seed is refused: %v", err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := inlineConfig(data)
		if err != nil {
			return
		}
		tls := c.TLSClientConfig
		if c.BearerTokenFile != "" || tls.CAFile != "" || tls.CertFile != "" || tls.KeyFile != "" || tls.Insecure || c.ExecProvider != nil || c.AuthProvider != nil ||
			c.Proxy != nil || c.Username != "" || c.Password != "" || c.Impersonate.UserName != "" || c.Impersonate.UID != "" || len(c.Impersonate.Groups)+len(c.Impersonate.Extra) > 0 {
			t.Errorf("%+v", c)
		}
		if !strings.HasPrefix(c.Host, "https://") || len(tls.CAData) == 0 || c.BearerToken == "" && len(tls.KeyData) == 0 {
			t.Errorf("%+v", c)
		}
	})
}
