package imagecmd

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
)

// siteOf is two nodes of pool edge, one of no pool, and an image that was built.
func siteOf(t *testing.T, more ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	edge := map[string]string{"pool": "edge"}
	objects := []client.Object{
		&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: edge}, OSImage: "edge"}},
		&v1alpha1.OSBuild{ObjectMeta: metav1.ObjectMeta{Name: "edge-2"}, Status: v1alpha1.OSBuildStatus{Digest: "sha256:2"}},
	}
	for name, l := range map[string]map[string]string{"n1": edge, "n2": edge, "other": nil} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}})
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(append(objects, more...)...).Build()
}

func reporting(name, stock, history, running string) *v1alpha1.NodeUpdate {
	return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.NodesNamespace}, Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{
		Fields: map[string]string{model.FieldOSDriver: "bootc", model.FieldOSStock: stock, model.FieldOSHistory: history, model.FieldOSImage: running}}}}
}

// What the nodes of a pool booted, in order, with the build and how it went; an entry in a form that
// is not known here is left out.
func TestHistory(t *testing.T) {
	t.Parallel()
	c := siteOf(t,
		reporting("n1", "r/stock@sha256:0", "2026-01-02T00:00:00Z r/os@sha256:1; 2026-02-02T00:00:00Z r/os@sha256:2", "sha256:2"),
		reporting("n2", "r/stock@sha256:0", "2026-01-01T00:00:00Z r/os@sha256:1; soon r/os@sha256:9; 2026-02-03T00:00:00Z r/os@sha256:2 failed; 2026-02-03T00:10:00Z r/os@sha256:1 returned", "sha256:1"),
		reporting("other", "none: the deployment 4f is from no image", "", "sha256:7"),
		&v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "silent", Namespace: v1alpha1.NodesNamespace}})
	v, err := readHistory(t.Context(), c, "", "")
	if err != nil || len(v.Nodes) != 3 || len(v.Pools) != 2 {
		t.Fatalf("%+v %v", v, err)
	}
	var b bytes.Buffer
	if err := v.table(&b, false); err != nil {
		t.Fatal(err)
	}
	want := `POOL  IMAGE                                     BUILD   FIRST                 LAST                  BOOTED  RUNNING  FAILED  STOCK
-     none: the deployment 4f is from no image  -       -                     -                     0       0        0       1
-     sha256:7                                  -       -                     -                     0       1        0       0
edge  r/stock@sha256:0                          -       -                     -                     0       0        0       2
edge  r/os@sha256:1                             -       2026-01-01T00:00:00Z  2026-02-03T00:10:00Z  2       1        0       0
edge  r/os@sha256:2                             edge-2  2026-02-02T00:00:00Z  2026-02-03T00:00:00Z  2       1        1       0
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	v, err = readHistory(t.Context(), c, "edge", "n2")
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := v.table(&b, true); err != nil {
		t.Fatal(err)
	}
	want = `BOOTED                IMAGE             RESULT
-                     r/stock@sha256:0  stock
2026-01-01T00:00:00Z  r/os@sha256:1     good
2026-02-03T00:00:00Z  r/os@sha256:2     failed
2026-02-03T00:10:00Z  r/os@sha256:1     returned
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	for _, no := range [][2]string{{"nothing", ""}, {"", "silent"}, {"edge", "other"}} {
		if _, err := readHistory(t.Context(), c, no[0], no[1]); console.ExitCode(err) != console.ExitUsage {
			t.Errorf("%v: %v", no, err)
		}
	}
}

// Where the files of a pool are: what the image has, what is newer than the image, and what the
// agent writes.
func TestFiles(t *testing.T) {
	t.Parallel()
	file := func(path, data string) model.ConfigFile {
		return model.ConfigFile{Path: path, Mode: 0o644, Data: []byte(data)}
	}
	held := model.NodeConfig{Version: model.ConfigVersion, Files: []model.ConfigFile{file("/etc/a", "1"), file("/etc/b", "1"), file("/usr/share/c", "1")}, OS: &model.ConfigOS{KernelArguments: []string{"x=1"}}}
	wanted, vs := osimage.OnNode(model.NodeConfig{Version: model.ConfigVersion, Files: []model.ConfigFile{file("/etc/a", "1"), file("/etc/b", "2"), file("/etc/hostname", "n"), file("/etc/new", "1"), file("/usr/share/c", "1")}}, held)
	if len(vs) > 0 {
		t.Fatal(vs)
	}
	content := func(kind, data string) *v1alpha1.Content {
		return &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ContentName(kind, data), Namespace: v1alpha1.NodesNamespace}, Type: kind, Data: data}
	}
	config, os := content(v1alpha1.ContentConfig, string(wanted.JSON())), content(v1alpha1.ContentOSConfig, string(osimage.SealConfig(held)))
	nu := func(name string) *v1alpha1.NodeUpdate {
		return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.NodesNamespace}, Spec: v1alpha1.NodeUpdateSpec{Config: config.Name}}
	}
	image := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{{Name: "edge", Image: "r/os@sha256:1", Content: os.Name}}}}
	v, err := readFiles(t.Context(), siteOf(t, config, os, image, nu("n2"), nu("n1"), nu("other")), "edge")
	if err != nil || len(v.Configs) != 1 || v.Image != "r/os@sha256:1" || strings.Join(v.Configs[0].Nodes, " ") != "n1 n2" {
		t.Fatalf("%+v %v", v, err)
	}
	var got []string
	for _, i := range v.Configs[0].Items {
		got = append(got, i.What+": "+string(i.Where))
	}
	want := "/etc/a: image /etc, /etc/b: agent, /etc/hostname: agent, /etc/new: agent, /usr/share/c: image /usr, kernel arguments: image kargs.d"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s", got)
	}
	var b bytes.Buffer
	if err := v.table(&b); err != nil || !strings.Contains(b.String(), "Nodes: n1, n2") || !strings.Contains(b.String(), "the image has an older one") || !strings.Contains(b.String(), "it is the node's own") {
		t.Errorf("%v\n%s", err, b.String())
	}
	if _, err := readFiles(t.Context(), siteOf(t), "nothing"); console.ExitCode(err) != console.ExitUsage {
		t.Error(err)
	}
	if _, err := readFiles(t.Context(), siteOf(t, image, nu("n1")), "edge"); err == nil || !strings.Contains(err.Error(), "r/os@sha256:1") {
		t.Error("what the image was built from is gone:", err)
	}
}
