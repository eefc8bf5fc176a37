package e2e

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

const (
	edgeName = "edge"
	edgeRepo = "tracks/edge"
	edgeFile = "/etc/kubernetes/manifests/edge.yaml"
)

// edge is a static pod on both workers that a track follows.
type edge struct {
	*tracked
	first, second, broken string // digests
}

// manifest as a user has written it by hand, with an image.
func (e *edge) manifest(image string) string {
	return `# the site's own proxy; do not reformat
apiVersion: v1
kind: Pod
metadata:
    name: ` + edgeName + `
    namespace: ` + tracksNamespace + `
    labels: {app: ` + edgeName + `}
spec:
    terminationGracePeriodSeconds: 1
    containers:
    -   name: proxy      # one container
        image: "` + image + `"
        imagePullPolicy: IfNotPresent
        env: [{name: LISTEN, value: ":8080"}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`
}

func (e *edge) ref(build string) string {
	return registryAddress + "/" + edgeRepo + ":" + followed + build
}

func (e *edge) long(build, digest string) string { return e.ref(build) + "@" + digest }

// read a worker's manifest.
func (e *edge) read(t *testing.T, node string) string {
	t.Helper()
	text, err := e.s.Output(t.Context(), node, "cat", edgeFile)
	must(t, err)
	return text
}

// runs waits until the pods of both workers are Ready with an image.
func (e *edge) runs(t *testing.T, images map[string]string) {
	t.Helper()
	eventually(t, 5*time.Minute, "the static pods run what they are to", func() (bool, string) {
		var said []string
		ok := true
		for _, node := range []string{"n2", "n3"} {
			var p corev1.Pod
			if err := e.s.Client.Get(t.Context(), client.ObjectKey{Namespace: tracksNamespace, Name: edgeName + "-" + node}, &p); err != nil {
				return false, err.Error()
			}
			ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
			image := p.Spec.Containers[0].Image
			ok = ok && ready && image == images[node]
			said = append(said, fmt.Sprintf("%s %s ready %v", node, image, ready))
		}
		return ok, strings.Join(said, "; ")
	})
}

// both workers with one image.
func both(image string) map[string]string { return map[string]string{"n2": image, "n3": image} }

// waits until the track says a reason, with words.
func (e *edge) waits(t *testing.T, reason string, words ...string) v1alpha1.ImageTrackStatus {
	t.Helper()
	var o v1alpha1.ImageTrack
	eventually(t, 5*time.Minute, "the track of the static pod says "+reason, func() (bool, string) {
		if err := e.s.Client.Get(t.Context(), client.ObjectKey{Name: edgeName}, &o); err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil {
			return false, "nothing yet"
		}
		ok := c.Reason == reason
		for _, word := range words {
			ok = ok && strings.Contains(c.Message, word)
		}
		return ok, c.Reason + ": " + c.Message
	})
	return o.Status
}

func (e *edge) approve(t *testing.T, build, digest string) {
	t.Helper()
	e.waits(t, v1alpha1.ReasonImageNeedsApproval, build)
	r, err := e.s.Run(t.Context(), "tags", "approve", edgeName, followed+build, "--reason", "a test")
	must(t, err)
	if r.Code != 0 || strings.TrimSpace(r.Stdout) != digest {
		t.Fatalf("refit tags approve: %+v", r)
	}
}

// adopted: the bytes run already, by a tag that moves; they are named by one that
// does not.
func (e *edge) adopted(t *testing.T) {
	e.first = e.publish(t, edgeRepo+":"+followed+"-b5.1", "first")
	e.registry.Tag(edgeRepo, e.first, followed)
	for _, node := range []string{"n2", "n3"} {
		must(t, e.s.Exec(t.Context(), node, "mkdir", "-p", path.Dir(edgeFile))) // a worker has none
		must(t, e.s.Lab.WriteFile(t.Context(), node, edgeFile, []byte(e.manifest(e.ref(""))), 0o600))
	}
	e.runs(t, both(e.ref("")))
	must(t, e.s.Client.Create(t.Context(), &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: edgeName}, Spec: v1alpha1.ImageTrackSpec{
		Repository: registryAddress + "/" + edgeRepo, Follow: v1alpha1.TrackFollow{Tag: followed}, Mode: v1alpha1.ModeWrite, IntervalSeconds: 10, ReadySeconds: 45,
		Targets: []v1alpha1.TrackTarget{{Kind: "StaticPod", Namespace: tracksNamespace, Name: edgeName}}}}))
	e.runs(t, both(e.long("-b5.1", e.first)))
	e.waits(t, v1alpha1.ReasonAsExpected)
}

