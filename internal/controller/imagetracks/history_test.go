//go:build linux

package imagetracks

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/auditfacts"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// publisher makes a history as the four cases do: which tags are new and
// which move.
type publisher struct {
	w          *testCluster
	minor, fix int
	rev, build int
	digest     string
	long       string
	images     int
}

func (p *publisher) app() string  { return fmt.Sprintf("2.%d.%d", p.minor, p.fix) }
func (p *publisher) line() string { return fmt.Sprintf("%s-rev%d", p.app(), p.rev) }

// publish one image; which case is chosen by n.
func (p *publisher) publish(n int) string {
	what := "rebuild"
	switch {
	case n < 1 || p.images == 0:
		what = "new minor version"
		p.minor, p.fix, p.rev, p.build = p.minor+1, 0, 1, 0
	case n < 2:
		what = "new version"
		p.fix, p.rev, p.build = p.fix+1, 1, 0
	case n < 4:
		what = "fixed definition"
		p.rev, p.build = p.rev+1, 0
	}
	p.build++
	p.images++
	p.long = fmt.Sprintf("%s-b%d.1", p.line(), p.build)
	p.digest = p.w.reg.Push("shop/app", registrytest.Image{Version: p.app(), Layers: []string{fmt.Sprint("image ", p.images)}}, p.long, p.line(), p.app(), "latest")
	return what
}

var all = []string{v1alpha1.ClassSecurity, v1alpha1.ClassRebuild, v1alpha1.ClassImageFix, v1alpha1.ClassNewVersion}

// A generated history of 60 images over the four cases. One poll finds every change and names
// it by its long tag. A poll without a change sends one request per tag and writes nothing.
func TestAHistoryOfSixtyImages(t *testing.T) {
	w := newTestCluster(t)
	p := &publisher{w: w, minor: 5}
	p.publish(0)
	tracks := map[string]v1alpha1.TrackFollow{
		"latest": {Tag: "latest"}, "newest": {Tier: v1alpha1.TierIntermediate}, "short": {Tier: v1alpha1.TierShort}, "line": {Tag: p.line()}}
	for name, follow := range tracks {
		w.create(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ImageTrackSpec{Repository: w.reg.Ref("shop/app"), Follow: follow,
			Automatic: all, IntervalSeconds: 3600, DiscoverSeconds: 4 * 3600}})
	}
	firstLine := p.line()
	seen := map[string]int{}
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 60 {
		if step > 0 {
			seen[p.publish(random.IntN(10))]++
		}
		w.now = w.now.Add(5 * time.Hour) // the listing is due as well
		want := map[string]string{"latest": p.digest, "newest": p.digest, "short": p.digest, "line": w.reg.Resolve("shop/app", firstLine)}
		for name, digest := range want {
			o := w.reconcile(name)
			if o.Status.Approved == nil || o.Status.Approved.Digest != digest {
				t.Fatalf("image %d (%s), track %s: %+v, want %s; candidates %+v", p.images, p.long, name, o.Status.Approved, digest, o.Status.Candidates)
			}
			if digest == p.digest && o.Status.Approved.LongTag != p.long {
				t.Fatalf("track %s names it %s, not %s", name, o.Status.Approved.LongTag, p.long)
			}
		}
		if step%10 == 9 {
			w.checkQuietPolls(tracks)
		}
	}
	if len(seen) < 4 || p.images != 60 {
		t.Fatalf("the history is too poor: %v, %d images", seen, p.images)
	}
}

// checkQuietPolls reconciles all tracks after nothing changed and checks that they write
// nothing. One reconcile before drops the tags that are no longer followed.
func (w *testCluster) checkQuietPolls(tracks map[string]v1alpha1.TrackFollow) {
	w.t.Helper()
	w.now = w.now.Add(70 * time.Minute)
	for name := range tracks {
		w.reconcile(name)
	}
	w.now = w.now.Add(70 * time.Minute) // the listing is not due
	for name := range tracks {
		tags := len(w.track(name).Status.Tags)
		w.asked.takeCounts()
		w.api.takeCounts()
		w.reconcile(name)
		if asked, _ := w.asked.takeCounts(); asked > tags {
			w.t.Fatalf("track %s: %d questions for %d tags", name, asked, tags)
		}
		if _, writes := w.api.takeCounts(); len(writes) > 0 {
			w.t.Fatalf("track %s writes: %v", name, writes)
		}
	}
}

