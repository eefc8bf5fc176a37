package kube

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"sigs.k8s.io/yaml"
)

// KubeletClient is the one that the kubelet renews by itself.
const KubeletClient = "kubelet-client"

// CertificateFiles as it is on the node.
type CertificateFiles struct {
	// Made is when it was made; kubeadm gives a certificate the first day of its
	// CA, so that of such a one is when its file was written.
	Made, NotAfter time.Time
	// Written is when its file was written: who uses it must be younger.
	Written time.Time
}

// certificateKind of a certificate: its file, its key (the same for one that holds both),
// its CA, and the static pods that use it. kubeconfig files hold all in one.
type certificateKind struct {
	file, key, ca string
	pods          []string
}

var (
	pki       = places.PKI + "/"
	configs   = configDir + "/"
	adminConf = filepath.Base(places.AdminConfig)
	clientPEM = places.KubeletPKI + "/kubelet-client-current.pem"
)

var certificateKinds = map[string]certificateKind{
	"apiserver":                {pki + "apiserver.crt", pki + "apiserver.key", "ca.crt", []string{"kube-apiserver"}},
	"apiserver-etcd-client":    {pki + "apiserver-etcd-client.crt", pki + "apiserver-etcd-client.key", "etcd/ca.crt", []string{"kube-apiserver"}},
	"apiserver-kubelet-client": {pki + "apiserver-kubelet-client.crt", pki + "apiserver-kubelet-client.key", "ca.crt", []string{"kube-apiserver"}},
	"front-proxy-client":       {pki + "front-proxy-client.crt", pki + "front-proxy-client.key", "front-proxy-ca.crt", []string{"kube-apiserver"}},
	"etcd-server":              {pki + "etcd/server.crt", pki + "etcd/server.key", "etcd/ca.crt", []string{"etcd"}},
	"etcd-peer":                {pki + "etcd/peer.crt", pki + "etcd/peer.key", "etcd/ca.crt", []string{"etcd"}},
	"etcd-healthcheck-client":  {pki + "etcd/healthcheck-client.crt", pki + "etcd/healthcheck-client.key", "etcd/ca.crt", nil},
	adminConf:                  {places.AdminConfig, "", "ca.crt", nil},
	"super-" + adminConf:       {configs + "super-" + adminConf, "", "ca.crt", nil},
	"controller-manager.conf":  {configs + "controller-manager.conf", "", "ca.crt", []string{"kube-controller-manager"}},
	"scheduler.conf":           {configs + "scheduler.conf", "", "ca.crt", []string{"kube-scheduler"}},
	KubeletClient:              {clientPEM, clientPEM, "ca.crt", nil},
}

// CertificateNames are those that kubeadm renews, sorted.
func CertificateNames() []string {
	var out []string
	for n := range certificateKinds {
		if n != KubeletClient {
			out = append(out, n)
		}
	}
	sort.Strings(out)
	return out
}

// CertificateUsers are the static pods that use a certificate.
func CertificateUsers(name string) []string { return certificateKinds[name].pods }

// CertificateDir is a node's certificates, below Root (empty: the node's own).
type CertificateDir struct{ Root string }

// Files of a certificate on this node: the certificate, and its key if that is
// another file.
func (d CertificateDir) Files(name string) []string {
	k, ok := certificateKinds[name]
	if !ok {
		return nil
	}
	out := []string{filepath.Join("/", d.Root, k.file)}
	if k.key != "" && k.key != k.file {
		out = append(out, filepath.Join("/", d.Root, k.key))
	}
	return out
}

// ErrBrokenCertificate says that a certificate is there and cannot be used.
var ErrBrokenCertificate = errors.New("it cannot be used")

// ReadFiles inspects a certificate; found is false if the node has none of that name.
func (d CertificateDir) ReadFiles(name string) (c CertificateFiles, found bool, err error) {
	k, ok := certificateKinds[name]
	if !ok {
		return c, false, nil
	}
	path := d.Files(name)[0]
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("certificate %s: %w", name, err)
	}
	leaf, err := d.leaf(k, path)
	if err != nil {
		return c, true, fmt.Errorf("certificate %s: %w", name, err)
	}
	c = CertificateFiles{Made: leaf.NotBefore, NotAfter: leaf.NotAfter, Written: st.ModTime()}
	if ca := first(filepath.Join("/", d.Root, pki, k.ca)); ca != nil && ca.NotBefore.Equal(leaf.NotBefore) {
		c.Made = c.Written
	}
	return c, true, nil
}

// leaf is the certificate in a file, if its key belongs to it.
func (d CertificateDir) leaf(k certificateKind, path string) (*x509.Certificate, error) {
	cert, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key := cert
	switch {
	case k.key == "":
		if cert, key, err = inKubeconfig(cert); err != nil {
			return nil, err
		}
	case k.key != k.file:
		if key, err = os.ReadFile(filepath.Join("/", d.Root, k.key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	// The error of the library says nothing of the key, and is not passed on either.
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %s and its key do not belong together, or one of them is no PEM", ErrBrokenCertificate, filepath.Base(path))
	}
	return x509.ParseCertificate(pair.Certificate[0])
}

func inKubeconfig(b []byte) (cert, key []byte, err error) {
	var k struct {
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if yaml.Unmarshal(b, &k) != nil || len(k.Users) != 1 {
		return nil, nil, fmt.Errorf("%w: it is no kubeconfig with one user", ErrBrokenCertificate)
	}
	return k.Users[0].User.Cert, k.Users[0].User.Key, nil
}

// first certificate of a file, nil if there is none.
func first(path string) *x509.Certificate {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return c
}
