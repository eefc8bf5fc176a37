package clusterapi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// inlineConfig builds a configuration from the data inside a kubeconfig. The kubeconfig comes
// from a tenant's namespace. A field that names a file, a program, a proxy or another identity
// would be resolved with the controller's own files and rights, so each is refused. Errors name
// fields and quote no value.
func inlineConfig(kubeconfig []byte) (*rest.Config, error) {
	k, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("it is not a kubeconfig") // clientcmd's error may quote a part of it
	}
	for _, name := range slices.Sorted(maps.Keys(k.Clusters)) {
		if err := checkFields(clusterFields(k.Clusters[name])); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.AuthInfos)) {
		if err := checkFields(userFields(k.AuthInfos[name])); err != nil {
			return nil, err
		}
	}
	c := k.Contexts[k.CurrentContext]
	if c == nil || k.Clusters[c.Cluster] == nil || k.AuthInfos[c.AuthInfo] == nil {
		return nil, errors.New("its current-context does not name a context with a cluster and a user")
	}
	return restConfig(k.Clusters[c.Cluster], k.AuthInfos[c.AuthInfo])
}

// refusedField is a field of a kubeconfig, whether it is set, and what to use instead.
type refusedField struct {
	field   string
	set     bool
	instead string
}

func clusterFields(c *api.Cluster) []refusedField {
	return []refusedField{
		{"certificate-authority", c.CertificateAuthority != "", "use certificate-authority-data"},
		{"insecure-skip-tls-verify", c.InsecureSkipTLSVerify, "use certificate-authority-data"},
		{"proxy-url", c.ProxyURL != "", "remove it"},
	}
}

func userFields(u *api.AuthInfo) []refusedField {
	return []refusedField{
		{"tokenFile", u.TokenFile != "", "use token"},
		{"client-certificate", u.ClientCertificate != "", "use client-certificate-data"},
		{"client-key", u.ClientKey != "", "use client-key-data"},
		{"exec", u.Exec != nil, "use token or client-certificate-data"},
		{"auth-provider", u.AuthProvider != nil, "use token or client-certificate-data"},
		{"username", u.Username != "" || u.Password != "", "use token or client-certificate-data"},
		{"as", u.Impersonate != "", "use a user that has the rights itself"},
		{"as-uid", u.ImpersonateUID != "", "use a user that has the rights itself"},
		{"as-groups", len(u.ImpersonateGroups) > 0, "use a user that has the rights itself"},
		{"as-user-extra", len(u.ImpersonateUserExtra) > 0, "use a user that has the rights itself"},
	}
}

func checkFields(fields []refusedField) error {
	for _, f := range fields {
		if f.set {
			return fmt.Errorf("its field %s is refused: only data inside the Secret is used; %s", f.field, f.instead)
		}
	}
	return nil
}

func restConfig(c *api.Cluster, u *api.AuthInfo) (*rest.Config, error) {
	certificate := len(u.ClientCertificateData) > 0 && len(u.ClientKeyData) > 0
	switch {
	case !strings.HasPrefix(c.Server, "https://"):
		return nil, errors.New("its field server does not start with https://")
	case len(c.CertificateAuthorityData) == 0:
		return nil, errors.New("its field certificate-authority-data is empty")
	case u.Token == "" && !certificate:
		return nil, errors.New("its field token is empty, and client-certificate-data or client-key-data too")
	}
	return &rest.Config{Host: c.Server, BearerToken: u.Token, DisableCompression: c.DisableCompression,
		TLSClientConfig: rest.TLSClientConfig{ServerName: c.TLSServerName, CAData: c.CertificateAuthorityData,
			CertData: u.ClientCertificateData, KeyData: u.ClientKeyData}}, nil
}
