package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/cli"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/oci"
)

const (
	release, namespace = "refit", "kube-system"
	image              = "registry.example/refit"
	patience           = time.Minute
)

// site is an API server on which a person runs helm.
type site struct {
	*testing.T
	cfg    *rest.Config
	admin  client.Client
	helm   *action.Configuration
	mapper meta.ResettableRESTMapper
	// stop ends the controller.
	stop func()
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, cfg: apitest.StartEmpty(t)}
	d, err := discovery.NewDiscoveryClientForConfig(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	cached := memory.NewMemCacheClient(d)
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(cached)
	if s.admin, err = client.New(s.cfg, client.Options{}); err != nil {
		t.Fatal(err)
	}
	s.helm = &action.Configuration{}
	if err := s.helm.Init(getter{s.cfg, cached, s.mapper}, namespace, "secret", func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	return s
}

// getter has what helm finds in a kubeconfig.
type getter struct {
	cfg    *rest.Config
	cached discovery.CachedDiscoveryInterface
	mapper meta.RESTMapper
}

func (g getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.cfg), nil }
func (g getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.cached, nil
}
func (g getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }
func (getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	c := clientcmdapi.NewConfig()
	c.Contexts["c"] = &clientcmdapi.Context{Namespace: namespace}
	c.CurrentContext = "c"
	return clientcmd.NewDefaultClientConfig(*c, &clientcmd.ConfigOverrides{})
}

func (s *site) load(path string) *chart.Chart {
	s.Helper()
	c, err := loader.Load(path)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// current is this version's chart; a number tells its version from the previous one.
func (s *site) current() *chart.Chart {
	c := s.load(filepath.Join("..", "..", "charts", "refit"))
	c.Metadata.Version, c.Metadata.AppVersion = "99.0.0", "99.0.0"
	return c
}

// fromBundle is this version's chart as a site gets it: packed, carried in a bundle with refit's
// image, and taken out again.
func (s *site) fromBundle() *chart.Chart {
	s.Helper()
	dir := s.TempDir()
	packed, err := chartutil.Save(s.current(), dir)
	if err != nil {
		s.Fatal(err)
	}
	programs := filepath.Join(dir, "programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		s.Fatal(err)
	}
	for _, name := range oci.SelfImage.Programs {
		if err := os.WriteFile(filepath.Join(programs, name), []byte(name), 0o755); err != nil {
			s.Fatal(err)
		}
	}
	layout, file, out := filepath.Join(dir, "image"), filepath.Join(dir, "release.bundle"), filepath.Join(dir, "taken-out.tgz")
	if _, _, err := oci.SelfImage.Write(programs, layout, "99.0.0"); err != nil {
		s.Fatal(err)
	}
	s.refit("bundle", "create", "--unsigned", "--output", file, "oci:"+layout, "payload:refit-chart="+packed)
	said := s.refit("bundle", "extract", file, "refit-chart", "--output", out)
	if want := "helm install refit " + out + " --namespace kube-system"; !strings.Contains(said, want) {
		s.Errorf("refit bundle extract does not say %q: %s", want, said)
	}
	return s.load(out)
}

// refit runs a command of refit that must succeed, and returns what it says to people.
func (s *site) refit(args ...string) string {
	s.Helper()
	var said bytes.Buffer
	c := cli.New("refit")
	c.SetArgs(args)
	c.SetOut(io.Discard)
	c.SetErr(&said)
	if err := c.ExecuteContext(s.Context()); err != nil {
		s.Fatalf("refit %v: %v\n%s", args, err, said.String())
	}
	return said.String()
}

func (s *site) previous() *chart.Chart {
	return s.load(filepath.Join("testdata", "previous-chart.tgz"))
}

func (s *site) install(c *chart.Chart, values map[string]any) error {
	s.Helper()
	i := action.NewInstall(s.helm)
	i.ReleaseName, i.Namespace = release, namespace
	_, err := i.RunWithContext(s.Context(), c, values)
	s.mapper.Reset()
	return err
}

func (s *site) upgrade(c *chart.Chart, values map[string]any, how func(*action.Upgrade)) {
	s.Helper()
	u := action.NewUpgrade(s.helm)
	u.Namespace = namespace
	how(u)
	if _, err := u.RunWithContext(s.Context(), release, c, values); err != nil {
		s.Fatalf("helm upgrade: %v", err)
	}
	s.mapper.Reset()
}

func (s *site) uninstall() {
	s.Helper()
	u := action.NewUninstall(s.helm)
	if _, err := u.Run(release); err != nil {
		s.Fatalf("helm uninstall: %v", err)
	}
	s.mapper.Reset()
}

// all has the objects of refit by kind, namespace and name. Their names or namespaces are refit's;
// they are of any kind that the server has, but for events and leases.
func (s *site) all() map[string]*unstructured.Unstructured {
	s.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(s.cfg)
	if err != nil {
		s.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		s.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			s.Fatal(err)
		}
		for _, r := range l.APIResources {
			if slices.Contains(r.Verbs, "list") && r.Kind != "Event" && r.Kind != "Lease" {
				s.list(gv.WithKind(r.Kind), out)
			}
		}
	}
	return out
}

func (s *site) list(gvk schema.GroupVersionKind, out map[string]*unstructured.Unstructured) {
	s.Helper()
	var l unstructured.UnstructuredList
	l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err := s.admin.List(context.Background(), &l)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return // a kind that is going
	}
	if err != nil {
		s.Fatalf("list %s: %v", gvk.Kind, err)
	}
	for i := range l.Items {
		o := &l.Items[i]
		if isOfRefit(o) {
			out[key(o)] = o
		}
	}
}

