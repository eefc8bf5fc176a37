package bootimages_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/bootimages"

	"github.com/refit-dev/refit/internal/controller/bootstreams"
)

// site is a real API server with the kinds of Cluster API (its own schemas where
// the lab has built it), and of others that keep every field.
type site struct {
	t     *testing.T
	cfg   *rest.Config
	admin client.Client
	line  *line
	now   time.Time
	r     *bootimages.Reconciler
	// recorder outlives the controller.
	recorder *events.FakeRecorder
}

func newSite(t *testing.T) *site {
	t.Helper()
	cfg := apitest.Start(t)
	s := &site{t: t, cfg: cfg, line: &line{}, now: time.Now().Truncate(time.Second), recorder: events.NewFakeRecorder(10000)}
	s.install()
	s.admin = s.client(cfg)
	for _, o := range access(t) {
		if err := s.admin.Create(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	s.restart()
	return s
}

func access(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objs, err := config.BootImages()
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

func (s *site) client(cfg *rest.Config) client.Client {
	s.t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			s.t.Fatal(err)
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// restart is a controller that remembers nothing, with the rights of an
// installation.
func (s *site) restart() {
	cfg := apitest.As(s.cfg, apitest.ControllerUser)
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { s.line.next = rt; return s.line })
	c := s.client(cfg)
	now := func() time.Time { return s.now }
	s.r = &bootimages.Reconciler{Client: c, Objects: c, Now: now, Events: s.recorder, Metrics: bootimages.NewMetrics(prometheus.NewRegistry()), Streams: &bootstreams.Loader{Client: c, Live: c, Now: now}}
}

// line counts the writes, and cuts at the configured one.
type line struct {
	mu     sync.Mutex
	next   http.RoundTripper
	writes []string
	// cut the write of this number, from 1; after: when it was done already.
	cut   int
	after bool
	// deny is a part of the paths whose writes the API server refuses, "" for none.
	deny string
	// denyRead is a part of the paths that cannot be read, "" for none.
	denyRead string
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.denyRead != "" && r.Method == http.MethodGet && strings.Contains(r.URL.Path, l.denyRead) {
		return nil, errors.New("refused by a test")
	}
	if r.Method == http.MethodGet || r.URL.Query().Get("dryRun") != "" {
		return l.next.RoundTrip(r)
	}
	l.mu.Lock()
	l.writes = append(l.writes, r.Method+" "+r.URL.Path)
	n := len(l.writes)
	l.mu.Unlock()
	if l.cut != 0 && n >= l.cut && !l.after {
		return nil, errors.New("cut before it")
	}
	if l.cut != 0 && n > l.cut {
		return nil, errors.New("cut")
	}
	if l.deny != "" && strings.Contains(r.URL.Path, l.deny) {
		return nil, errors.New("refused by a test")
	}
	resp, err := l.next.RoundTrip(r)
	if l.cut == n && l.after && err == nil {
		_ = resp.Body.Close()
		return nil, errors.New("cut after it")
	}
	return resp, err
}

// look lets the controller look once and returns what it wrote.
func (s *site) look() []string {
	s.t.Helper()
	s.line.writes = nil
	if _, err := s.r.Reconcile(context.Background(), ctrl.Request{}); err != nil {
		s.t.Fatal(err)
	}
	return s.line.writes
}

// install the machine kinds.
func (s *site) install() {
	s.t.Helper()
	var crds []*apiextensionsv1.CustomResourceDefinition
	have := map[string]bool{}
	for _, c := range clusterAPI(s.t) {
		crds = append(crds, c)
		have[c.Name] = true
	}
	for _, k := range []struct {
		group, version, kind, plural string
	}{
		{"cluster.x-k8s.io", "v1beta2", "MachineDeployment", "machinedeployments"}, {"cluster.x-k8s.io", "v1beta2", "MachineSet", "machinesets"},
		{"cluster.x-k8s.io", "v1beta2", "MachinePool", "machinepools"}, {"cluster.x-k8s.io", "v1beta2", "Machine", "machines"}, {"machine.openshift.io", "v1beta1", "Machine", "machines"}, {"controlplane.cluster.x-k8s.io", "v1beta2", "KubeadmControlPlane", "kubeadmcontrolplanes"},
		{"infrastructure.cluster.x-k8s.io", "v1beta2", "AWSMachineTemplate", "awsmachinetemplates"}, {"infrastructure.cluster.x-k8s.io", "v1beta2", "AWSMachine", "awsmachines"},
		{"infrastructure.cluster.x-k8s.io", "v1beta2", "AWSMachinePool", "awsmachinepools"},
		{"infrastructure.cluster.x-k8s.io", "v1", "MyTemplate", "mytemplates"},
		{"cluster.x-k8s.io", "v1beta2", "Cluster", "clusters"}, {"infrastructure.cluster.x-k8s.io", "v1beta2", "AWSCluster", "awsclusters"},
		{"infrastructure.cluster.x-k8s.io", "v1beta1", "VSphereMachineTemplate", "vspheremachinetemplates"},
		{"infrastructure.cluster.x-k8s.io", "v1beta1", "VSphereMachine", "vspheremachines"},
		{"machine.openshift.io", "v1beta1", "MachineSet", "machinesets"}, {"machine.openshift.io", "v1", "ControlPlaneMachineSet", "controlplanemachinesets"},
		{"karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses"}, {"karpenter.sh", "v1", "NodePool", "nodepools"},
	} {
		if name := k.plural + "." + k.group; !have[name] {
			crds = append(crds, open(k.group, k.version, k.kind, k.plural))
		}
	}
	if _, err := envtest.InstallCRDs(s.cfg, envtest.CRDInstallOptions{CRDs: crds}); err != nil {
		s.t.Fatal(err)
	}
}

// clusterAPI reads the published schemas that the lab has, if it has been built.
func clusterAPI(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	home, _ := os.UserHomeDir()
	files, _ := filepath.Glob(filepath.Join(home, ".cache/refit/lab/bin/cluster-api-*/crds/*/*.yaml"))
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, f := range files {
		name := filepath.Base(f)
		if !strings.Contains(name, "_machinedeployments.") && !strings.Contains(name, "_machinesets.") && !strings.Contains(name, "_kubeadmcontrolplanes.") && !strings.Contains(name, "_machines.") && !strings.Contains(name, "_machinepools.") {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(data), "\n---") {
			c := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal([]byte(strings.TrimPrefix(doc, "---")), c); err != nil {
				t.Fatal(err)
			}
			if c.Name == "" {
				continue
			}
			var stored []apiextensionsv1.CustomResourceDefinitionVersion
			for _, v := range c.Spec.Versions {
				if v.Storage {
					stored = append(stored, v)
				}
			}
			c.Spec.Versions, c.Spec.Conversion = stored, nil
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		t.Log("Cluster API's own schemas are not here (run `make test-capi` once): its kinds keep every field")
	}
	return out
}

// open is a kind whose schema keeps every field.
func open(group, version, kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	yes := true
	scope := apiextensionsv1.NamespaceScoped
	if strings.HasPrefix(group, "karpenter") {
		scope = apiextensionsv1.ClusterScoped
	}
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	var sub *apiextensionsv1.CustomResourceSubresources
	if kind == "Machine" {
		schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{"status": conditions()}
		sub = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	}
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: scope, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: version, Served: true, Storage: true,
			Subresources: sub, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}}}}
}

