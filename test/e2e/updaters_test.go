package e2e

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/model"
)

// What the test asks of the nodes.
const (
	motd       = "brought by a bundle\n"
	note       = "said by a NodeConfig\n"
	probeUnit  = "edge-probe.service"
	maxPods    = 97
	newPause   = "registry.k8s.io/pause:3.10.2"
	certNode   = "n1"
	rebootNode = "n3"
	site       = "shop" // namespace of what the bundle brings
)

// aged are the certificates that are renewed: a file and a kubeconfig, used by two
// static pods.
var aged = []string{"apiserver-kubelet-client", "scheduler.conf"}

// seen is what a node itself said of one thing that an updater changed.
type seen struct {
	Updater string `json:"updater"`
	Where   string `json:"where"`
	What    string `json:"what"`
	Before  string `json:"before,omitempty"`
	Now     string `json:"now"`
	Wanted  string `json:"wanted"`
	Passed  bool   `json:"passed"`
}

// witness checks nodes and keeps what it saw for results/updaters.json.
type witness struct {
	s        *scenario.Scenario
	observed []seen
	// digests of the programs as they are to be; before is what was there, by node
	// and thing.
	digests, before map[string]string
}

// TestUpdaters moves everything but Kubernetes, on real nodes: files and units,
// programs, network plugins, the sandbox image, the kubelet's configuration,
// certificates, a reboot, cluster resources; each is evaluated by the node itself. Then
// the next bundle prunes what it does not bring.
func TestUpdaters(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("every updater on real nodes takes long: make e2e")
	}
	s := start(t, "updaters", 3)
	w := &witness{s: s, before: map[string]string{}}
	w.keep(t)
	ctx := t.Context()
	first, err := s.MakeBundle(ctx, w.bundle(t, "1.0.0", map[string]string{"settings": "1", "short-lived": "1"}))
	must(t, err)
	dev, err := s.Insert(ctx, s.MediumNode, first)
	must(t, err)
	must(t, s.Install(ctx, first, dev))
	must(t, s.Approve(ctx, first))
	grant(t, s)
	for _, name := range aged {
		must(t, s.AgeCertificate(ctx, certNode, name))
	}
	for _, c := range w.configs() {
		must(t, s.Client.Create(ctx, c))
	}
	w.look(t)

	step(t, "the plan names every updater, and nothing has moved", func(t *testing.T) { w.planned(t, first) })
	must(t, s.Eject(ctx, s.MediumNode, dev))
	step(t, "the update finishes by itself", func(t *testing.T) { must(t, s.Apply(ctx)) })
	step(t, "files, units and a file of a bundle", w.files)
	step(t, "programs and network plugins", w.programs)
	step(t, "the sandbox image", w.sandbox)
	step(t, "the kubelet's configuration", w.kubelet)
	step(t, "certificates", w.certificates)
	step(t, "a reboot, of one node", w.reboots)
	step(t, "cluster resources are applied", func(t *testing.T) {
		w.resource(t, "settings", "1")
		w.resource(t, "short-lived", "1")
		w.resource(t, "early", "1")
	})
	step(t, "the workload runs with all that is new", func(t *testing.T) { w.workload(t) })

	step(t, "the next bundle changes and prunes resources, and no node", func(t *testing.T) {
		next, err := s.MakeBundle(ctx, w.bundle(t, "1.1.0", map[string]string{"settings": "2"}))
		must(t, err)
		dev, err := s.Insert(ctx, s.MediumNode, next)
		must(t, err)
		must(t, s.Approve(ctx, next))
		_, err = s.Prepare(ctx, next)
		must(t, err)
		w.resource(t, "settings", "1") // no user has started it
		w.resource(t, "short-lived", "1")
		must(t, s.Eject(ctx, s.MediumNode, dev))
		must(t, s.Apply(ctx))
		w.resource(t, "settings", "2")
		w.resource(t, "short-lived", "")
		w.resource(t, "early", "1")
	})

	step(t, "an edit of a NodeConfig alone is planned and applied, without a bundle", w.edited)
}

