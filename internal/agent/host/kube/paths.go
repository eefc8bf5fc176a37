package kube

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/distribution"
)

// Places of kubeadm, and the directory of its kubeconfigs.
var (
	places    = distribution.KubeadmPlaces()
	configDir = filepath.Dir(places.AdminConfig)
)

// Paths of a node's Kubernetes files, below Root (empty: the node's own root). They are those of
// kubeadm: its certificates, kubeconfigs and static pods, which other nodes do not have. Those of
// the kubelet itself are the distribution's, if NodePaths made it.
type Paths struct {
	Root string
	// kubeletDir and kubeletConfig replace kubeadm's, if not empty.
	kubeletDir, kubeletConfig string
}

// NodePaths returns the paths of a node with the kubelet of its distribution; nil stands for kubeadm.
func NodePaths(d *Detection) Paths {
	if d == nil {
		return Paths{}
	}
	return Paths{Root: d.Root, kubeletDir: d.Place(distribution.WhatKubeletDir), kubeletConfig: d.Place(distribution.WhatKubeletConfig)}
}

// Kubeconfig of the kubelet.
func (p Paths) Kubeconfig() string { return p.join(places.Kubeconfig) }

// AdminConfig is kubeadm's own, on control planes.
func (p Paths) AdminConfig() string { return p.join(places.AdminConfig) }

// Manifests of the static pods.
func (p Paths) Manifests() string { return p.join(places.StaticPods) }

// KubeletConfig is the kubelet's configuration: a file, or a directory of drop-ins.
func (p Paths) KubeletConfig() string { return p.join(cmp.Or(p.kubeletConfig, places.KubeletConfig)) }

// KubeletFlags is the file with the kubelet's flags that kubeadm writes.
func (p Paths) KubeletFlags() string { return p.join(places.Config) }

// Etcd is one of the files of etcd's certificates, for example ca.crt.
func (p Paths) Etcd(name string) string { return p.join(places.PKI + "/etcd/" + name) }

// KubeadmTemp is where kubeadm leaves copies of what it replaced.
func (p Paths) KubeadmTemp() string { return p.join(configDir + "/tmp") }

// join returns "" for a place that there is not.
func (p Paths) join(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Join("/", p.Root, path)
}

// kubeconfig is the little of a kubeconfig that is needed here.
type kubeconfig struct {
	Clusters []struct {
		Cluster struct {
			Server string `json:"server"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		User struct {
			CertFile string `json:"client-certificate"`
			CertData []byte `json:"client-certificate-data"`
		} `json:"user"`
	} `json:"users"`
}

func readKubeconfig(path string) (*kubeconfig, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig: %w; is this a node of a cluster?", err)
	}
	var k kubeconfig
	if err := yaml.Unmarshal(b, &k); err != nil {
		return nil, fmt.Errorf("kubelet's kubeconfig %s: %w", path, err)
	}
	if len(k.Clusters) == 0 || len(k.Users) == 0 {
		return nil, fmt.Errorf("kubelet's kubeconfig %s names no cluster or no user", path)
	}
	return &k, nil
}

// Server is the API server's URL in a kubeconfig.
func Server(path string) (string, error) {
	k, err := readKubeconfig(path)
	if err != nil {
		return "", err
	}
	return k.Clusters[0].Cluster.Server, nil
}

// NodeName is whose identity a kubelet's kubeconfig holds: the certificate's
// common name is system:node:NAME.
func NodeName(path string) (string, error) {
	k, err := readKubeconfig(path)
	if err != nil {
		return "", err
	}
	text := k.Users[0].User.CertData
	if f := k.Users[0].User.CertFile; f != "" {
		if text, err = os.ReadFile(f); err != nil {
			return "", fmt.Errorf("kubelet's certificate: %w", err)
		}
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return "", fmt.Errorf("kubelet's certificate: %w", err)
		}
		if name, ok := strings.CutPrefix(cert.Subject.CommonName, "system:node:"); ok {
			return name, nil
		}
		return "", fmt.Errorf("kubelet's certificate is for %q, not for system:node:NAME; name the node with --node", cert.Subject.CommonName)
	}
	return "", errors.New("kubelet's kubeconfig has no certificate; name the node with --node")
}
