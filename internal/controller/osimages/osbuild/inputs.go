package osbuild

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/outbound"
)

// Inputs are the inputs of an OSImage in addition to its texts.
type Inputs struct {
	// CA is PEM text, Mirrors a registries.conf, and Elsewhere what it says.
	CA, Mirrors string
	Elsewhere   *oci.MirrorConfig
	proxy       v1alpha1.OSBuildProxy
	// Files next to the Containerfile, or the artifact that they are in; Context is their
	// hash, or the artifact's name.
	Files             map[string][]byte
	Artifact, Context string
	// Secrets of refit-builds that a RUN may mount.
	Secrets []string
	// Problem is one that a person has to fix.
	Problem string
}

// ReadInputs reads them. They are copied where they are used, so that a build does not
// change under way.
func ReadInputs(ctx context.Context, live client.Reader, o *v1alpha1.OSImage) (Inputs, error) {
	var x Inputs
	if o.Spec.Proxy != nil {
		x.proxy = *o.Spec.Proxy
	}
	steps := []struct {
		what string
		read func() (string, error)
	}{
		{"spec.caBundle", func() (string, error) { return x.caOf(ctx, live, o.Spec.CABundle) }},
		{"spec.mirrors", func() (string, error) { return x.mirrorsOf(ctx, live, &o.Spec) }},
	}
	if p := o.Spec.Build; p != nil {
		steps = append(steps, []struct {
			what string
			read func() (string, error)
		}{
			{"spec.build.secrets", func() (string, error) { return x.secretsOf(ctx, live, p) }},
			{"spec.build.context", func() (string, error) { return x.contextOf(ctx, live, p.Context) }},
		}...)
	}
	for _, s := range steps {
		problem, err := s.read()
		if err != nil {
			return x, err
		}
		if problem != "" && x.Problem == "" {
			x.Problem = s.what + ": " + problem
		}
	}
	return x, nil
}

func (x *Inputs) caOf(ctx context.Context, live client.Reader, ref *v1alpha1.ConfigMapKey) (problem string, err error) {
	if ref == nil {
		return "", nil
	}
	if x.CA, problem, err = Text(ctx, live, ref); err != nil || problem != "" {
		return problem, err
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(x.CA)) {
		return "ConfigMap " + ref.Name + " has no certificate in PEM under " + ref.Key, nil
	}
	return "", nil
}

// mirrorsOf reads where else bases are found: the same words for a build and for refit.
func (x *Inputs) mirrorsOf(ctx context.Context, live client.Reader, s *v1alpha1.OSImageSpec) (problem string, err error) {
	ref := s.Mirrors
	if ref == nil && s.Build != nil {
		ref = s.Build.Mirrors
	}
	if ref == nil {
		return "", nil
	}
	if x.Mirrors, problem, err = Text(ctx, live, ref); err != nil || problem != "" {
		return problem, err
	}
	if x.Elsewhere, err = oci.ParseMirrors(x.Mirrors); err != nil {
		return "ConfigMap " + ref.Name + ": " + err.Error(), nil //nolint:nilerr // a person mends it
	}
	return "", nil
}

// secretsOf checks that the Secrets exist and are for builds. A pod that mounts a missing
// Secret would wait without a message, and a RUN may read every Secret that is mounted.
func (x *Inputs) secretsOf(ctx context.Context, live client.Reader, p *v1alpha1.OSBuildPlace) (problem string, err error) {
	for _, ref := range p.Secrets {
		var s corev1.Secret
		err := live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: ref.Name}, &s)
		if apierrors.IsNotFound(err) {
			return "there is no Secret " + ref.Name + " in namespace " + v1alpha1.BuildsNamespace, nil
		}
		if err != nil {
			return "", fmt.Errorf("read the Secret %s: %w", ref.Name, err)
		}
		if s.Labels[v1alpha1.LabelBuildSecret] != "true" {
			return "Secret " + ref.Name + " is not for builds: kubectl -n " + v1alpha1.BuildsNamespace + " label secret " + ref.Name + " " + v1alpha1.LabelBuildSecret + "=true", nil
		}
		x.Secrets = append(x.Secrets, ref.Name)
	}
	return "", nil
}

func (x *Inputs) contextOf(ctx context.Context, live client.Reader, c *v1alpha1.OSBuildContext) (problem string, err error) {
	if c == nil {
		return "", nil
	}
	if x.Artifact = c.Artifact; c.Artifact != "" {
		x.Context = c.Artifact
		return "", nil
	}
	cm, problem, err := configMap(ctx, live, c.ConfigMap)
	if err != nil || problem != "" {
		return problem, err
	}
	x.Files = map[string][]byte{}
	for k, v := range cm.Data {
		x.Files[k] = []byte(v)
	}
	maps.Copy(x.Files, cm.BinaryData)
	if len(x.Files) == 0 {
		return "ConfigMap " + c.ConfigMap + " has no keys", nil
	}
	x.Context = hashOf(x.Files)
	return "", nil
}

func hashOf(files map[string][]byte) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%d %s %d %s\n", len(k), k, len(files[k]), files[k])
	}
	return osimage.Hash(b.String())
}

func configMap(ctx context.Context, live client.Reader, name string) (*corev1.ConfigMap, string, error) {
	cm := &corev1.ConfigMap{}
	err := live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil, "there is no ConfigMap " + name + " in namespace " + v1alpha1.NodesNamespace, nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	return cm, "", nil
}

// Text of a key; a problem is one that a person has to fix.
func Text(ctx context.Context, live client.Reader, ref *v1alpha1.ConfigMapKey) (text, problem string, err error) {
	cm, problem, err := configMap(ctx, live, ref.Name)
	if err != nil || problem != "" {
		return "", problem, err
	}
	text = cm.Data[ref.Key]
	if text == "" {
		text = string(cm.BinaryData[ref.Key])
	}
	if strings.TrimSpace(text) == "" {
		return "", "ConfigMap " + ref.Name + " has no text under " + ref.Key, nil
	}
	return text, "", nil
}

// Env is the environment of a build.
func (x Inputs) Env() map[string]string {
	return map[string]string{"HTTP_PROXY": x.proxy.HTTP, "HTTPS_PROXY": x.proxy.HTTPS, "NO_PROXY": x.proxy.NoProxy}
}

// Transport is how registries are reached with the CA bundle and the proxy; usual without.
func (x Inputs) Transport(usual http.RoundTripper) http.RoundTripper {
	if x.Way() == "" {
		return usual
	}
	t, ok := usual.(*http.Transport)
	if !ok {
		t = outbound.New(outbound.RegistryFlag).Transport()
	}
	t = t.Clone() // with its dialer: nothing local is asked this way either
	if x.CA != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		roots.AppendCertsFromPEM([]byte(x.CA))
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	if x.proxy != (v1alpha1.OSBuildProxy{}) {
		find := (&httpproxy.Config{HTTPProxy: x.proxy.HTTP, HTTPSProxy: x.proxy.HTTPS, NoProxy: x.proxy.NoProxy}).ProxyFunc()
		refuse := t.Proxy
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if refuse != nil {
				if _, err := refuse(r); err != nil {
					return nil, err
				}
			}
			return find(r.URL)
		}
	}
	return t
}

// Way is another for every way to registries, empty for the usual one.
func (x Inputs) Way() string {
	if x.CA == "" && x.proxy == (v1alpha1.OSBuildProxy{}) {
		return ""
	}
	return osimage.Hash(x.CA + fmt.Sprint(x.proxy))
}
