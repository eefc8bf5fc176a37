package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// unreachableRuntime does not answer, and counts how often it was asked.
type unreachableRuntime struct {
	fakeRuntime
	asked atomic.Int32
}

func (r *unreachableRuntime) Present(context.Context) ([]pin.RuntimeImage, error) {
	r.asked.Add(1)
	return nil, errors.New("connection refused")
}

// idle is an agent whose loops the test runs itself.
func idle(t *testing.T, rt Runtime) *Agent {
	t.Helper()
	dir := t.TempDir()
	a, err := New(agentconfig.Config{Node: "n1", StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		Kubeconfig: filepath.Join(dir, "none"), Address: "127.0.0.1:1", NoDevices: true},
		Parts{API: newFakeAPI(), Runtime: rt, Runner: func(Store) Runner { return noRun{} }, Facts: noFacts{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.unlock)
	return a
}

// A runtime that stays away is asked less and less often, however many reasons
// there are to ask.
func TestARuntimeThatIsAwayIsNotStormed(t *testing.T) {
	rt := &unreachableRuntime{}
	a := idle(t, rt)
	a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Pins: "hold"}, Pins: model.PinSet{Images: []model.PinSetImage{{Name: "a:1", Digest: "sha256:a", Bundle: "sha256:b"}}}}
	synctest.Test(t, func(t *testing.T) {
		for _, k := range []*chan struct{}{&a.wakeBundles, &a.wakeImages, &a.wakeStatus} {
			*k = make(chan struct{}, 1)
		}
		ctx, stop := context.WithCancel(t.Context())
		go a.images.Run(ctx)
		go a.bundles.Run(ctx)
		for range 10 { // media that come and go, new wants
			time.Sleep(3 * time.Second)
			wake(a.wakeImages)
		}
		before := rt.asked.Load()
		time.Sleep(10 * time.Minute)
		if asked := rt.asked.Load() - before; asked > 60 {
			t.Errorf("asked %d times in ten minutes", asked)
		}
		stop()
		synctest.Wait()
	})
}

// What is counted for a list that is not wanted any more must not make the new
// one look held.
func TestCountsOfAnOldListAreNotThoseOfTheNew(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Pins: "new"}}
	a.state.pins = v1alpha1.PinStatus{Content: "new", PayloadsTotal: 3}
	a.bundles.countProgress(t.Context(), &desired.State{Spec: v1alpha1.NodeUpdateSpec{Pins: "old"}})
	if a.status.view().held {
		t.Fatalf("held: %+v", a.state.pins)
	}
}

// At most 12 writes per node and update: another sentence about the same is
// progress, another state is not.
func TestASentenceIsNotAState(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	a.state.present = true
	say := func(reason, message string) *v1alpha1.NodeUpdateStatus {
		a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Run: &v1alpha1.NodeRun{UID: "u"}}}
		a.state.run = &v1alpha1.NodeRunStatus{UID: "u", State: v1alpha1.RunRunning, Step: "kubeadm", Reason: reason, Message: message}
		return a.status.status(time.Now())
	}
	a.state.sent = say("Updating", "pulling images")
	if u := a.status.urgency(say("Updating", "writing manifests"), 0, statusreport.IntervalsFor(v1alpha1.NodeUpdateSpec{})); u == 0 {
		t.Error("every line that kubeadm prints is written at once")
	}
	if u := a.status.urgency(say("Settling", "pulling images"), 0, statusreport.IntervalsFor(v1alpha1.NodeUpdateSpec{})); u != 0 {
		t.Error("another reason waits")
	}
	full := func(free int) *v1alpha1.NodeUpdateStatus {
		a.state.run = nil
		a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Pins: "h"}}
		a.state.imageVerdicts = []model.Blocker{{Reason: v1alpha1.ReasonInsufficientSpace, Message: fmt.Sprintf("%d bytes are free", free)}}
		return a.status.status(time.Now())
	}
	a.state.sent = full(1000)
	if u := a.status.urgency(full(1001), 0, statusreport.IntervalsFor(v1alpha1.NodeUpdateSpec{})); u == 0 {
		t.Error("every byte that is free or not is written at once")
	}
}