// While a registry fails, the approved digest stays. The first failed poll is named only, the
// second one two hours later is reported, once.
// When the registry is back, the track finds what changed meanwhile.
func TestARegistryInTrouble(t *testing.T) {
	w := newTestCluster(t)
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) {
		s.Targets, s.Automatic = nil, []string{v1alpha1.ClassRebuild}
	})
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected)

	t.Log("the registry is unreachable")
	w.reg.Stop()
	w.nextPoll()
	o := w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected, "the last poll failed 1 of 3 times", "shop/app")
	w.nextPoll()
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonRegistryUnreachable, "shop/app")
	if o.Status.Approved.Digest != a {
		t.Fatalf("%+v", o.Status)
	}
	since := o.Status.PollError.Since
	w.nextPoll()
	w.api.takeCounts()
	if o = w.reconcile("app"); !o.Status.PollError.Since.Equal(since) {
		t.Fatal("the start of the outage is lost")
	}
	if _, writes := w.api.takeCounts(); len(writes) > 0 {
		t.Fatalf("the same status is written again: %v", writes)
	}
	w.reg.Resume()
	b := w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	w.nextPoll()
	if o = w.reconcile("app"); o.Status.Approved.Digest != b || o.Status.PollError != nil {
		t.Fatalf("%+v", o.Status)
	}

	t.Log("the registry limits the rate")
	w.asked.set(func(r *http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"36000"}}, Body: http.NoBody, Request: r}
	})
	w.nextPoll()
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonRegistryRateLimited)
	w.asked.set(nil)
	w.asked.takeCounts()
	w.nextPoll()
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonRegistryRateLimited)
	if asked, _ := w.asked.takeCounts(); asked != 0 {
		t.Fatalf("Retry-After is ten hours, and the track sent %d requests after two", asked)
	}
	w.now = w.now.Add(9 * time.Hour)
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected)

	t.Log("the registry denies access")
	w.asked.set(func(r *http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: r}
	})
	w.nextPoll()
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionStalled, v1alpha1.ReasonAsExpected, "failed 1 of 3 times")
	w.nextPoll()
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionStalled, v1alpha1.ReasonRegistryUnauthorized)
	w.asked.set(nil)
	w.nextPoll()
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected)

	t.Log("the tag is deleted, the registry is unreachable for a moment, and the tag returns with the same digest")
	w.reg.Delete("shop/app", b)
	w.nextPoll()
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionStalled, v1alpha1.ReasonTagDeleted, "2.6.2-rev1")
	w.reg.Stop()
	w.nextPoll()
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonRegistryUnreachable)
	w.reg.Resume()
	w.nextPoll()
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionStalled, v1alpha1.ReasonTagDeleted, "2.6.2-rev1")
	if o.Status.Approved.Digest != b || !o.Status.Tags[0].Deleted {
		t.Fatalf("%+v", o.Status)
	}
	serial := o.Status.Serial
	w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	w.nextPoll()
	o = w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected)
	if o.Status.Serial != serial || o.Status.Tags[0].Deleted {
		t.Fatalf("%+v", o.Status)
	}
}