// keep writes what was seen, also after a failure.
func (w *witness) keep(t *testing.T) {
	keepResult(t, "updaters.json", func() any {
		return map[string]any{"kubernetes": from, "steps": played[t.Name()], "seen": w.observed}
	})
}

// bundle has other builds of the nodes' programs, a file for them, and ConfigMaps
// for the cluster: the named ones, and one that comes before the nodes.
func (w *witness) bundle(t *testing.T, version string, values map[string]string) scenario.BundleOptions {
	t.Helper()
	files, digests, err := w.s.RuntimePayloads(t.Context())
	must(t, err)
	w.digests = digests
	files["file.motd"] = w.s.Path("motd")
	must(t, os.WriteFile(files["file.motd"], []byte(motd), 0o644))
	dir := w.s.Path("resources-" + version)
	must(t, os.MkdirAll(dir, 0o755))
	for name, value := range values {
		must(t, os.WriteFile(filepath.Join(dir, name+".yaml"), configMap(name, value, ""), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(dir, "early.yaml"), configMap("early", "1", "annotations: {"+v1alpha1.AnnotationApply+": "+v1alpha1.ApplyBeforeNodes+"}"), 0o644))
	return scenario.BundleOptions{File: "updaters-" + version + ".tar", Version: version, LeaveKubernetes: true, Payloads: files, Resources: dir}
}

func configMap(name, value, more string) []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\n  %s\ndata: {value: %q}\n", name, site, more, value)
}

// grant gives the controller the rights that it has not by itself.
func grant(t *testing.T, s *scenario.Scenario) {
	meta := metav1.ObjectMeta{Namespace: site, Name: "refit-resources"}
	must(t, s.Client.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch", "delete"}}}}))
	must(t, s.Client.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}}}))
}

