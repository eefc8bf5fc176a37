package clusterfacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// Lines as a kube-apiserver writes them.
const metricsText = `# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.37",resource="flowschemas",subresource="status",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="old.test",removed_release="1.36",resource="olds",subresource="",version="v1beta1"} 0
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",verb="LIST",version="v1"} 12
`

func TestOnlyAPIsThatGoAreRead(t *testing.T) {
	t.Parallel()
	open := func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(metricsText)), nil }
	got, err := DeprecatedAPIs(t.Context(), open)
	if err != nil {
		t.Fatal(err)
	}
	want := []gate.RemovedAPI{{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3", Resource: "flowschemas", Subresource: "status", RemovedIn: "1.37"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMetricsThatCannotBeReadAreNoAnswer(t *testing.T) {
	t.Parallel()
	away := errors.New("GET /metrics: connection refused")
	if _, err := DeprecatedAPIs(t.Context(), func(context.Context) (io.ReadCloser, error) { return nil, away }); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	long := func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(strings.Repeat("x", maxLine+1))), nil
	}
	if _, err := DeprecatedAPIs(t.Context(), long); err == nil {
		t.Error("a line without end is an answer")
	}
}

func FuzzDeprecated(f *testing.F) {
	f.Add(metricsText)
	f.Add(deprecatedMetric + `group="a,b",=`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseDeprecated(strings.NewReader(text))
		for _, a := range got {
			if a.RemovedIn == "" {
				t.Fatalf("an API that stays is named: %+v (%v)", a, err)
			}
		}
	})
}

func TestWhatAWebhookIsAskedAbout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		list []string
		want string
		yes  bool
	}{
		"the resource":                     {[]string{"pods"}, "pods", true},
		"all resources":                    {[]string{"*"}, "pods", true},
		"all resources, not subresources":  {[]string{"*"}, "pods/eviction", false},
		"everything":                       {[]string{"*/*"}, "pods/eviction", true},
		"all subresources of the resource": {[]string{"pods/*"}, "pods/eviction", true},
		"a subresource of all":             {[]string{"*/eviction"}, "pods/eviction", true},
		"another resource":                 {[]string{"deployments", "nodes/status"}, "nodes", false},
	} {
		if got := coversResource(tc.list, tc.want); got != tc.yes {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Each API server is asked for itself, at the address that its pod says; one that does
// not answer is named, and what the others say counts.
func TestEveryAPIServerIsAsked(t *testing.T) {
	pods := func(addresses ...string) client.Reader {
		b := fakeReader{}
		for _, a := range addresses {
			b.pods = append(b.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Annotations: map[string]string{advertised: a}}})
		}
		return b
	}
	says := func(resource string) Metrics {
		return func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(deprecatedMetric + `group="g",removed_release="1.37",resource="` + resource + `",subresource="",version="v1"} 1` + "\n")), nil
		}
	}
	at := func(address string) Metrics {
		if address == "10.0.0.3:6443" {
			return func(context.Context) (io.ReadCloser, error) { return nil, errors.New("connection refused") }
		}
		return says("of-" + address)
	}
	names := func(u APIsInUse) (out []string) {
		for _, a := range u.APIs {
			out = append(out, a.Resource)
		}
		return out
	}
	one, err := ListAPIsInUse(t.Context(), pods("10.0.0.1:6443"), says("of-anyone"), at)
	if err != nil || fmt.Sprint(names(one)) != "[of-anyone]" {
		t.Errorf("one server: %v, %v", one, err)
	}
	all, err := ListAPIsInUse(t.Context(), pods("10.0.0.2:6443", "10.0.0.1:6443", "10.0.0.3:6443"), says("of-anyone"), at)
	if err != nil || fmt.Sprint(names(all)) != "[of-10.0.0.1:6443 of-10.0.0.2:6443]" || !strings.Contains(all.Missing, "10.0.0.3:6443: connection refused") {
		t.Errorf("three servers: %+v, %v", all, err)
	}
}

// fakeReader lists pods.
type fakeReader struct {
	client.Reader
	pods []corev1.Pod
}

func (f fakeReader) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	l.(*corev1.PodList).Items = f.pods
	return nil
}