// The track polls the mirror first, and the repository if the mirror is unreachable. The
// status names the endpoint that answered.
func TestMirrors(t *testing.T) {
	w := newTestCluster(t)
	mirror := registrytest.Start(t)
	fresh := w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	old := mirror.Push("copy/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) { s.Targets, s.Mirrors = nil, []string{mirror.Ref("copy/app")} })
	o := w.reconcile("app")
	if o.Status.Endpoint != mirror.Ref("copy/app") || o.Status.Approved.Digest != old {
		t.Fatalf("%+v", o.Status)
	}
	if diff := cmp.Diff([]v1alpha1.UpstreamTag{{Tag: "2.6.2-rev1", Digest: fresh}}, o.Status.Upstream); diff != "" {
		t.Errorf("the status misses a tag that the mirror does not have yet (-want +got):\n%s", diff)
	}
	facts := (&auditfacts.Objects{Tracks: []v1alpha1.ImageTrack{*o}}).Facts()
	if p := facts.Published[w.reg.Ref("shop/app")+":2.6.2-rev1"]; p.Mirror != old || p.Digest != fresh {
		t.Errorf("the report knows %+v", p)
	}
	mirror.Stop()
	w.nextPoll()
	if o := w.reconcile("app"); o.Status.Endpoint != w.reg.Ref("shop/app") || o.Status.PollError != nil || len(o.Status.Candidates) != 1 || len(o.Status.Upstream) != 0 {
		t.Fatalf("%+v", o.Status)
	}
}

// The status lists a digest that no registry has any more, because neither a rollback nor a
// node that lost the image can pull it. A digest that only the mirror lost is not listed.
func TestADigestVanishes(t *testing.T) {
	w := newTestCluster(t)
	mirror := registrytest.Start(t)
	one := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	if mirror.Push("copy/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1") != one {
		t.Fatal("the copy is another image")
	}
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) { s.Targets, s.Mirrors = nil, []string{mirror.Ref("copy/app")} })
	if o := w.reconcile("app"); o.Status.Approved.Digest != one || len(o.Status.DeletedDigests) != 0 {
		t.Fatalf("%+v", o.Status)
	}
	two := build("two")
	mirror.Push("copy/app", two, "2.6.2-rev1-b5.2", "2.6.2-rev1")
	w.reg.Push("shop/app", two, "2.6.2-rev1-b5.2", "2.6.2-rev1")
	mirror.Delete("copy/app", one)
	w.now = w.now.Add(12 * time.Hour)
	if o := w.reconcile("app"); len(o.Status.DeletedDigests) != 0 {
		t.Fatalf("the repository has it still: %v", o.Status.DeletedDigests)
	}
	w.reg.Delete("shop/app", one)
	w.now = w.now.Add(12 * time.Hour)
	o := w.reconcile("app")
	if diff := cmp.Diff([]string{one}, o.Status.DeletedDigests); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	facts := (&auditfacts.Objects{Tracks: []v1alpha1.ImageTrack{*o}}).Facts()
	if name := w.reg.Ref("shop/app") + "@" + one; !facts.GoneDigests[name] || !facts.Site().GoneDigests[name] {
		t.Errorf("neither lint nor the forecast of a restart knows: %v", facts.GoneDigests)
	}
}

// A release record that is attached to an image says which vulnerabilities it closes, and keeps it
// from moving by itself while manifests have to follow. One of another image is ignored.
func TestReleaseRecords(t *testing.T) {
	w := newTestCluster(t)
	w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) { s.Targets, s.Automatic = nil, []string{v1alpha1.ClassRebuild} })
	w.reconcile("app")
	attach := func(to string, r imagetag.ReleaseRecord) {
		r, err := imagetag.NewRecord(r)
		w.must(err)
		text, err := json.Marshal(r)
		w.must(err)
		w.reg.Attach("shop/app", to, imagetag.RecordType, text)
	}
	b := w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2")
	attach(b, imagetag.ReleaseRecord{Digest: b, Fixes: []string{"CVE-2026-1234"}, ManifestsChange: true})
	w.reg.Attach("shop/app", b, imagetag.RecordType, []byte("no record"))
	w.reg.Attach("shop/app", b, "application/spdx+json", []byte("{}"))
	w.reg.Tag("shop/app", b, "2.6.2-rev1")
	w.nextPoll()
	o := w.reconcile("app")
	if c := o.Status.Candidates; len(c) != 1 || c[0].Digest != b || c[0].Decision != v1alpha1.DecisionApproval || !strings.Contains(c[0].Why, "manifests change with it") || !slices.Equal(c[0].Fixes, []string{"CVE-2026-1234"}) {
		t.Fatalf("%+v", c)
	}
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Approvals = []v1alpha1.TrackApproval{{Digest: b, Serial: o.Status.Candidates[0].Serial}}
	})
	w.restart() // what was read is in the status
	if o = w.reconcile("app"); o.Status.Approved.Digest != b || !slices.Equal(o.Status.Approved.Fixes, []string{"CVE-2026-1234"}) {
		t.Fatalf("an approval takes it, with what its record says: %+v", o.Status.Approved)
	}
	c := w.reg.Push("shop/app", build("three"), "2.6.2-rev1-b5.3")
	attach(c, imagetag.ReleaseRecord{Digest: b, Severity: "disruptive", ManifestsChange: true})
	w.reg.Tag("shop/app", c, "2.6.2-rev1")
	w.nextPoll()
	if o = w.reconcile("app"); o.Status.Approved.Digest != c || o.Status.Approved.ManifestsChange {
		t.Fatalf("a record of another image counts: %+v", o.Status)
	}
}

