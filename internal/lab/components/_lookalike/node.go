package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// identity is what a server issues to a node.
type identity struct{ Kubelet, Proxy, CA string }

// serve runs until a part ends or systemd stops the unit.
func serve(server bool) error {
	conf, err := settings()
	if err != nil {
		return err
	}
	bin, err := unpack()
	if err != nil {
		return err
	}
	if err := os.Setenv("PATH", bin+":"+os.Getenv("PATH")); err != nil {
		return err
	}
	// The socket of systemd is for this process alone.
	notify := os.Getenv("NOTIFY_SOCKET")
	os.Unsetenv("NOTIFY_SOCKET")
	f := newFamily(bin)
	err = f.serve(conf, server)
	if err == nil {
		os.Setenv("NOTIFY_SOCKET", notify)
		err = ready()
	}
	if err == nil {
		<-f.ctx.Done()
		err = context.Cause(f.ctx)
	}
	f.end(err)
	f.alive.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (f *family) serve(conf map[string]string, server bool) error {
	var id identity
	local := "https://127.0.0.1:6443"
	if server {
		s := &controlPlane{family: f, conf: conf, tls: at.tls, cred: at.cred}
		if err := s.up(); err != nil {
			return err
		}
		var err error
		if id, err = s.issue(conf["node-name"]); err != nil {
			return err
		}
	} else {
		local = "https://127.0.0.1:6444"
		if err := f.until("the server "+conf["server"], func() (err error) {
			id, err = fetchIdentity(f.ctx, conf)
			return err
		}); err != nil {
			return err
		}
		if err := f.balance("127.0.0.1:6444", conf["server"]); err != nil {
			return err
		}
	}
	if err := f.startNode(conf, id, local); err != nil {
		return err
	}
	if server {
		return f.applyAddons(conf["node-name"])
	}
	return nil
}

// fetchIdentity asks the server. A token without a digest of the authority trusts the server
// blindly, as with the real one.
func fetchIdentity(ctx context.Context, conf map[string]string) (id identity, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, conf["server"]+identityPath+"?name="+url.QueryEscape(conf["node-name"]), nil)
	if err != nil {
		return id, err
	}
	r.Header.Set("Authorization", "Bearer "+conf["token"])
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return id, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return id, fmt.Errorf("the server answered %s", resp.Status)
	}
	return id, json.NewDecoder(resp.Body).Decode(&id)
}

// balance forwards a loopback address to the server's API.
func (f *family) balance(listen, server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				f.end(err)
				return
			}
			go forward(in, net.JoinHostPort(u.Hostname(), "6443"))
		}
	}()
	return nil
}

func forward(in net.Conn, to string) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, in)
		out.Close()
	}()
	_, _ = io.Copy(in, out)
}

// startNode starts the container runtime, imports images, and then starts the kubelet.
func (f *family) startNode(conf map[string]string, id identity, local string) error {
	files := map[string]string{
		at.containerdConfig:      fmt.Sprintf(containerdConfig, at.containerd, at.state, at.socket, conf["pause-image"], at.registries),
		at.kubeletConfig:         fmt.Sprintf(kubeletConfig, at.clientCA, dns, at.staticPods, at.socket),
		at.kubeconfig:            atServer(id.Kubelet, local),
		at.proxyKubeconfig:       atServer(id.Proxy, local),
		at.clientCA:              id.CA,
		at.proxyConfig:           fmt.Sprintf(proxyConfig, at.proxyKubeconfig, conf["node-name"], pods),
		at.images + "/.keep":     "",
		at.registries + "/.keep": "",
	}
	if at.staticPods != "" {
		files[at.staticPods+"/.keep"] = ""
	}
	for path, text := range files {
		if err := put(path, text); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(at.state, 0o711); err != nil {
		return err
	}
	f.start("containerd", "--config", at.containerdConfig)
	if err := f.until("containerd", func() error {
		_, err := f.output("ctr", "--address", at.socket, "version")
		return err
	}); err != nil {
		return err
	}
	if face == "k0s" {
		f.keepImages()
	} else {
		f.importImages(at.images)
	}
	f.start("kubelet", append(at.kubeletFlags, "--kubeconfig="+at.kubeconfig, "--hostname-override="+conf["node-name"], "--node-ip="+conf["node-ip"])...)
	if face != "k0s" {
		f.start("kube-proxy", "--config="+at.proxyConfig)
	}
	return f.until("the kubelet", func() error {
		resp, err := http.Get("http://127.0.0.1:10248/healthz")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// importImages imports the archives of a directory, once. A damaged one is logged and passed
// over, as with the real ones.
func (f *family) importImages(dir string) {
	archives, _ := filepath.Glob(dir + "/*.tar")
	for _, a := range archives {
		if _, err := f.output("ctr", "--address", at.socket, "--namespace", "k8s.io", "images", "import", "--local", a); err != nil {
			fmt.Fprintf(os.Stderr, "image archive passed over: %v\n", err)
		}
	}
}

// atServer replaces the address of the API server in a kubeconfig.
func atServer(kubeconfig, server string) string {
	var out strings.Builder
	for line := range strings.Lines(kubeconfig) {
		if before, _, ok := strings.Cut(line, "server: "); ok {
			line = before + "server: " + server + "\n"
		}
		out.WriteString(line)
	}
	return out.String()
}

// authority of a kubeconfig.
func authority(kubeconfig string) (string, error) {
	_, rest, ok := strings.Cut(kubeconfig, "certificate-authority-data: ")
	if !ok {
		return "", errors.New("the kubeconfig has no authority")
	}
	line, _, _ := strings.Cut(rest, "\n")
	pem, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
	return string(pem), err
}

// put writes a file, if it is new.
func put(path, text string) error {
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

const containerdConfig = `version = 3
root = '%s'
state = '%s'
[grpc]
  address = '%s'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '%s'
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = '%s'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/opt/cni/bin']
    conf_dir = '/etc/cni/net.d'
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
clusterDNS: [%s]
clusterDomain: cluster.local
staticPodPath: %s
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
nodeStatusUpdateFrequency: 5s
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
evictionHard: {memory.available: 100Mi, nodefs.available: 50Mi, imagefs.available: 50Mi}
evictionPressureTransitionPeriod: 10s
`

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %s}
hostnameOverride: %s
clusterCIDR: %s
mode: iptables
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0}
`
