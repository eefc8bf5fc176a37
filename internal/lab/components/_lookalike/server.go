package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	identityPath   = "/v1-look-alike/identity"
	supervisorPort = ":9345"
	etcdURL        = "https://127.0.0.1:2379"
	kineSocket     = "unix://kine.sock"
)

// controlPlane is the server's part.
type controlPlane struct {
	*family
	conf map[string]string
	// tls has the certificates, cred the kubeconfigs of the controllers.
	tls, cred string
}

func (s *controlPlane) kubeadmConfig() string { return at.kubeadm }

// up starts the control plane and waits until its API server answers.
func (s *controlPlane) up() error {
	if err := s.makeCertificates(); err != nil {
		return err
	}
	if err := s.startDatastore(); err != nil {
		return err
	}
	s.startAPIServer()
	for _, c := range []string{"kube-controller-manager", "kube-scheduler"} {
		conf := s.cred + "/" + strings.TrimPrefix(c, "kube-") + ".conf"
		args := []string{"--kubeconfig=" + conf, "--authentication-kubeconfig=" + conf, "--authorization-kubeconfig=" + conf, "--bind-address=127.0.0.1", "--leader-elect=true"}
		if c == "kube-controller-manager" {
			args = append(args, "--allocate-node-cidrs=false", "--client-ca-file="+s.tls+"/ca.crt", "--requestheader-client-ca-file="+s.tls+"/front-proxy-ca.crt",
				"--cluster-signing-cert-file="+s.tls+"/ca.crt", "--cluster-signing-key-file="+s.tls+"/ca.key", "--root-ca-file="+s.tls+"/ca.crt",
				"--service-account-private-key-file="+s.tls+"/sa.key", "--use-service-account-credentials=true")
		}
		s.start(c, args...)
	}
	if err := s.until("the API server", func() error {
		_, err := s.output("kubectl", "get", "--raw", "/readyz")
		return err
	}); err != nil {
		return err
	}
	return s.listen()
}

// makeCertificates has kubeadm issue what is missing.
func (s *controlPlane) makeCertificates() error {
	text := fmt.Sprintf(kubeadmConfig, s.conf["node-ip"], s.conf["node-name"], at.socket, release, s.tls, pods, services)
	if err := put(s.kubeadmConfig(), text); err != nil {
		return err
	}
	if _, err := s.output("kubeadm", "init", "phase", "certs", "all", "--config", s.kubeadmConfig()); err != nil {
		return err
	}
	for _, name := range []string{"admin", "super-admin", "controller-manager", "scheduler"} {
		if _, err := s.output("kubeadm", "init", "phase", "kubeconfig", name, "--config", s.kubeadmConfig(), "--kubeconfig-dir", s.cred); err != nil {
			return err
		}
	}
	admin, err := os.ReadFile(s.cred + "/super-admin.conf")
	if err != nil {
		return err
	}
	return put(at.admin, atServer(string(admin), "https://127.0.0.1:6443"))
}

// sqlite reports whether the datastore is a file: as with k3s, unless its configuration makes
// the first of several servers.
func sqlite(conf map[string]string) bool { return face == "k3s" && conf["cluster-init"] != "true" }

func (s *controlPlane) startDatastore() error {
	if sqlite(s.conf) {
		return s.startKine()
	}
	peer := "https://" + s.conf["node-ip"] + ":2380"
	s.start("etcd", "--name="+s.conf["node-name"], "--data-dir="+at.etcd, "--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster="+s.conf["node-name"]+"="+peer,
		"--client-cert-auth", "--trusted-ca-file="+s.tls+"/etcd/ca.crt", "--cert-file="+s.tls+"/etcd/server.crt", "--key-file="+s.tls+"/etcd/server.key",
		"--peer-client-cert-auth", "--peer-trusted-ca-file="+s.tls+"/etcd/ca.crt", "--peer-cert-file="+s.tls+"/etcd/peer.crt", "--peer-key-file="+s.tls+"/etcd/peer.key")
	return nil
}

// startKine serves the protocol of etcd from a file, with kine's defaults for file and
// socket, which are relative to the working directory.
func (s *controlPlane) startKine() error {
	if err := os.Chdir(at.work); err != nil {
		return err
	}
	s.start("kine", "--listen-address="+kineSocket, "--metrics-bind-address=0")
	return nil
}

// datastoreFlags of the API server.
func (s *controlPlane) datastoreFlags() []string {
	if sqlite(s.conf) {
		return []string{"--etcd-servers=" + kineSocket}
	}
	return []string{"--etcd-servers=" + etcdURL, "--etcd-cafile=" + s.tls + "/etcd/ca.crt",
		"--etcd-certfile=" + s.tls + "/apiserver-etcd-client.crt", "--etcd-keyfile=" + s.tls + "/apiserver-etcd-client.key"}
}