// written: the tag moves, a person approves, and never are both pods away.
func (e *edge) written(t *testing.T) {
	ctx := t.Context()
	e.second = e.publish(t, edgeRepo+":"+followed+"-b5.2", "second")
	e.registry.Tag(edgeRepo, e.second, followed)
	e.approve(t, "-b5.2", e.second)
	m := scenario.WatchWorkload(ctx, e.s.Client, tracksNamespace, map[string]string{"app": edgeName})
	e.runs(t, both(e.long("-b5.2", e.second)))
	st := e.waits(t, v1alpha1.ReasonAsExpected)
	lowest, samples := m.Lowest()
	if e.seen.LowestEdge = lowest; lowest < 1 || samples == 0 {
		t.Errorf("of two static pods %d were ready (%d looks)", lowest, samples)
	}
	for _, node := range []string{"n2", "n3"} {
		if got, want := e.read(t, node), e.manifest(e.long("-b5.2", e.second)); got != want {
			t.Errorf("more than the image has changed on %s:\n%s\nwant\n%s", node, got, want)
		}
	}
	if mode, err := e.s.Output(ctx, "n2", "stat", "-c", "%a %u", edgeFile); err != nil || strings.TrimSpace(mode) != "600 0" {
		t.Errorf("mode and owner %q, %v", mode, err)
	}
	if r := st.Releases; len(r) < 2 || r[0].Digest != e.second || r[0].From != e.first || r[0].Result != v1alpha1.ReleaseDone || !strings.HasSuffix(r[0].Actor, ": a test") {
		t.Errorf("the records are %+v", r)
	}
}

// putBack: a build whose program is not there never becomes Ready.
func (e *edge) putBack(t *testing.T) {
	conf, err := e.app.ConfigFile()
	must(t, err)
	changed := conf.Config.DeepCopy()
	changed.Entrypoint = []string{"/there-is-no-such-program"}
	img, err := mutate.Config(e.app, *changed)
	must(t, err)
	to, err := name.ParseReference(e.registry.Ref(edgeRepo+":"+followed+"-b5.3"), name.Insecure)
	must(t, err)
	must(t, remote.Write(to, img))
	digest, err := img.Digest()
	must(t, err)
	e.broken = digest.String()
	e.registry.Tag(edgeRepo, e.broken, followed)
	begin := time.Now()
	e.approve(t, "-b5.3", e.broken)
	st := e.waits(t, v1alpha1.ReasonWorkloadBlocked, "node n2", "its old manifest is restored, and runs", "no other node starts")
	e.seen.PutBackSeconds = time.Since(begin).Seconds()
	e.runs(t, both(e.long("-b5.2", e.second)))
	for _, node := range []string{"n2", "n3"} {
		if got, want := e.read(t, node), e.manifest(e.long("-b5.2", e.second)); got != want {
			t.Errorf("on %s there is\n%s\nwant\n%s", node, got, want)
		}
	}
	if st.Releases[0].Result != v1alpha1.ReleaseHalted {
		t.Errorf("the record says %+v", st.Releases[0])
	}
	r, err := e.s.Run(t.Context(), "tags", "rollback", edgeName, "--reason", "it does not start")
	must(t, err)
	if r.Code != 0 || strings.TrimSpace(r.Stdout) != e.second {
		t.Fatalf("refit tags rollback: %+v", r)
	}
	eventually(t, 3*time.Minute, "the track is at what ran before", func() (bool, string) {
		var o v1alpha1.ImageTrack
		if err := e.s.Client.Get(t.Context(), client.ObjectKey{Name: edgeName}, &o); err != nil {
			return false, err.Error()
		}
		return o.Status.Releases[0].Digest == e.second && o.Status.Releases[0].Result == v1alpha1.ReleaseDone, fmt.Sprintf("%+v", o.Status.Releases[0])
	})
}