// A full disk is not the stick's fault: when there is room again the copy goes on.
func TestAReadOnlyStoreIsNotBlamedOnTheMedium(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	n := newTestNode(t, "n1", 17958, path)
	n.reported("found", func(s *v1alpha1.NodeUpdateStatus) bool { return len(s.Media) == 1 })
	store := n.agent.library.Blobs().Dir()
	if err := errors.Join(os.Rename(store, store+".away"), os.WriteFile(store, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	approve(t, h, everything(h), n)
	s := n.reported("it says that it waits for its store", func(s *v1alpha1.NodeUpdateStatus) bool {
		_, reason := condition(s, v1alpha1.ConditionReconciling)
		return reason == v1alpha1.ReasonCopying && s.Phase == "Waiting" || len(s.Media) == 1 && s.Media[0].State == v1alpha1.MediumUnreadable
	})
	if s.Media[0].State == v1alpha1.MediumUnreadable {
		t.Errorf("the stick is blamed: %s", s.Media[0].Message)
	}
	if err := errors.Join(os.Remove(store), os.Rename(store+".away", store)); err != nil {
		t.Fatal(err)
	}
	n.reported("held", held)
}

// A NodeUpdate that was deleted while its Contents could not be read is gone.
func TestADeletedNodeUpdateIsNoticedWhileContentsAreMissing(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	newer := make(chan *v1alpha1.NodeUpdate, 1)
	newer <- nil
	a.watch.follow(t.Context(), &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Pins: "missing"}}, newer)
	if a.state.present {
		t.Fatal("its status would be written again and again")
	}
}

// A NodeUpdate that was made anew counts its generations from 1.
func TestANewNodeUpdateOfTheSameGenerationIsKept(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	for _, digest := range []string{"sha256:a", "sha256:b"} {
		nu := &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Bundles: []v1alpha1.ApprovedBundle{{Digest: digest}}}}
		nu.Generation = 1
		a.watch.follow(t.Context(), nu, nil)
	}
	w := desired.ReadFile(a.conf.Path("want.json"), statefile.Ignore)
	if w == nil || len(w.Spec.Bundles) != 1 || w.Spec.Bundles[0].Digest != "sha256:b" {
		t.Fatalf("after a restart the agent knows %+v", w)
	}
}

// A peer that is one no more is answered no more, on an open connection either.
func TestAPeerThatWasRemovedIsNotAnswered(t *testing.T) {
	n, other := newTestNode(t, "n1", 17959), idle(t, &fakeRuntime{})
	peers := []v1alpha1.Peer{{Node: "n2", PublicKey: other.id.PublicKey()}}
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Peers = peers })
	c := peerapi.NewClient(other.id, peerapi.Peer{Name: "n1", Address: n.conf.Address, PublicKey: n.agent.id.PublicKey()})
	defer c.Close()
	answered := func(want bool) {
		t.Helper()
		for range 100 {
			if _, err := c.Alive(t.Context()); (err == nil) == want {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("never answered: %v", want)
	}
	answered(true)
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Peers = nil })
	answered(false)
}

// A peer counts as reached if it answers with its own key.
func TestPeersThatAnswerAreCounted(t *testing.T) {
	n, other := newTestNode(t, "n1", 17962), idle(t, &fakeRuntime{})
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Peers = []v1alpha1.Peer{{Node: "n2", PublicKey: other.id.PublicKey()}}
	})
	if got := other.peersReached(t.Context()); got != 0 {
		t.Fatalf("%d peers before there is a desired state", got)
	}
	reached := func(want int, peers ...v1alpha1.Peer) {
		t.Helper()
		got := -1
		for range 100 {
			other.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Peers: peers}}
			if got = other.peersReached(t.Context()); got == want {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatalf("%d peers answer, want %d", got, want)
	}
	there := v1alpha1.Peer{Node: "n2", Address: n.conf.Address, PublicKey: n.agent.id.PublicKey()}
	reached(1, there, v1alpha1.Peer{Node: "n3", Address: "127.0.0.1:1", PublicKey: there.PublicKey}, v1alpha1.Peer{Node: "n4"})
	there.PublicKey = other.id.PublicKey() // another node answers at the address
	reached(0, there)
}