// configs are the NodeConfigs: one for every node, one for the control plane, one
// for the node that is to reboot.
func (w *witness) configs() []client.Object {
	named := func(name string, spec v1alpha1.NodeConfigSpec) *v1alpha1.NodeConfig {
		return &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	only := func(node string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node}}
	}
	inline := func(path, text string) v1alpha1.NodeFile {
		return v1alpha1.NodeFile{Path: path, Contents: &v1alpha1.FileContents{Inline: &text}}
	}
	boot := inline("/etc/edge/at-boot", "read at boot\n")
	boot.Disruption = v1alpha1.ConfigDisruption(model.DisruptionReboot)
	certs := v1alpha1.NodeConfigSpec{NodeSelector: only(certNode)}
	for _, name := range aged {
		certs.Certificates = append(certs.Certificates, v1alpha1.NodeCertificate{Name: name, DaysLeft: 300})
	}
	return []client.Object{
		named("edge", v1alpha1.NodeConfigSpec{
			Files: []v1alpha1.NodeFile{
				inline("/etc/edge/note", note),
				inline("/etc/sysctl.d/90-edge.conf", "net.ipv4.tcp_keepalive_time = 7201\n"),
				{Path: "/etc/edge/motd", Contents: &v1alpha1.FileContents{Payload: &v1alpha1.PayloadFile{Name: "file.motd", Digest: model.DigestOf([]byte(motd))}}},
			},
			Units: []v1alpha1.NodeUnit{{Name: probeUnit, State: "enabled",
				Contents: "[Unit]\nDescription=a unit of a NodeConfig\n[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"}},
			Kubelet:      &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"maxPods":%d}`, maxPods)},
			SandboxImage: newPause,
		}),
		named("edge-certificates", certs),
		named("edge-boot", v1alpha1.NodeConfigSpec{NodeSelector: only(rebootNode), Files: []v1alpha1.NodeFile{boot}}),
	}
}

// look keeps how the nodes are before anything moves.
func (w *witness) look(t *testing.T) {
	t.Helper()
	for _, n := range w.s.Lab.Nodes() {
		w.before["boot "+n] = w.output(t, n, "cat", "/proc/sys/kernel/random/boot_id")
		w.before["sandbox "+n] = w.sandboxOf(t, n)
		for _, p := range w.programPaths(t, n) {
			w.before[p.name+" "+n] = p.digest
		}
	}
	for _, name := range aged {
		w.before[name] = w.notAfter(t, name).Format(time.RFC3339)
	}
}

func (w *witness) output(t *testing.T, node string, argv ...string) string {
	t.Helper()
	out, err := w.s.Output(t.Context(), node, argv...)
	must(t, err)
	return strings.TrimSpace(out)
}

// saw keeps one look, and fails the test if it is not as wanted.
func (w *witness) saw(t *testing.T, x seen) {
	t.Helper()
	w.observed = append(w.observed, x)
	if !x.Passed {
		t.Errorf("%s, %s: %s is %q, wanted: %s", x.Updater, x.Where, x.What, x.Now, x.Wanted)
	}
}

func (w *witness) same(t *testing.T, updater, where, what, now, wanted string) {
	t.Helper()
	w.saw(t, seen{Updater: updater, Where: where, What: what, Before: w.before[what+" "+where], Now: now, Wanted: wanted, Passed: now == wanted})
}

// planned: the plan has the steps of all updaters, and no node has started any.
func (w *witness) planned(t *testing.T, b scenario.Bundle) {
	_, err := w.s.Prepare(t.Context(), b)
	must(t, err)
	r, err := w.s.Run(t.Context(), "plan", "-o", "json")
	must(t, err)
	var v struct {
		Plan model.Plan `json:"plan"`
	}
	must(t, json.Unmarshal([]byte(r.Stdout), &v))
	wants := map[string][]string{}
	for _, n := range w.s.Lab.Nodes() {
		wants[n] = []string{"programs", "sandbox-image", "kubelet-config", "files"}
	}
	wants[certNode] = append(wants[certNode], "certificates")
	wants[rebootNode] = append(wants[rebootNode], "reboot")
	for _, np := range v.Plan.Nodes {
		var has []string
		for _, s := range np.Steps {
			has = append(has, s.Updater)
		}
		for _, u := range wants[np.Node] {
			if !slices.Contains(has, u) {
				t.Errorf("the plan of node %s has %v, not %s", np.Node, has, u)
			}
		}
		if slices.Contains(has, "kubeadm") || slices.Contains(has, "kubelet") {
			t.Errorf("the plan of node %s moves Kubernetes: %v", np.Node, has)
		}
		delete(wants, np.Node)
	}
	if len(wants) > 0 {
		t.Errorf("nodes that are not in the plan: %v", slices.Collect(maps.Keys(wants)))
	}
	w.resource(t, "early", "") // it comes with the start, not with the plan
	for _, n := range w.s.Lab.Nodes() {
		if err := w.s.Exec(t.Context(), n, "test", "!", "-e", "/etc/edge"); err != nil {
			t.Errorf("a plan has touched node %s: %v", n, err)
		}
	}
}

func (w *witness) files(t *testing.T) {
	for _, n := range w.s.Lab.Nodes() {
		for path, text := range map[string]string{"/etc/edge/note": note, "/etc/edge/motd": motd, "/etc/sysctl.d/90-edge.conf": "net.ipv4.tcp_keepalive_time = 7201\n"} {
			w.same(t, "files", n, path, w.output(t, n, "cat", path), strings.TrimSpace(text))
			w.same(t, "files", n, path+" mode and owner", w.output(t, n, "stat", "-c", "%a %U:%G", path), "644 root:root")
		}
		w.same(t, "files", n, probeUnit, w.output(t, n, "systemctl", "is-active", probeUnit), "active")
		w.same(t, "files", n, probeUnit+" at boot", w.output(t, n, "systemctl", "is-enabled", probeUnit), "enabled")
	}
}

type program struct{ name, path, digest string }

// programPaths are the programs and plugins of a node with their digests now.
func (w *witness) programPaths(t *testing.T, node string) []program {
	t.Helper()
	var out []program
	for _, name := range slices.Sorted(maps.Keys(w.digests)) {
		plugin, is := strings.CutPrefix(name, scenario.PluginsPayload+"/")
		path := "/opt/cni/bin/" + plugin
		if !is {
			path = w.output(t, node, "sh", "-c", "readlink -f $(command -v "+name+")")
		}
		digest, err := w.s.FileDigest(t.Context(), node, path)
		must(t, err)
		out = append(out, program{name, path, digest})
	}
	return out
}

func (w *witness) programs(t *testing.T) {
	for _, n := range w.s.Lab.Nodes() {
		for _, p := range w.programPaths(t, n) {
			updater := "programs"
			if strings.HasPrefix(p.name, scenario.PluginsPayload) {
				updater = "network plugins"
			}
			w.same(t, updater, n, p.name, p.digest, w.digests[p.name])
			if w.before[p.name+" "+n] == p.digest {
				t.Errorf("node %s: %s is what it was, so nothing was shown", n, p.path)
			}
		}
		running, err := w.s.RunningDigest(t.Context(), n, "containerd.service")
		must(t, err)
		w.same(t, "programs", n, "the process of containerd.service", running, w.digests["containerd"])
	}
}

// sandboxOf is what the runtime's configuration comes to.
func (w *witness) sandboxOf(t *testing.T, node string) string {
	t.Helper()
	return w.output(t, node, "sh", "-c", `containerd config dump | sed -n "s/^ *sandbox = ['\"]\(.*\)['\"]$/\1/p"`)
}

func (w *witness) sandbox(t *testing.T) {
	for _, n := range w.s.Lab.Nodes() {
		w.same(t, "sandbox-image", n, "sandbox", w.sandboxOf(t, n), newPause)
	}
}

func (w *witness) kubelet(t *testing.T) {
	for _, n := range w.s.Lab.Nodes() {
		var node corev1.Node
		must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: n}, &node))
		w.same(t, "kubelet-config", n, "maxPods as the kubelet reports it", node.Status.Capacity.Pods().String(), fmt.Sprint(maxPods))
		flags := w.output(t, n, "sh", "-c", "tr '\\0' '\\n' < /proc/$(systemctl show --property=MainPID --value kubelet)/cmdline | grep config-dir || true")
		w.saw(t, seen{Updater: "kubelet-config", Where: n, What: "the kubelet's directory of drop-ins", Now: flags, Wanted: "a --config-dir", Passed: strings.HasPrefix(flags, "--config-dir")})
	}
}

// notAfter is the end of a certificate on the control plane, read from its file.
func (w *witness) notAfter(t *testing.T, name string) time.Time {
	t.Helper()
	path := "/etc/kubernetes/pki/" + name + ".crt"
	if strings.HasSuffix(name, ".conf") {
		path = "/etc/kubernetes/" + name
	}
	data := []byte(w.output(t, certNode, "cat", path))
	if strings.HasSuffix(name, ".conf") {
		var k struct {
			Users []struct {
				User struct {
					Cert string `json:"client-certificate-data"`
				} `json:"user"`
			} `json:"users"`
		}
		must(t, yaml.Unmarshal(data, &k))
		var err error
		data, err = base64.StdEncoding.DecodeString(k.Users[0].User.Cert)
		must(t, err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s on %s is no PEM", path, certNode)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return c.NotAfter.UTC()
}

func (w *witness) certificates(t *testing.T) {
	for _, name := range aged {
		end := w.notAfter(t, name)
		w.saw(t, seen{Updater: "certificates", Where: certNode, What: name, Before: w.before[name], Now: end.Format(time.RFC3339),
			Wanted: "good for 300 days and more", Passed: time.Until(end) > 300*24*time.Hour})
	}
	// Who uses them was started since.
	for pod, file := range map[string]string{"kube-apiserver": "/etc/kubernetes/pki/apiserver-kubelet-client.crt", "kube-scheduler": "/etc/kubernetes/scheduler.conf"} {
		age := w.output(t, certNode, "sh", "-c", fmt.Sprintf("p=$(pgrep -o -x %s) && echo $(($(date +%%s) - $(ps -o etimes= -p $p))) && stat -c %%Y %s", pod, file))
		var started, written int64
		if _, err := fmt.Sscan(age, &started, &written); err != nil {
			t.Fatalf("%s: %q: %v", pod, age, err)
		}
		w.saw(t, seen{Updater: "certificates", Where: certNode, What: "the start of " + pod, Now: time.Unix(started, 0).UTC().Format(time.RFC3339),
			Wanted: "not before " + time.Unix(written, 0).UTC().Format(time.RFC3339), Passed: started+1 >= written}) // both are whole seconds
	}
}

func (w *witness) reboots(t *testing.T) {
	for _, n := range w.s.Lab.Nodes() {
		before, now := w.before["boot "+n], w.output(t, n, "cat", "/proc/sys/kernel/random/boot_id")
		wanted := "the same boot as before"
		if n == rebootNode {
			wanted = "another boot than before"
		}
		w.saw(t, seen{Updater: "reboot", Where: n, What: "boot", Before: before, Now: now, Wanted: wanted, Passed: (now != before) == (n == rebootNode)})
	}
	w.same(t, "files", rebootNode, "/etc/edge/at-boot", w.output(t, rebootNode, "cat", "/etc/edge/at-boot"), "read at boot")
}

// edited: nothing but a NodeConfig changes, and `refit apply` alone brings it to the
// nodes.
func (w *witness) edited(t *testing.T) {
	const other = "edited since\n"
	var c v1alpha1.NodeConfig
	must(t, w.s.Client.Get(t.Context(), client.ObjectKey{Name: "edge"}, &c))
	text := other
	for i := range c.Spec.Files {
		if c.Spec.Files[i].Path == "/etc/edge/note" {
			c.Spec.Files[i].Contents = &v1alpha1.FileContents{Inline: &text}
		}
	}
	must(t, w.s.Client.Update(t.Context(), &c))
	r, err := w.s.Run(t.Context(), "plan", "--wait", "--timeout", "3m")
	must(t, err)
	if r.Code != 0 || !strings.Contains(r.Stdout, "without a bundle") || !strings.Contains(r.Stdout, "file//etc/edge/note") {
		t.Fatalf("plan: exit code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	must(t, w.s.Apply(t.Context()))
	for _, n := range w.s.Lab.Nodes() {
		w.same(t, "files", n, "/etc/edge/note after an edit", w.output(t, n, "cat", "/etc/edge/note"), strings.TrimSpace(other))
	}
	if r, err = w.s.Run(t.Context(), "plan", "--fail-if-noop"); err != nil || r.Code != 7 {
		t.Errorf("plan once more: exit code %d (%v), want 7 for nothing to do", r.Code, err)
	}
}

// resource waits until a ConfigMap that bundles bring has a value, or with an empty
// one is not there: it follows the nodes by a moment.
func (w *witness) resource(t *testing.T, name, value string) {
	t.Helper()
	now := func() (string, error) {
		var cm corev1.ConfigMap
		err := w.s.Client.Get(t.Context(), client.ObjectKey{Namespace: site, Name: name}, &cm)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return cm.Data["value"], err
	}
	eventually(t, 2*time.Minute, "ConfigMap "+name, func() (bool, string) {
		have, err := now()
		return err == nil && have == value, fmt.Sprintf("%q, wanted %q (%v)", have, value, err)
	})
	have, err := now()
	must(t, err)
	w.same(t, "resources", "ConfigMap "+name, "value", have, value)
}

func (w *witness) workload(t *testing.T) {
	eventually(t, 2*time.Minute, "the workload is whole", func() (bool, string) {
		n := 0
		for _, node := range w.s.Lab.Nodes() {
			here, err := w.s.ReadyPods(context.WithoutCancel(t.Context()), node)
			if err != nil {
				return false, err.Error()
			}
			n += here
		}
		return n == scenario.WorkloadReplicas, fmt.Sprintf("%d pods are ready", n)
	})
}
