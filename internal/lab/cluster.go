package lab

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/refit-dev/refit/internal/distribution"
)

//go:embed templates
var templates embed.FS

// kubeadmValues is what the templates are filled with, for one node.
type kubeadmValues struct {
	Lab, Name, Address, Version, Endpoint string
	Socket                                string // of the container runtime
	Token, CertificateKey                 string
	PodNetwork, ServiceNetwork            string
	ControlPlane                          bool
	// Taints with which a node registers: keys, with effect NoSchedule.
	Taints []string
	// Alone: there are no workers, so the control planes run everybody's pods.
	Alone bool
	// Several: there are other API servers, so one that ends lets a load balancer notice.
	Several bool
}

func (v kubeadmValues) fill(name string) ([]byte, error) {
	t, err := template.ParseFS(templates, "templates/"+name)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	err = t.Execute(&text, v)
	return []byte(text.String()), err
}

func (l *Lab) kubeadmValues() (kubeadmValues, error) {
	random := make([]byte, 43)
	if _, err := rand.Read(random); err != nil {
		return kubeadmValues{}, err
	}
	secret := hex.EncodeToString(random)
	return kubeadmValues{Lab: l.Name, Version: l.Config.Version, Endpoint: l.Config.Endpoint,
		Token: secret[64:70] + "." + secret[70:86], CertificateKey: secret[:64],
		PodNetwork: podNetwork, ServiceNetwork: ServiceNetwork, Alone: len(l.Workers()) == 0, Several: len(l.Config.ControlPlanes) > 1}, nil
}

// of is v for the node with that number.
func (v kubeadmValues) of(number int, controlPlanes int) kubeadmValues {
	v.Name, v.Address, v.ControlPlane = nodeName(number), nodeAddress(number), number <= controlPlanes
	return v
}

// initialize makes the first control plane and the administrator's kubeconfig.
func (l *Lab) initialize(ctx context.Context, v kubeadmValues) error {
	v.Socket = l.Socket(v.Name)
	config, err := v.fill("init.yaml")
	if err != nil {
		return err
	}
	if err := l.WriteFile(ctx, v.Name, "/root/kubeadm.yaml", config, 0o600); err != nil {
		return err
	}
	argv := []string{"kubeadm", "init", "--config", "/root/kubeadm.yaml"}
	if len(l.Config.ControlPlanes) > 1 {
		argv = append(argv, "--upload-certs")
	}
	if err := l.kubeadm(ctx, v.Name, argv...); err != nil {
		return err
	}
	admin, err := l.Output(ctx, v.Name, "cat", "/etc/kubernetes/admin.conf")
	if err != nil {
		return err
	}
	return l.writeKubeconfig([]byte(admin))
}

// kubeadm runs kubeadm in a node; all it says is kept in the lab's directory.
func (l *Lab) kubeadm(ctx context.Context, node string, argv ...string) error {
	path := filepath.Join(l.nodeDir(node), "kubeadm.log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := l.Exec(ctx, node, nil, log, log, argv...); err != nil {
		said, _ := os.ReadFile(path)
		return fmt.Errorf("%s on node %s failed: %w; the end of %s:\n%s", strings.Join(argv[:2], " "), node, err, path, lastLines(string(said), 15))
	}
	return nil
}

// writeKubeconfig makes of a node's admin.conf one that goes through the
// forwarder. The certificate does not know 127.0.0.1, but it knows this name.
func (l *Lab) writeKubeconfig(admin []byte) error {
	config, err := clientcmd.Load(admin)
	if err != nil {
		return err
	}
	for _, c := range config.Clusters {
		c.Server, c.TLSServerName = "https://"+l.Config.Listen, "kubernetes"
	}
	return clientcmd.WriteToFile(*config, l.Kubeconfig())
}

