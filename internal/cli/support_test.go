package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/text"
)

// planted are secrets at the places of a cluster where they are found in practice.
var planted = map[string]string{
	"a Secret":                          "planted-in-a-secret-0",
	"a variable of a container":         "planted-in-a-variable-1",
	"an argument of a container":        "planted-in-an-argument-2",
	"a file of a NodeConfig":            "planted-in-a-file-3",
	"an annotation of another program":  "planted-in-an-annotation-4",
	"what kubectl apply keeps":          "planted-in-last-applied-5",
	"the URL of a boot image stream":    "planted-in-a-url-6",
	"an event":                          "planted-in-an-event-7",
	"a condition of an update":          "eyJhbGciOiJ.eyJwbGFudGVkIjoxfQ.planted8",
	"the log of a step":                 "plntd9.0123456789abcdef",
	"a Content with a node's files":     "planted-in-a-content-11",
	"a ConfigMap":                       "planted-in-a-configmap-12",
	"the reason of a drain's exception": "planted-in-a-reason-13",
}

// A site's archive has none of the secrets of its cluster, and the commands show with it what they
// show in the cluster.
func TestSupportArchive(t *testing.T) {
	p := newPerson(t)
	plantSecrets(p)
	file := filepath.Join(t.TempDir(), "site.tar.gz")
	said := p.types(console.ExitOK, "support", "--output", file)
	if !strings.Contains(said, "Inspect it before you pass it on") {
		t.Error(said)
	}
	files := unpackSupport(t, file)
	for where, secret := range planted {
		for name, data := range files {
			if strings.Contains(data, secret) {
				t.Errorf("the secret of %s is in %s", where, name)
			}
		}
	}
	var h inputs.Support
	if err := json.Unmarshal([]byte(files[inputs.SupportHeader]), &h); err != nil || h.Hidden < 5 || h.Objects["Node"] != 2 || h.Kubernetes == "" {
		t.Errorf("%v: %s", err, files[inputs.SupportHeader])
	}
	// No kubelet runs here, so the log of the controller cannot be read; and no agent.
	if len(h.LeftOut) != 2 || !strings.Contains(h.LeftOut[0].What, "log refit-controller-1") || h.LeftOut[1].What != "journal of w1" {
		t.Errorf("gaps: %v", h.LeftOut)
	}
	if st, err := os.Stat(file); err != nil || st.Size() > maxSupport || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	for _, args := range [][]string{{"status"}, {"status", "-o", "wide"}, {"gate"}, {"explain", "node/w1"}, {"explain", "node/w2", "-o", "json"}, {"plan"}} {
		code, live := p.run(args...)
		gotCode, got := p.run(append(args, "--from", file)...)
		_, got, _ = strings.Cut(got, "\n") // the time of the archive, on standard error
		for range h.LeftOut {
			_, got, _ = strings.Cut(got, "\n") // what is not in it
		}
		if live = text.HideSecrets(live); got != live || gotCode != code || live == "" {
			t.Errorf("refit %s: in the cluster exit %d\n%s\nof the archive exit %d\n%s", strings.Join(args, " "), code, live, gotCode, got)
		}
	}
	for _, line := range []string{"status --watch", "plan --to sha256:1", "plan --wait", "explain node/none"} {
		p.types(console.ExitUsage, append(strings.Fields(line), "--from", file)...)
	}
	p.types(console.ExitUsage, "status", "--from", file+".none")
}

// Fields that are files of the site are hidden with any content; the rest of an object stays.
func TestSupportItem(t *testing.T) {
	t.Parallel()
	for what, o := range map[string]client.Object{
		"a Containerfile": &v1alpha1.OSBuild{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.OSBuildSpec{Containerfile: "RUN login planted"}},
		"a unit":          &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.NodeConfigSpec{Units: []v1alpha1.NodeUnit{{Name: "u.service", Contents: "ExecStart=login planted"}}}},
		"bytes of a file": &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.NodeConfigSpec{Files: []v1alpha1.NodeFile{{Path: "/etc/x", Contents: &v1alpha1.FileContents{Base64: []byte("planted")}}}}},
		"pins with names": &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Type: v1alpha1.ContentPins, Data: `{"token":"planted"}`},
	} {
		item, n, err := supportItem(o)
		if err != nil || n != 1 || !strings.Contains(string(item), `"kept"`) || strings.Contains(string(item), "planted") || strings.Contains(string(item), "cGxhbnRlZA") {
			t.Errorf("%s: %d hidden, %v: %s", what, n, err, item)
		}
	}
	item, n, err := supportItem(&v1alpha1.Content{Type: v1alpha1.ContentPlan, Data: `{"token":"planted"}`})
	if item != nil || n != 1 || err != nil {
		t.Errorf("a plan with a secret is in the archive: %s %v", item, err)
	}
}