// The controller reads a node's log. Other nodes do not, also under its name.
func TestTheLogIsForTheController(t *testing.T) {
	n, controller, other := newTestNode(t, "n1", 17938), idle(t, &fakeRuntime{}), idle(t, &fakeRuntime{})
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Peers = []v1alpha1.Peer{{Node: v1alpha1.ControllerPeer, PublicKey: controller.id.PublicKey()}, {Node: v1alpha1.ControllerPeer, Address: "127.0.0.1:1", PublicKey: other.id.PublicKey()}}
	})
	read := func(id *peerapi.Identity) (string, error) {
		c := peerapi.NewClient(id, peerapi.Peer{Name: "n1", Address: n.conf.Address, PublicKey: n.agent.id.PublicKey()})
		defer c.Close()
		body, err := c.Logs(t.Context(), peerapi.LogQuery{Lines: 1})
		if err != nil {
			return "", err
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		return string(text), err
	}
	var said string
	var err error
	for range 100 { // until the agent knows its peers
		if said, err = read(controller.id); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil || said != "log of n1" {
		t.Fatalf("%v %q", err, said)
	}
	if said, err := read(other.id); err == nil || !strings.Contains(err.Error(), "not the controller") {
		t.Errorf("another node reads %q: %v", said, err)
	}
}

// Bytes that rotted on this node's disk are found when they are needed, and
// fetched again from wherever they still are.
func TestABlobThatRottedIsFetchedAgain(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	n := newTestNode(t, "n1", 17960, path)
	approve(t, h, everything(h), n)
	n.reported("held", held)
	img := h.ImageByName("registry.k8s.io/pause:3.10.2")
	blob, err := n.agent.library.Blobs().Path(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(blob, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	n.runtime.lose(img.Name)
	n.reported("held again", func(s *v1alpha1.NodeUpdateStatus) bool { return held(s) && n.runtime.has(img.Name) })
}

// A permission from before a restart may have been withdrawn since. A run starts only after the
// API server sent the permission to this process. A started run continues without it, from the
// journal.
func TestAnOldPermissionBeginsNothing(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	nu := &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: a.api.(*fakeAPI).ordered(t, "u")}}
	nu.Generation = 1
	a.want = &desired.State{Generation: 1, Spec: nu.Spec} // as read from want.json
	if r := a.runs.permitted(); r != nil {
		t.Fatalf("%+v is permitted by a file", r)
	}
	a.watch.follow(t.Context(), nu, nil)
	a.runs.approve(t.Context())
	if r := a.runs.permitted(); r == nil || r.UID != "u" {
		t.Fatalf("%+v is permitted", r)
	}
	select {
	case <-a.wakeRuns:
	default:
		t.Fatal("the run loop was not woken")
	}
}

// A payload that rotted is found before it is used, and fetched again; the run
// waits for it.
func TestAPayloadThatRottedIsFetchedAgain(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	n := newTestNode(t, "n1", 17961, path)
	approve(t, h, everything(h), n)
	n.reported("held", held)
	p := h.Metadata.Payloads[0]
	blob, err := n.agent.library.Blobs().Path(p.Digest)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(blob, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := n.agent.payloads.findPayload(h.Digest, p.Name); err == nil || errors.Is(err, updaters.ErrNoPayload) {
		t.Fatalf("%+v %v, want an error that passes", got, err)
	}
	for range 100 {
		if _, err = n.agent.payloads.findPayload(h.Digest, p.Name); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got, _ := os.ReadFile(blob); err != nil || bundle.DigestOf(got) != p.Digest {
		t.Fatalf("not fetched again: %v", err)
	}
}

// What may be fetched from a registry, and when: an update waits for none, and a
// full disk takes none. What the kubelet fetched only gets its names.
func TestWhatMayBeFetched(t *testing.T) {
	image := model.PinSetImage{Name: "r/app:1", Digest: "sha256:a", Registry: true}
	kubelets, bundled := image, image
	kubelets.Kubelet, bundled.Bundle = true, "sha256:b"
	for name, c := range map[string]struct {
		src  source
		img  model.PinSetImage
		want bool
	}{
		"an image of a registry":              {source{}, image, true},
		"one of a bundle":                     {source{}, bundled, false},
		"while an update runs":                {source{busy: true}, image, false},
		"while there is no room for anything": {source{closed: true}, image, false},
		"while there is no room for it":       {source{full: true}, image, false},
		"the kubelet has made room for its":   {source{full: true, closed: true}, kubelets, true},
		"nor that while an update runs":       {source{busy: true}, kubelets, false},
	} {
		if got := c.src.MayPull(c.img); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
