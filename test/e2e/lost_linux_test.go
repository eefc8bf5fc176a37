package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// removedByHand takes a pinned image off a node and waits until it is back and an
// event says that it came from there.
func removedByHand(t *testing.T, s *scenario.Scenario, node string, b scenario.Bundle, image, from string) {
	t.Helper()
	ctx := t.Context()
	// By its ID: by a name, a runtime may take off the name alone.
	for _, i := range images(t, s, node) {
		if slices.Contains(i.Tags, image) {
			must(t, s.RemoveImage(ctx, node, i.ID))
		}
	}
	began := time.Now()
	held, err := s.Held(ctx, node, b, image)
	must(t, err)
	if held {
		t.Logf("node %s has %s again already", node, image)
	}
	eventually(t, time.Minute, "it is back on "+node+", pinned", func() (bool, string) {
		for _, i := range images(t, s, node) {
			if slices.Contains(i.Tags, image) {
				return i.Pinned && len(i.Digests) > 0, fmt.Sprintf("%+v", i)
			}
		}
		return false, "it is not there"
	})
	seconds := time.Since(began).Round(100 * time.Millisecond).Seconds()
	var said string
	eventually(t, time.Minute, "an event says from where", func() (bool, string) {
		said = event(t, s, "ImageRestored", node, image)
		return strings.Contains(said, from), said
	})
	measured(t, "deletedByHand", map[string]any{"node": node, "runtime": s.Lab.Runtime(node), "image": image, "backAndPinnedAfterSeconds": seconds, "event": said})
}

// event is the message of an event about a node that has the word in it.
func event(t *testing.T, s *scenario.Scenario, reason, node, word string) string {
	t.Helper()
	var l corev1.EventList
	if err := s.Client.List(t.Context(), &l, client.InNamespace("default")); err != nil {
		return err.Error()
	}
	for _, e := range l.Items {
		if e.Reason == reason && e.InvolvedObject.Name == node && strings.Contains(e.Message, word) {
			return e.Message
		}
	}
	return fmt.Sprintf("%d events, none of it", len(l.Items))
}

// withoutBlobs removes what this node's agent keeps of an image.
func withoutBlobs(t *testing.T, s *scenario.Scenario, node string, b scenario.Bundle, image string) {
	t.Helper()
	ctx := t.Context()
	const dir = "/var/lib/refit/blobs/sha256"
	remove := []string{"rm", "--"}
	for look := []string{b.Images[image]}; len(look) > 0; look = look[1:] {
		file := path.Join(dir, strings.TrimPrefix(look[0], "sha256:"))
		if err := s.Exec(ctx, node, "test", "-f", file); err != nil || slices.Contains(remove, file) {
			continue // that of another platform
		}
		remove = append(remove, file)
		text, err := s.Output(ctx, node, "head", "-c", "65536", file)
		must(t, err)
		type blob struct {
			Digest string `json:"digest"`
		}
		var has struct {
			Manifests []blob `json:"manifests"`
			Config    blob   `json:"config"`
			Layers    []blob `json:"layers"`
		}
		if json.Unmarshal([]byte(text), &has) != nil {
			continue // a layer, or a configuration with nothing in it for us
		}
		for _, d := range slices.Concat(has.Manifests, has.Layers, []blob{has.Config}) {
			if strings.HasPrefix(d.Digest, "sha256:") {
				look = append(look, d.Digest)
			}
		}
	}
	if len(remove) < 5 {
		t.Fatalf("node %s: of %s only %v were found in %s", node, image, remove[2:], dir)
	}
	must(t, s.Exec(ctx, node, remove...))
	t.Logf("node %s: %d blobs of %s removed", node, len(remove)-2, image)
}

