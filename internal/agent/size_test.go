package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/updaters/engine"
)

// The failure of a run stands in the phase, in four conditions and in the run:
// whole in one place only, so that a node's status stays below 4 KiB.
func TestTheStatusOfAFailedRunIsSmall(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	var log []string
	for i := range 500 {
		log = append(log, fmt.Sprintf("[ERROR ImagePull]: failed to pull image number %d, \"no such host\"", i))
	}
	r := &v1alpha1.NodeRun{Name: "to-0123456789ab", UID: "3f1e7c3a-8a45-4a2b-9a55-0b1c2d3e4f50", Attempt: 2, PlanDigest: "sha256:" + strings.Repeat("a", 64),
		Steps: []v1alpha1.UpdateStep{{ID: "kubeadm", Updater: strings.Join(log, "\n")}}} // its failure names it
	a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Run: r, Pins: "hold-" + strings.Repeat("b", 40)}}
	e := &engine.Engine{Dir: t.TempDir(), Log: a.log}
	e.Run(t.Context(), func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { a.state.run = s })
	if a.state.run == nil || a.state.run.State != v1alpha1.RunFailed || len(a.state.run.Message) < 1000 {
		t.Fatalf("%+v", a.state.run)
	}
	a.state.media = []v1alpha1.Medium{{Device: "/dev/sdb", Digest: r.PlanDigest, Name: "refit-demo", Version: "1.36.3", State: v1alpha1.MediumCopied}}
	a.state.bundles = []string{r.PlanDigest, r.PlanDigest}
	a.state.observed = &v1alpha1.Observed{KubeletVersion: "v1.36.3", KubeadmVersion: "v1.36.3", RuntimeName: "containerd", RuntimeVersion: "v2.1.4", BootID: r.UID, Architecture: "amd64"}
	a.state.pins.NeededBytes = map[string]int64{"state": 1 << 40, "images": 1 << 40, "programs": 1 << 40}
	a.space.report(a.state.pins.NeededBytes, nil)
	b, err := json.Marshal(a.status.status(time.Now()))
	if err != nil || len(b) > 4096 {
		t.Fatalf("%d bytes, %v:\n%s", len(b), err, b)
	}
}

// A node that holds a release of 200 images refers to it by a name. What a
// control plane says is below 3 KiB then (of that a third its certificates; its spec is
// below 1.75 KiB, see controller/nodedistribution), and missing images never make it large. Fields
// of configurations come on top.
func TestTheStatusOfAHeldReleaseIsSmall(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	d := "sha256:" + strings.Repeat("a", 64)
	hold := "hold-" + strings.Repeat("b", 40)
	a.want = &desired.State{Generation: 12, Spec: v1alpha1.NodeUpdateSpec{Pins: hold}}
	a.state.pins = v1alpha1.PinStatus{Content: hold, ImagesTotal: 200, ImagesReady: 200, ImagesPinned: 200, PayloadsTotal: 5, PayloadsReady: 5, BytesTotal: 16 << 30, BytesDone: 16 << 30,
		NeededBytes: map[string]int64{"state": 0, "images": 0, "programs": 0}}
	a.state.bundles = []string{d, d}
	a.state.observed = &v1alpha1.Observed{KubeletVersion: "v1.36.3", KubeadmVersion: "v1.36.3", ControlPlane: "v1.36.3", RuntimeName: "containerd", RuntimeVersion: "v2.2.9",
		BootID: "3f1e7c3a-8a45-4a2b-9a55-0b1c2d3e4f50", Architecture: "amd64", InstalledImage: "9.6.20251023-0", Machine: map[string]string{"cpu": "x86-64-v3", "shim": "15.8", "grub": "2.12", "loaderBuilt": "2025-10-23"}}
	a.state.fileSystems = []v1alpha1.FileSystem{{Name: "state", ID: "259:1", FreeBytes: 1 << 40, TotalBytes: 1 << 41}, {Name: "images", ID: "259:1", FreeBytes: 1 << 40, TotalBytes: 1 << 41}, {Name: "programs", ID: "259:1", FreeBytes: 1 << 40, TotalBytes: 1 << 41}}
	a.state.health = &v1alpha1.NodeHealth{PullVerification: "NeverVerifyPreloadedImages", Etcd: &v1alpha1.EtcdHealth{Healthy: true, SizeBytes: 8 << 30, InUseBytes: 8 << 30, QuotaBytes: 8 << 30}}
	for i := range 12 {
		a.state.health.Certificates = append(a.state.health.Certificates, v1alpha1.CertificateExpiry{Name: fmt.Sprintf("etcd/healthcheck-%02d.crt", i)})
	}
	size := func() int {
		b, err := json.Marshal(a.status.status(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	if n := size(); n > 3072 {
		t.Errorf("%d bytes", n)
	}
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("registry.example/%s/image-%03d:v1", strings.Repeat("x", 400), i))
	}
	if a.state.pins.Missing = truncateNames(names); len(a.state.pins.Missing) == 0 {
		t.Error("nothing is named")
	}
	if n := size(); n > 4096 {
		t.Errorf("with missing images %d bytes", n)
	}
	if got := truncateNames(names[:1]); len(got) != 1 {
		t.Errorf("%d of one name", len(got))
	}
}