// The status reports a pull secret that cannot be read, and shows nothing of its content.
func TestThePullSecret(t *testing.T) {
	w := newTestCluster(t)
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) { s.Targets, s.PullSecret = nil, &v1alpha1.PullSecret{Name: "pull"} })
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionStalled, v1alpha1.ReasonTrackInvalid, "no Secret pull in namespace refit-builds")
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.BuildsNamespace, Name: "pull"}, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("hunter2 {")}})
	o := w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionStalled, v1alpha1.ReasonTrackInvalid, "pull")
	for _, c := range o.Status.Conditions {
		if strings.Contains(c.Message, "hunter2") {
			t.Fatal("the status shows the content of the secret")
		}
	}
}

// A track that is behind takes one minor version after the other, also across restarts. The status
// says which versions a jump would skip, and spec.follow.skipVersions allows it.
func TestOneMinorVersionAfterTheOther(t *testing.T) {
	w := newTestCluster(t)
	push := func(version string) string {
		return w.reg.Push("shop/app", registrytest.Image{Version: version, Layers: []string{version}}, version+"-rev1-b1.1", version+"-rev1")
	}
	push("2.6.0")
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) {
		s.Targets, s.Automatic, s.Follow, s.DiscoverSeconds = nil, all, v1alpha1.TrackFollow{Tier: v1alpha1.TierIntermediate}, 60
	})
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected, "2.6.0")
	push("2.7.0")
	seven := push("2.7.4")
	push("2.8.1")
	nine := push("2.9.0")

	t.Log("the next version is not allowed: nothing moves")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Refused = []v1alpha1.TrackRefusal{{Digest: seven, Reason: "slow"}} })
	w.nextPoll()
	o := w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImageBlocked, "2.7.4")
	if c := o.Status.Candidates[0]; c.LongTag != "2.9.0-rev1-b1.1" || c.Decision != v1alpha1.DecisionBlocked || fmt.Sprint(c.Skips) != "[2.7 2.8]" {
		t.Fatalf("%+v", c)
	}
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Refused, s.Follow.Versions = nil, "~2.6 || >=2.9" })
	w.nextPoll()
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonVersionsSkipped, "2.7, 2.8", "spec.follow.skipVersions")
	w.nextPoll()
	w.api.takeCounts()
	w.reconcile("app")
	if _, writes := w.api.takeCounts(); len(writes) > 0 {
		t.Fatalf("nothing was new, and it wrote: %v", writes)
	}

	t.Log("step by step")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Follow.Versions = "" })
	for _, want := range []string{"2.7.4-rev1-b1.1", "2.8.1-rev1-b1.1", "2.9.0-rev1-b1.1"} {
		w.restart()
		w.nextPoll()
		if o = w.reconcile("app"); o.Status.Approved.LongTag != want {
			t.Fatalf("it takes %s, want %s; %+v", o.Status.Approved.LongTag, want, o.Status.Candidates)
		}
	}
	if o.Status.Approved.Digest != nine || len(o.Status.Releases) != 4 {
		t.Fatalf("%+v", o.Status.Releases)
	}

	t.Log("a jump that the spec allows")
	push("2.10.0")
	push("2.11.0")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Follow.SkipVersions = true })
	w.nextPoll()
	if o = w.reconcile("app"); o.Status.Approved.LongTag != "2.11.0-rev1-b1.1" {
		t.Fatalf("%+v", o.Status.Candidates)
	}

	t.Log("an image names its own long tag: no listing is needed")
	labelled := func(version, says string) string {
		return w.reg.Push("shop/app", registrytest.Image{Version: version, Layers: []string{version, says}, Labels: map[string]string{"org.opensuse.reference": w.reg.Ref("shop/app:" + says)}},
			version+"-rev1-b2.1", version+"-rev1")
	}
	labelled("2.12.0", "2.12.0-rev1-b2.1")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Follow = v1alpha1.TrackFollow{Tag: "2.12.0-rev1", SkipVersions: true}
	})
	w.asked.set(func(r *http.Request) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: r}
		}
		return nil
	})
	w.restart()
	w.nextPoll()
	if o = w.reconcile("app"); o.Status.PollError != nil || o.Status.Approved.LongTag != "2.12.0-rev1-b2.1" {
		t.Fatalf("%+v %+v", o.Status.PollError, o.Status.Approved)
	}
	w.asked.set(nil)

	t.Log("it names the tag of another image: that is not believed")
	labelled("2.13.0", "2.12.0-rev1-b2.1")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Follow = v1alpha1.TrackFollow{Tag: "2.13.0-rev1", SkipVersions: true}
	})
	w.nextPoll()
	if o = w.reconcile("app"); o.Status.Approved.LongTag != "2.13.0-rev1-b2.1" {
		t.Fatalf("%+v", o.Status.Approved)
	}
}
