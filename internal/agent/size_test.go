package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/told"
	"github.com/refit-dev/refit/internal/pipeline/update/updaters/run"
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
	a.want = &told.Want{Spec: v1alpha1.NodeUpdateSpec{Run: r, Hold: "hold-" + strings.Repeat("b", 40)}}
	e := &run.Engine{Dir: t.TempDir(), Log: a.log}
	e.Run(t.Context(), func() *v1alpha1.NodeRun { return r }, func(s *v1alpha1.NodeRunStatus) { a.state.run = s })
	if a.state.run == nil || a.state.run.State != v1alpha1.RunFailed || len(a.state.run.Message) < 1000 {
		t.Fatalf("%+v", a.state.run)
	}
	a.state.media["/dev/sdb"] = v1alpha1.Medium{Device: "/dev/sdb", Digest: r.PlanDigest, Name: "refit-demo", Version: "1.36.3", State: v1alpha1.MediumCopied}
	a.state.bundles = []string{r.PlanDigest, r.PlanDigest}
	a.state.observed = &v1alpha1.Observed{KubeletVersion: "v1.36.3", KubeadmVersion: "v1.36.3", RuntimeName: "containerd", RuntimeVersion: "v2.1.4", BootID: r.UID, Architecture: "amd64"}
	a.state.holding.NeededBytes = map[string]int64{"state": 1 << 40, "images": 1 << 40, "programs": 1 << 40}
	a.setSpace(a.state.holding.NeededBytes, nil)
	b, err := json.Marshal(a.status(time.Now()))
	if err != nil || len(b) > 4096 {
		t.Fatalf("%d bytes, %v:\n%s", len(b), err, b)
	}
}