// A damaged or foreign file is refused, with what to do.
func TestDamagedSupportArchive(t *testing.T) {
	t.Parallel()
	good := packSupport(t, map[string]string{"support.json": `{"kind":"Support","createdAt":"2026-11-24T12:00:00Z"}`, "objects/Node.json": `{"apiVersion":"v1","kind":"NodeList","items":[]}`})
	for what, data := range map[string]string{
		"nothing":            "",
		"text":               "a letter",
		"cut off":            good[:len(good)-20],
		"without its header": packSupport(t, map[string]string{"objects/Node.json": `{"apiVersion":"v1","kind":"NodeList","items":[]}`}),
		"objects of no kind": packSupport(t, map[string]string{"support.json": `{"kind":"Support","createdAt":"2026-11-24T12:00:00Z"}`, "objects/Node.json": `[1]`}),
		"broken objects":     packSupport(t, map[string]string{"support.json": `{"kind":"Support","createdAt":"2026-11-24T12:00:00Z"}`, "objects/Node.json": `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":1}}]}`}),
	} {
		file := filepath.Join(t.TempDir(), "x.tar.gz")
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := inputs.OpenSupport(file); console.ExitCode(err) != console.ExitVerification || !strings.Contains(err.Error(), "Ask for it again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	file := filepath.Join(t.TempDir(), "x.tar.gz")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := inputs.OpenSupport(file); err != nil {
		t.Error(err)
	}
	gap := packSupport(t, map[string]string{"support.json": `{"kind":"Support","createdAt":"2026-11-24T12:00:00Z","leftOut":[{"what":"Node","why":"forbidden"}]}`})
	if err := os.WriteFile(file, []byte(gap), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &person{t: t}
	if said := p.types(console.ExitBlocked, "explain", "node/w1", "--from", file); !strings.Contains(said, "\nthe archive has no Node: forbidden") {
		t.Error(said)
	}
}

// An archive of a large cluster is cut to its limit and says so; the updates and a log stay whole.
func TestSupportArchiveIsCut(t *testing.T) {
	t.Parallel()
	g := &supportGathering{Support: inputs.Support{CreatedAt: time.Now()}}
	list := func(name string, n, size int) {
		l := &inputs.SupportList{APIVersion: "v1", Kind: name + "List"}
		for i := range n {
			l.Items = append(l.Items, json.RawMessage(fmt.Sprintf(`{"data":%q}`, randomText(size, uint64(i)))))
		}
		g.files = append(g.files, supportFile{name: "objects/" + name + ".json", list: l})
	}
	list("ClusterUpdate", 10, 1000)
	list("Node", 10000, 1000)
	g.files = append(g.files, supportFile{name: "logs/a.log", log: []byte(randomText(1<<20, 1))})
	data, err := g.pack()
	if err != nil || len(data) > maxSupport || len(data) < maxSupport*7/10 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if len(g.LeftOut) != 1 || !strings.Contains(g.LeftOut[0].Why, "of 10000 objects") || len(g.files[0].list.Items) != 10 || len(g.files[2].log) != 1<<20 {
		t.Errorf("%+v", g.LeftOut)
	}
}

// run types a command and returns its exit code and what it printed.
func (p *person) run(args ...string) (int, string) {
	var out bytes.Buffer
	root := rootOf("refit", &options{Access: inputs.Access{Kubeconfig: p.kubeconfig, Out: &out, Err: &out}})
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if err != nil {
		fmt.Fprint(&out, err)
	}
	return console.ExitCode(err), out.String()
}

// plantSecrets makes a cluster in the middle of an update, with secrets.
func plantSecrets(p *person) {
	p.t.Helper()
	ctx := context.Background()
	create := func(o client.Object) {
		p.t.Helper()
		if err := p.Create(ctx, o); err != nil {
			p.t.Fatal(err)
		}
	}
	status := func(o client.Object) {
		p.t.Helper()
		if err := p.controller.Status().Update(ctx, o); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, name := range []string{"w1", "w2"} {
		create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.com/config": "password " + planted["an annotation of another program"],
			corev1.LastAppliedConfigAnnotation: planted["what kubectl apply keeps"]}}})
	}
	for _, ns := range []string{"shop", v1alpha1.SystemNamespace} {
		err := p.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		if client.IgnoreAlreadyExists(err) != nil {
			p.t.Fatal(err)
		}
	}
	create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}, StringData: map[string]string{"a": planted["a Secret"]}})
	create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}, Data: map[string]string{"a": planted["a ConfigMap"]}})
	pod := func(ns, name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": "a"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "a", UID: "u", Controller: new(bool)}}},
			Spec: corev1.PodSpec{NodeName: "w1", Containers: []corev1.Container{{Name: "c", Image: "registry.example/a:1", Args: []string{"--login=" + planted["an argument of a container"]},
				Env: []corev1.EnvVar{{Name: "LOGIN", Value: planted["a variable of a container"]}}}}}}
	}
	create(pod("shop", "a-1"))
	one := intstr.FromInt32(1)
	create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}})
	own := pod(v1alpha1.SystemNamespace, "refit-controller-1")
	create(own)
	own.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c"}}
	if err := p.Status().Update(ctx, own); err != nil {
		p.t.Fatal(err)
	}
	create(&eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, EventTime: metav1.NowMicro(), Action: "Update", Reason: "Failed", Type: "Warning", ReportingController: "refit.dev/refit", ReportingInstance: "i",
		Regarding: corev1.ObjectReference{Kind: "Node", Name: "w1"}, Note: "proxy http://me:" + planted["an event"] + "@proxy:3128 refused"})
	inline := "user = \"" + planted["a file of a NodeConfig"] + "\""
	create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1alpha1.NodeConfigSpec{Files: []v1alpha1.NodeFile{{Path: "/etc/x", Contents: &v1alpha1.FileContents{Inline: &inline}}, {Path: "/etc/y", Contents: &v1alpha1.FileContents{Base64: []byte("bytes of the site")}}}}})
	create(&v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1alpha1.BootImageStreamSpec{URL: &v1alpha1.StreamURL{URL: "https://me:" + planted["the URL of a boot image stream"] + "@streams.example/x.json"}}})
	data := `{"files":[{"data":"` + planted["a Content with a node's files"] + `"}]}`
	if err := p.controller.Create(ctx, &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(v1alpha1.ContentConfig, data)}, Type: v1alpha1.ContentConfig, Data: data}); err != nil {
		p.t.Fatal(err)
	}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "w1"}}
	if err := p.controller.Create(ctx, nu); err != nil {
		p.t.Fatal(err)
	}
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Spec: v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, Bundle: "sha256:" + strings.Repeat("a", 64)}}
	create(u)
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	u.Status = v1alpha1.ClusterUpdateStatus{ObservedGeneration: u.Generation, Phase: v1alpha1.PhaseBlocked, StartedAt: &at, WaitingFor: "the API server said token " + planted["a condition of an update"],
		Checks:   []v1alpha1.GateCheck{{Name: "clock", Result: v1alpha1.CheckWarned}, {Name: "budgets", Result: v1alpha1.CheckClosed}},
		Blockers: []v1alpha1.Blocker{{Object: "Node/w1", Reason: v1alpha1.ReasonAgentHeartbeatLost, Message: "kubeadm join with " + planted["the log of a step"]}},
		Drains:   []v1alpha1.NodeDrain{{Node: "w1", Pods: []v1alpha1.PodDrain{{Pod: "shop/a-1", Fate: v1alpha1.PodRefused, Reason: "password=" + planted["the reason of a drain's exception"], Since: &at}}}}}
	status(u)
}

func unpackSupport(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(data)
	}
}

func packSupport(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// randomText is text that does not compress.
func randomText(n int, seed uint64) string {
	data := make([]byte, n/2)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = r.Read(data)
	return hex.EncodeToString(data)
}
