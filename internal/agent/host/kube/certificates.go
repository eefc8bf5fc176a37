package kube

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"sort"
	"time"

	"sigs.k8s.io/yaml"
)

// Certificate is a file that holds a certificate, and when it ends.
type Certificate struct {
	// Name as people know it: apiserver.crt, etcd/server.crt, admin.conf,
	// kubelet-client-current.pem.
	Name     string
	NotAfter time.Time
}

// PKI is kubeadm's directory of certificates, on control planes.
func (p Paths) PKI() string { return p.join(places.PKI) }

// KubeletPKI is the kubelet's own directory.
func (p Paths) KubeletPKI() string { return p.join(places.KubeletPKI) }

// Certificates are those of this node's Kubernetes parts, the one that ends
// first first. Files that are not there or hold none are left out: a worker has
// few, and a cluster may keep its keys elsewhere.
func Certificates(p Paths) []Certificate {
	var out []Certificate
	add := func(name, path string) {
		if t, ok := ends(path); ok {
			out = append(out, Certificate{name, t})
		}
	}
	for _, dir := range []string{"", "etcd"} {
		files, _ := filepath.Glob(filepath.Join(p.PKI(), dir, "*.crt")) // the pattern is well formed
		for _, f := range files {
			add(filepath.Join(dir, filepath.Base(f)), f)
		}
	}
	add("kubelet-client-current.pem", filepath.Join(p.KubeletPKI(), "kubelet-client-current.pem"))
	for _, name := range []string{adminConf, "controller-manager.conf", "scheduler.conf"} {
		if t, ok := clientEnds(p.join(configDir + "/" + name)); ok {
			out = append(out, Certificate{name, t})
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].NotAfter.Before(out[j].NotAfter) })
	return out
}

// ends is when the first certificate of a file ends: the leaf, which is used.
func ends(path string) (time.Time, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, false
	}
	return firstEnds(b)
}

func firstEnds(b []byte) (time.Time, bool) {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, false
		}
		return c.NotAfter, true
	}
	return time.Time{}, false
}

// clientEnds is when the certificate inside a kubeconfig ends.
func clientEnds(path string) (time.Time, bool) {
	k, err := readKubeconfig(path)
	if err != nil {
		return time.Time{}, false
	}
	return firstEnds(k.Users[0].User.CertData)
}

// PullVerification is the kubelet's imagePullCredentialsVerificationPolicy, ""
// if it is not set or no file is there. The last drop-in counts.
func PullVerification(p Paths) (policy string) {
	for _, file := range configFiles(p.KubeletConfig(), "") {
		var c struct {
			Policy string `json:"imagePullCredentialsVerificationPolicy"`
		}
		if b, err := os.ReadFile(file); err == nil && yaml.Unmarshal(b, &c) == nil {
			policy = cmp.Or(c.Policy, policy)
		}
	}
	return policy
}