func (s *controlPlane) startAPIServer() {
	s.start("kube-apiserver", append(s.datastoreFlags(), "--advertise-address="+s.conf["node-ip"], "--secure-port=6443", "--allow-privileged=true", "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--client-ca-file="+s.tls+"/ca.crt",
		"--kubelet-client-certificate="+s.tls+"/apiserver-kubelet-client.crt", "--kubelet-client-key="+s.tls+"/apiserver-kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--proxy-client-cert-file="+s.tls+"/front-proxy-client.crt", "--proxy-client-key-file="+s.tls+"/front-proxy-client.key",
		"--requestheader-client-ca-file="+s.tls+"/front-proxy-ca.crt", "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-account-key-file="+s.tls+"/sa.pub",
		"--service-account-signing-key-file="+s.tls+"/sa.key", "--service-cluster-ip-range="+services,
		"--tls-cert-file="+s.tls+"/apiserver.crt", "--tls-private-key-file="+s.tls+"/apiserver.key")...)
}

// issue makes the identity of a node.
func (s *controlPlane) issue(node string) (id identity, err error) {
	dir, err := os.MkdirTemp("", "identity-")
	if err != nil {
		return id, err
	}
	defer os.RemoveAll(dir)
	if _, err := s.output("kubeadm", "init", "phase", "kubeconfig", "kubelet", "--config", s.kubeadmConfig(), "--kubeconfig-dir", dir, "--node-name", node); err != nil {
		return id, err
	}
	kubelet, err := os.ReadFile(dir + "/kubelet.conf")
	if err != nil {
		return id, err
	}
	id.Kubelet = string(kubelet)
	if id.Proxy, err = s.output("kubeadm", "kubeconfig", "user", "--config", s.kubeadmConfig(), "--client-name", "system:kube-proxy"); err != nil {
		return id, err
	}
	id.CA, err = authority(id.Kubelet)
	return id, err
}

// listen answers agents.
func (s *controlPlane) listen() error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+identityPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+s.conf["token"] {
			http.Error(w, "not authorized", http.StatusUnauthorized)
			return
		}
		id, err := s.issue(r.URL.Query().Get("name"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(id)
	})
	server := &http.Server{Addr: supervisorPort, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { s.end(server.ListenAndServeTLS(s.tls+"/apiserver.crt", s.tls+"/apiserver.key")) }()
	return nil
}

// applyAddons labels the server and applies what is in its directory of add-ons, at once and
// without regard to the nodes that are not updated: as the first updated server does.
func (f *family) applyAddons(node string) error {
	if err := f.until("this node", func() error {
		_, err := f.output("kubectl", "label", "--overwrite", "node", node, "node-role.kubernetes.io/control-plane=true")
		return err
	}); err != nil {
		return err
	}
	dns, err := f.output("kubeadm", "init", "phase", "addon", "coredns", "--print-manifest", "--config", at.kubeadm)
	if err != nil {
		return err
	}
	if err := put(at.manifests+"/coredns.yaml", dns); err != nil {
		return err
	}
	if face == "k0s" {
		proxy, err := f.output("kubeadm", "init", "phase", "addon", "kube-proxy", "--print-manifest", "--config", at.kubeadm)
		if err != nil {
			return err
		}
		if err := put(at.manifests+"/kube-proxy.yaml", proxy); err != nil {
			return err
		}
	}
	return f.until("the add-ons", func() error {
		_, err := f.output("kubectl", "apply", "--filename", at.manifests)
		return err
	})
}

// saveSnapshot saves etcd's snapshot through its HTTP gateway, with the flags of the real
// command.
func saveSnapshot(args []string) error {
	flags := flag.NewFlagSet("etcd-snapshot save", flag.ContinueOnError)
	prefix := flags.String("name", "on-demand", "")
	to := flags.String("dir", at.work+"/db/snapshots", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if conf, err := settings(); err != nil {
		return err
	} else if sqlite(conf) {
		return errors.New("etcd datastore disabled")
	}
	dir := at.tls + "/etcd"
	pair, err := tls.LoadX509KeyPair(dir+"/healthcheck-client.crt", dir+"/healthcheck-client.key")
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}}}
	resp, err := client.Post(etcdURL+"/v3/maintenance/snapshot", "application/json", bytes.NewReader([]byte("{}")))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	name, _ := os.Hostname()
	path := filepath.Join(*to, fmt.Sprintf("%s-%s-%d", *prefix, name, time.Now().Unix()))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	out, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	defer out.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var piece struct {
			Result struct{ Blob []byte }
			Error  json.RawMessage
		}
		if err := d.Decode(&piece); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if len(piece.Error) > 0 {
			return fmt.Errorf("etcd: %s", piece.Error)
		}
		if _, err := out.Write(piece.Result.Blob); err != nil {
			return err
		}
	}
	if err := out.Sync(); err != nil {
		return err
	}
	fmt.Println("snapshot saved:", path)
	return os.Rename(path+".part", path)
}

const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %s, bindPort: 6443}
nodeRegistration: {name: %s, criSocket: "unix://%s"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
certificatesDir: %s
networking: {podSubnet: %s, serviceSubnet: %s}
apiServer: {certSANs: [127.0.0.1, localhost, kubernetes]}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0}
`
