package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/agent/host/cri/critest"
	"github.com/refit-dev/refit/internal/agent/host/crio"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// ignoring takes pins and reports none, as containerd 1.6 does; what it reports is
// what one answered.
type ignoring struct{ imagekeeper.NodeRuntime }

func (ignoring) Pin(_ context.Context, img containerd.Image) ([]string, bool, error) {
	return []string{img.Name, img.ByDigest()}, true, nil
}

// Trap of containerd 1.6 and other runtimes without pins: they store the label, and CRI does not
// report the image as pinned.
func TestARuntimeThatIgnoresPinsIsNamed(t *testing.T) {
	record := critest.ReadRecord(t, "host/cri/critest/testdata/containerd-1.6.json")
	rt, err := imagekeeper.Open(t.Context(), record.Serve(t), crio.Places{Root: t.TempDir()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	if _, ok := rt.(imagekeeper.Containerd); !ok {
		t.Fatalf("%s is taken for a %T", record, rt)
	}
	have := record.Images.GetImages()[0]
	name := have.GetRepoTags()[0]
	_, digest, _ := strings.Cut(have.GetRepoDigests()[0], "@")
	k := imagekeeper.NewKeeper(ignoring{rt}, t.TempDir(), statefile.Ignore)
	r, err := k.Sync(t.Context(), []model.PinSetImage{{Name: name, Digest: digest, Bundle: "sha256:b"}}, source{}, func(imagekeeper.Result) {})
	if err != nil || r.Held != 1 || r.Pinned != 0 || r.Complete() {
		t.Fatalf("%+v %v", r, err)
	}
	a := &imageLoop{shared: &shared{runtime: rt}}
	vs := imageVerdicts("n1", a.runtimeName(t.Context()), r)
	if len(vs) != 1 || vs[0].Reason != v1alpha1.ReasonPinsIgnored || vs[0].Waiting ||
		!strings.Contains(vs[0].Message, "containerd 1.6.20") || !strings.Contains(vs[0].Message, "1 image ") || !strings.Contains(vs[0].Fix, "1.7.3") {
		t.Fatalf("%+v", vs)
	}
	if vs := imageVerdicts("n1", "containerd 2.2.9", imagekeeper.Result{Total: 3, Held: 3, Pinned: 3}); len(vs) != 0 {
		t.Fatalf("all is pinned: %+v", vs)
	}
}

// What is loaded leaves free what the kubelet wants before it evicts, and
// before it collects images, whichever is more.
func TestRoomLeavesTheKubeletsThresholds(t *testing.T) {
	images := func(e kube.Eviction) pin.Room {
		dir := t.TempDir()
		a := &spaceChecker{shared: &shared{conf: agentconfig.Config{StateDir: dir}, runtime: &fakeRuntime{dir: dir}, log: slog.New(slog.DiscardHandler)}, roomAt: fsutil.RoomAt, eviction: func() kube.Eviction { return e }}
		for _, r := range a.rooms(t.Context()) {
			if r.Name == pin.ImagesFS {
				return r
			}
		}
		t.Fatal("no room for images")
		return pin.Room{}
	}
	none := images(kube.Eviction{})
	for name, c := range map[string]struct {
		e    kube.Eviction
		less int64 // percent
	}{
		"eviction alone":           {kube.Eviction{ImageFS: "10%"}, 10},
		"collection begins before": {kube.Eviction{ImageFS: "10%", Collect: "30%"}, 30},
		"eviction begins before":   {kube.Eviction{ImageFS: "40%", Collect: "30%"}, 40},
		"collection alone":         {kube.Eviction{Collect: "30%"}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			r := images(c.e)
			want := none.Free - none.Total*c.less/100
			// Others write on this disk too: a hundredth of it is no difference.
			if d := r.Free - want; d > none.Total/100 || -d > none.Total/100 {
				t.Errorf("free %d of %d, want about %d", r.Free, r.Total, want)
			}
		})
	}
}

// An agent that finds its NodeUpdate filled in from another store emits one event, and the status
// mentions the new store until all images are here again.
func TestANewStoreIsReported(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	api := a.api.(*fakeAPI)
	reportedBy := func(key string) *v1alpha1.NodeUpdate {
		nu := &v1alpha1.NodeUpdate{}
		nu.Status.Agent = &v1alpha1.AgentInfo{PublicKey: key}
		nu.Status.Pins = &v1alpha1.PinStatus{ImagesReady: 7}
		return nu
	}
	hear := func(nu *v1alpha1.NodeUpdate) {
		t.Helper()
		if err := a.watch.checkStore(t.Context(), nu); err != nil {
			t.Fatal(err)
		}
	}
	hear(&v1alpha1.NodeUpdate{}) // a node that is new says nothing
	hear(reportedBy(a.id.PublicKey()))
	if len(api.events) != 0 || a.state.replaced {
		t.Fatalf("%v", api.events)
	}
	hear(reportedBy("another"))
	if len(api.events) != 1 || !strings.Contains(api.events[0], v1alpha1.ReasonStoreReplaced) || !strings.Contains(api.events[0], "had 7 images") {
		t.Fatalf("%v", api.events)
	}
	if v := a.status.view(); !strings.Contains(v.message, "its store is new") {
		t.Errorf("%q", v.message)
	}
	a.fromAPI = true // from then on it is its own
	if hear(reportedBy("another")); len(api.events) != 1 {
		t.Errorf("said again: %v", api.events)
	}
	a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Pins: "pins-1"}}
	a.state.pins.Content = "pins-1" // and nothing is wanted: all is here
	if v := a.status.view(); strings.Contains(v.message, "store is new") || a.state.replaced {
		t.Errorf("it is still said when all is here: %q", v.message)
	}
}