// cutOffPull makes a kubelet believe what it believes when it was ended in the
// middle of a pull of an image that was brought in meanwhile: that a user's
// secret was needed. Then a pod of IfNotPresent does not start offline, with the
// image in plain sight, until refit's agent checks the kubelet's records.
func cutOffPull(t *testing.T, s *scenario.Scenario, node, image string) {
	t.Helper()
	ctx := t.Context()
	const records = "/var/lib/kubelet/image_manager"
	must(t, s.Exec(ctx, node, "systemctl", "stop", "refit-agent"))
	must(t, s.Exec(ctx, node, "systemctl", "stop", "kubelet"))
	must(t, s.Exec(ctx, node, "mkdir", "-p", records+"/pulling"))
	intent := fmt.Sprintf("%s/pulling/sha256-%x", records, sha256.Sum256([]byte(image)))
	must(t, s.Lab.WriteFile(ctx, node, intent, fmt.Appendf(nil, `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":%q}`, image), 0o600))
	must(t, s.Exec(ctx, node, "systemctl", "start", "kubelet"))
	// The kubelet itself makes its record of that.
	uncredited := func() (string, error) {
		out, err := s.Output(ctx, node, "sh", "-c", "cd "+records+"/pulled 2>/dev/null && grep -L credentialMapping * ; true")
		return strings.TrimSpace(out), err
	}
	var record string
	eventually(t, 2*time.Minute, "the kubelet of "+node+" has a record without credentials", func() (bool, string) {
		out, err := uncredited()
		must(t, err)
		record = out
		return out != "", out
	})
	failing := plainPod("cut-off-"+node, node, image)
	must(t, s.Client.Create(ctx, failing))
	var said string
	eventually(t, 3*time.Minute, "the pod does not start though the image is there", func() (bool, string) {
		_, said = phase(t, s, failing)
		return strings.Contains(said, "ErrImagePull") || strings.Contains(said, "ImagePullBackOff"), said
	})
	must(t, s.Exec(ctx, node, "systemctl", "start", "refit-agent"))
	var repaired string
	eventually(t, 3*time.Minute, "the agent repairs it", func() (bool, string) {
		repaired = event(t, s, "PullRecordsMended", node, "records")
		left, err := uncredited()
		return err == nil && left == "" && strings.Contains(repaired, "cut off"), repaired + " " + left
	})
	must(t, s.Client.Delete(ctx, failing))
	good := plainPod("repaired-"+node, node, image)
	must(t, s.Client.Create(ctx, good))
	eventually(t, 2*time.Minute, "a pod of IfNotPresent starts", func() (bool, string) {
		p, said := phase(t, s, good)
		return p == corev1.PodRunning, said
	})
	must(t, s.Client.Delete(ctx, good))
	version, _, err := s.Kubelet(ctx, node)
	must(t, err)
	measured(t, "cutOffPull", map[string]any{"node": node, "runtime": s.Lab.Runtime(node), "kubelet": version, "record": record, "podBefore": said, "event": repaired, "podAfter": "Running"})
}

func plainPod(name, node, image string) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: &grace, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: corev1.PullIfNotPresent}}}}
}

// phase of a pod, and that with what its containers wait for.
func phase(t *testing.T, s *scenario.Scenario, p *corev1.Pod) (corev1.PodPhase, string) {
	t.Helper()
	var now corev1.Pod
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(p), &now); err != nil {
		return "", err.Error()
	}
	said := string(now.Status.Phase)
	for _, c := range now.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			said += " " + c.State.Waiting.Reason + " " + c.State.Waiting.Message
		}
	}
	return now.Status.Phase, said
}

// pauseOf is the bundle's pause image: one that every pod may run.
func pauseOf(t *testing.T, b scenario.Bundle) string {
	t.Helper()
	for name := range b.Images {
		if strings.HasPrefix(name, "registry.k8s.io/pause:") {
			return name
		}
	}
	t.Fatal("no pause image in the bundle")
	return ""
}

// TestCutOffPull shows the same with the release before, whose kubelet is the
// first that keeps such records.
func TestCutOffPull(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("pulls that are cut off take a lab of their own: make e2e")
	}
	s := prepared(t, scenario.Options{Name: "pulls-e2e", From: from, To: to, Nodes: 2, Runtime: lab.RuntimeMixed, MediumNode: "n1"})
	keepStory(t, "pullrecords.json")
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "images.tar", Version: "1.0.0", LeaveKubernetes: true})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, device))
	must(t, s.Approve(ctx, b))
	eventually(t, 5*time.Minute, "both nodes hold it", func() (bool, string) {
		var l v1alpha1.BundleList
		if err := s.Client.List(ctx, &l); err != nil || len(l.Items) != 1 {
			return false, fmt.Sprint(len(l.Items), err)
		}
		return l.Items[0].Status.Loaded == "2/2", l.Items[0].Status.Loaded
	})
	for _, n := range s.Lab.Nodes() {
		step(t, "a pull that was cut off on "+n+" with "+s.Lab.Runtime(n), func(t *testing.T) { cutOffPull(t, s, n, pauseOf(t, b)) })
	}
}