func isOfRefit(o *unstructured.Unstructured) bool {
	return strings.Contains(o.GetName(), "refit") || strings.HasPrefix(o.GetNamespace(), "refit-") || strings.HasSuffix(o.GroupVersionKind().Group, "refit.dev")
}

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// expect waits until the cluster has exactly the objects of an installation, and more.
func (s *site) expect(when string, want []*unstructured.Unstructured, more ...string) {
	s.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		wrong := s.differences(want, more)
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s:\n%s", when, strings.Join(wrong, "\n"))
		}
	}
}

func (s *site) differences(want []*unstructured.Unstructured, more []string) []string {
	have := s.all()
	var out []string
	for _, o := range want {
		if have[key(o)] == nil {
			out = append(out, "missing: "+key(o))
		}
		delete(have, key(o))
	}
	for k, o := range have {
		at := slices.IndexFunc(more, func(m string) bool { return strings.HasPrefix(k, m) })
		if at < 0 && o.GetDeletionTimestamp() == nil { // no controller ends the deletion of a namespace here
			out = append(out, "left over: "+k)
		}
	}
	return out
}

// field reads a field of an object, as JSON.
func (s *site) field(apiVersion, kind, ns, name string, path ...string) string {
	s.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, u); err != nil {
		s.Fatal(err)
	}
	v, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		s.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

func (s *site) create(o map[string]any) {
	s.Helper()
	u := &unstructured.Unstructured{Object: o}
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) { // a new kind is served a moment later
		if err = s.admin.Create(context.Background(), u); err == nil || !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	if err != nil {
		s.Fatalf("create %s: %v", key(u), err)
	}
}

func (s *site) static() []*unstructured.Unstructured {
	s.Helper()
	objects, err := config.Static(image + ":99.0.0")
	if err != nil {
		s.Fatal(err)
	}
	return objects
}

// serversOwn are objects that the API server, or helm, makes in the namespaces.
var serversOwn = []string{"ConfigMap refit-", "ServiceAccount refit-", "APIService /v1alpha1.refit.dev", "Secret kube-system/sh.helm.release.v1.refit."}

// Helm upgrades the previous version of refit with the values of that version. What is new comes,
// what changed changes, and this version carries on with the objects of the previous one. The
// uninstall leaves nothing.
func TestUpgradeFromPreviousChart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	values := map[string]any{"image": map[string]any{"repository": image, "tag": "1"}, "controller": map[string]any{"args": []any{"-v=1"}}}
	if err := s.install(s.previous(), values); err != nil {
		t.Fatalf("helm install of the previous chart: %v", err)
	}
	previous := s.storePrevious()
	kind := func(path ...string) string {
		return s.field("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "updatepools.refit.dev", append([]string{"spec"}, path...)...)
	}
	if strings.Contains(kind("versions"), "healthChecks") {
		t.Fatal("the previous chart is as new as this one: it shows nothing")
	}

	// A person who upgrades with --reuse-values has no default of a value that is new.
	s.upgrade(s.current(), map[string]any{"image": map[string]any{"repository": image, "tag": "99.0.0"}}, func(u *action.Upgrade) { u.ReuseValues = true })
	var mine []string
	for _, o := range previous {
		mine = append(mine, key(o))
	}
	s.expect("helm upgrade", s.static(), append(mine, serversOwn...)...)
	spec := s.field("apps/v1", "Deployment", "refit-system", "refit-controller", "spec", "template", "spec")
	for _, want := range []string{image + ":99.0.0", `"secretName":"refit-notifications"`, `"-v=1"`} {
		if !strings.Contains(spec, want) {
			t.Errorf("helm upgrade: no %s in %s", want, spec)
		}
	}
	if !strings.Contains(kind("versions"), "healthChecks") {
		t.Error("helm upgrade: the kind UpdatePool has no new field")
	}
	s.checkCarriedOn(previous)
	s.stop()
	s.uninstall()
	// No controller of Kubernetes runs here, which would delete what is in the namespaces.
	s.expect("helm uninstall", nil, append(serversOwn[:2:2], "Secret refit-system/refit-controller-key", "Role refit-nodes/refit:node:", "RoleBinding refit-nodes/refit:node:")...)
}

// The chart of a bundle installs what `refit install` does, an upgrade removes the areas that are
// switched off, and the uninstall leaves nothing.
func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := s.install(s.current(), map[string]any{"replicas": 2}); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Fatalf("a value that the chart does not know: %v", err)
	}
	values := map[string]any{"image": map[string]any{"repository": image}}
	if err := s.install(s.fromBundle(), values); err != nil {
		t.Fatalf("helm install: %v", err)
	}
	s.expect("helm install", s.static(), serversOwn...)
	if err := s.install(s.current(), values); err == nil {
		t.Error("a second installation of the same name is no error")
	}
	off := chartutil.CoalesceTables(map[string]any{"areas": map[string]any{"bootImages": false, "osImages": false, "imageTags": false, "clusterAPI": false}, "agents": map[string]any{"daemonSet": false}}, values)
	s.upgrade(s.current(), off, func(*action.Upgrade) {})
	manifests, err := config.Manifests(image + ":99.0.0")
	if err != nil {
		t.Fatal(err)
	}
	every, err := areas.Parse(areas.Names())
	if err != nil {
		t.Fatal(err)
	}
	s.expect("helm upgrade without areas", config.Without(manifests, every), serversOwn...)
	s.uninstall()
	s.expect("helm uninstall", nil, serversOwn[:2]...)
}