// conditions as Machines have them: a list with the type as key. The severity is OpenShift's.
func conditions() apiextensionsv1.JSONSchemaProps {
	yes, byType, text := true, "map", apiextensionsv1.JSONSchemaProps{Type: "string"}
	item := &apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"type", "status", "lastTransitionTime"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"type": text, "status": text, "severity": text, "reason": text, "message": text, "lastTransitionTime": {Type: "string", Format: "date-time"}}}
	return apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"conditions": {Type: "array", XListType: &byType, XListMapKeys: []string{"type"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: item}}}}
}

// make creates objects from YAML.
func (s *site) make(text string) {
	s.t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			s.t.Fatalf("%s: %v", doc, err)
		}
		if err := s.admin.Create(context.Background(), u, client.FieldOwner("person")); err != nil {
			s.t.Fatalf("create %s: %v", u.GetName(), err)
		}
	}
}

func (s *site) get(apiVersion, kind, ns, name string) *unstructured.Unstructured {
	s.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, u); err != nil {
		s.t.Fatal(err)
	}
	return u
}

func (s *site) list(apiVersion, kind, ns string) []unstructured.Unstructured {
	s.t.Helper()
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion(apiVersion)
	l.SetKind(kind + "List")
	if err := s.admin.List(context.Background(), l, client.InNamespace(ns)); err != nil {
		s.t.Fatal(err)
	}
	return l.Items
}

// merge patches an object as another client.
func (s *site) merge(o *unstructured.Unstructured, who, patch string) {
	s.t.Helper()
	if err := s.admin.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(who)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) source(name string) *v1alpha1.MachineSource {
	s.t.Helper()
	o := &v1alpha1.MachineSource{}
	if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *site) policy(name string) *v1alpha1.BootImagePolicy {
	s.t.Helper()
	o := &v1alpha1.BootImagePolicy{}
	if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// says is a condition as "status reason message".
func says(cs []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(cs, kind)
	if c == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

func (s *site) expect(what, got string, parts ...string) {
	s.t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			s.t.Errorf("%s: want %q in: %s", what, p, got)
		}
	}
}

// node joins, and its agent reports the installed image.
func (s *site) node(name, version, installed string, labels map[string]string) {
	s.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := s.admin.Create(context.Background(), n); err != nil {
		s.t.Fatal(err)
	}
	n.Status = corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version, Architecture: "amd64"}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	if err := s.admin.Status().Update(context.Background(), n); err != nil {
		s.t.Fatal(err)
	}
	if installed == "" {
		return
	}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}}
	if err := s.client(apitest.As(s.cfg, apitest.ControllerUser)).Create(context.Background(), nu); err != nil {
		s.t.Fatal(err)
	}
	nu.Status.Observed = &v1alpha1.Observed{InstalledImage: installed}
	if err := s.client(apitest.AsNode(s.cfg, name)).Status().Update(context.Background(), nu); err != nil {
		s.t.Fatal(err)
	}
}

// without is the JSON of an object's spec with some texts set to the same word.
func without(t *testing.T, o *unstructured.Unstructured, texts ...string) string {
	t.Helper()
	data, err := json.Marshal(o.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range texts {
		data = bytes.ReplaceAll(data, []byte(x), []byte("IMAGE"))
	}
	return string(data)
}