// adopts is a runner that records adopted runs; it fails while broken is set.
type adopts struct {
	noRun
	broken error
	runs   []int32
}

func (r *adopts) Adopt(run v1alpha1.NodeRun, _ v1alpha1.NodeRunStatus) error {
	if r.broken == nil {
		r.runs = append(r.runs, run.Attempt)
	}
	return r.broken
}

// An agent with a new store, after a new disk or an installation, does not repeat the run of the
// previous store, although the permission for the finished update is still there.
func TestWhatAnotherStoreRanIsNotRunAgain(t *testing.T) {
	run := func(attempt int32) *v1alpha1.NodeRun { return &v1alpha1.NodeRun{UID: "u", Attempt: attempt} }
	ended := func(uid string, attempt int32, s v1alpha1.RunState) *v1alpha1.NodeRunStatus {
		return &v1alpha1.NodeRunStatus{UID: uid, Attempt: attempt, State: s}
	}
	for name, c := range map[string]struct {
		permitted *v1alpha1.NodeRun
		last      *v1alpha1.NodeRunStatus
		want      []int32
	}{
		"it succeeded":                     {run(2), ended("u", 2, v1alpha1.RunSucceeded), []int32{2}},
		"it failed":                        {run(1), ended("u", 1, v1alpha1.RunFailed), []int32{1}},
		"a later attempt ended":            {run(1), ended("u", 3, v1alpha1.RunUndone), []int32{3}},
		"it was under way: it begins anew": {run(1), ended("u", 1, v1alpha1.RunRunning), nil},
		"an earlier attempt ended":         {run(2), ended("u", 1, v1alpha1.RunFailed), nil},
		"the run of another update ended":  {run(1), ended("other", 1, v1alpha1.RunSucceeded), nil},
		"nothing is permitted":             {nil, ended("u", 1, v1alpha1.RunSucceeded), nil},
		"nothing was run":                  {run(1), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, r := idle(t, &fakeRuntime{}), &adopts{}
			a.runner = r
			nu := &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: c.permitted}, Status: v1alpha1.NodeUpdateStatus{Run: c.last, Agent: &v1alpha1.AgentInfo{PublicKey: "another"}}}
			if err := a.watch.checkStore(t.Context(), nu); err != nil || !slices.Equal(r.runs, c.want) {
				t.Errorf("adopted %v, want %v (%v)", r.runs, c.want, err)
			}
			r.broken = errors.New("no room")
			if err := a.watch.checkStore(t.Context(), nu); (err != nil) != (c.want != nil) {
				t.Errorf("it goes on with what it could not note: %v", err)
			}
		})
	}
}