// discovery is a kubeconfig that lets a node find and trust the cluster.
// A token alone would do, but then a join waits until the controller manager
// has signed the cluster's description, and looks for that every 5 s only.
func (l *Lab) discovery(token string) ([]byte, error) {
	admin, err := clientcmd.LoadFromFile(l.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config := api.NewConfig()
	for _, c := range admin.Clusters {
		config.Clusters["lab"] = &api.Cluster{Server: "https://" + l.Config.Endpoint, CertificateAuthorityData: c.CertificateAuthorityData}
	}
	config.AuthInfos["joining"] = &api.AuthInfo{Token: token}
	config.Contexts["lab"] = &api.Context{Cluster: "lab", AuthInfo: "joining"}
	config.CurrentContext = "lab"
	return clientcmd.Write(*config)
}

// joinAll joins control planes one after the other (each is a member of etcd), then all workers at once.
func (l *Lab) joinAll(ctx context.Context, v kubeadmValues) error {
	discovery, err := l.discovery(v.Token)
	if err != nil {
		return err
	}
	planes := len(l.Config.ControlPlanes)
	for number := 2; number <= planes; number++ {
		if err := l.join(ctx, v.of(number, planes), discovery); err != nil {
			return err
		}
	}
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(8)
	for number := planes + 1; number <= len(l.joined()); number++ {
		workers.Go(func() error { return l.join(ctx, v.of(number, planes), discovery) })
	}
	return workers.Wait()
}

// joined are the nodes that are, or are to be, nodes of the cluster.
func (l *Lab) joined() []string {
	return slices.DeleteFunc(l.Nodes(), func(name string) bool { return slices.Contains(l.Config.Later, name) })
}

// Join has a node join that was left out (Options.Later), and waits until all
// nodes are Ready. Its kubelet registers with these taints: keys, with effect
// NoSchedule.
func (l *Lab) Join(ctx context.Context, node string, taints ...string) error {
	number := slices.Index(l.Config.Nodes, node) + 1
	if !slices.Contains(l.Config.Later, node) {
		return fmt.Errorf("lab %s has no node %s that is to join later", l.Name, node)
	}
	v, err := l.kubeadmValues()
	if err != nil {
		return err
	}
	token, err := l.Output(ctx, nodeName(1), "kubeadm", "token", "create", "--ttl", "10m")
	if err != nil {
		return err
	}
	v.Token, v.Taints = strings.TrimSpace(token), taints
	discovery, err := l.discovery(v.Token)
	if err != nil {
		return err
	}
	if err := l.join(ctx, v.of(number, len(l.Config.ControlPlanes)), discovery); err != nil {
		return err
	}
	l.Config.Later = slices.DeleteFunc(l.Config.Later, func(name string) bool { return name == node })
	if err := l.Config.Save(l.Dir); err != nil {
		return err
	}
	return l.WaitReady(ctx)
}

func (l *Lab) join(ctx context.Context, v kubeadmValues, discovery []byte) error {
	v.Socket = l.Socket(v.Name)
	config, err := v.fill("join.yaml")
	if err != nil {
		return err
	}
	if err := l.WriteFile(ctx, v.Name, "/root/discovery.conf", discovery, 0o600); err != nil {
		return err
	}
	if err := l.WriteFile(ctx, v.Name, "/root/join.yaml", config, 0o600); err != nil {
		return err
	}
	return l.kubeadm(ctx, v.Name, "kubeadm", "join", "--config", "/root/join.yaml")
}

// heartbeat is how often a wait that goes on says what it waits for.
const heartbeat = 10 * time.Second

// waitFor asks again and again until done says "" instead of what is missing.
func waitFor(ctx context.Context, what string, say func(string, ...any), done func(context.Context) (missing string)) error {
	missing, reported := "not checked yet", time.Now()
	for {
		if time.Since(reported) > heartbeat {
			say("waiting for %s: %s ...", what, missing)
			reported = time.Now()
		}
		ask, cancel := context.WithTimeout(ctx, 5*time.Second)
		now := done(ask)
		cancel()
		if now == "" {
			return nil
		}
		if ctx.Err() == nil {
			missing = now
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for %s: %s: %w", what, missing, err)
		}
	}
}

// WaitReady waits until every node is Ready.
func (l *Lab) WaitReady(ctx context.Context) error {
	return l.waitReady(ctx, func(string, ...any) {})
}

func (l *Lab) waitReady(ctx context.Context, say func(string, ...any)) error {
	client, err := l.client()
	if err != nil {
		return err
	}
	return waitFor(ctx, "the nodes", say, func(ctx context.Context) string {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		ready := map[string]bool{}
		for _, n := range list.Items {
			ready[n.Name] = isReady(n)
		}
		for _, name := range l.joined() {
			if !ready[name] {
				return "node " + name + " is not Ready"
			}
		}
		return ""
	})
}

func isReady(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// waitAddons waits for kube-proxy on every node and for CoreDNS.
func (l *Lab) waitAddons(ctx context.Context, say func(string, ...any)) error {
	client, err := l.client()
	if err != nil {
		return err
	}
	return waitFor(ctx, "kube-proxy and CoreDNS", say, func(ctx context.Context) string {
		if d := l.Config.Distribution; d != "" && d != distribution.K0s { // kube-proxy is no pod there
			return dnsMissing(ctx, client)
		}
		proxy, err := client.AppsV1().DaemonSets("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got, want := proxy.Status.NumberReady, len(l.joined()); int(got) < want {
			return fmt.Sprintf("kube-proxy is ready on %d of %d nodes", got, want)
		}
		return dnsMissing(ctx, client)
	})
}

func dnsMissing(ctx context.Context, client *kubernetes.Clientset) string {
	dns, err := client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return deploymentMissing(dns)
}

func deploymentMissing(d *appsv1.Deployment) string {
	if d.Status.ReadyReplicas < *d.Spec.Replicas {
		return fmt.Sprintf("%d of %d pods of %s are ready", d.Status.ReadyReplicas, *d.Spec.Replicas, d.Name)
	}
	return ""
}

func (l *Lab) client() (*kubernetes.Clientset, error) {
	c, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(c)
}
