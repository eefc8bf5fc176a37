package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// newerImage is a PinSetImage as a later version may have it.
type newerImage struct {
	model.PinSetImage
	Priority int `json:"priority"`
}

// newerHold is a hold list as a later version may write it.
type newerHold struct {
	Images   []newerImage `json:"images"`
	Optional []string     `json:"optional,omitempty"`
}

func newerList(h *bundle.Header, optional ...string) newerHold {
	l := newerHold{Optional: optional}
	for _, i := range everything(h).Images {
		l.Images = append(l.Images, newerImage{i, 1})
	}
	return l
}

// outdated waits until the node refuses a Content because of a member, and asks that all
// that it held is held still.
func outdated(t *testing.T, n *testNode, content, member string, pins int) {
	t.Helper()
	s := n.reported("refused for "+member, func(s *v1alpha1.NodeUpdateStatus) bool {
		status, reason := condition(s, v1alpha1.ConditionStalled)
		return status == "True" && reason == v1alpha1.ReasonAgentOutdated && strings.Contains(s.Message, member)
	})
	for _, word := range []string{content[:12], agentVersion(), "update refit"} {
		if !strings.Contains(s.Message, word) {
			t.Errorf("the message does not say %s: %s", word, s.Message)
		}
	}
	if got := n.runtime.pinned(); got != pins {
		t.Errorf("%d images are pinned, %d were", got, pins)
	}
	w := desired.ReadFile(n.conf.Path("want.json"), statefile.Ignore)
	if w == nil || w.Spec.Pins == content || w.Spec.Trust == content || len(w.Pins.Images) != pins {
		t.Errorf("after a restart the agent knows %+v", w)
	}
}

func TestAContentOfANewerControllerIsRefusedAndNothingIsLetGo(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	n := newTestNode(t, "n1", 17986, path)
	approve(t, h, everything(h), n)
	n.reported("held", held)
	pins := n.runtime.pinned()
	known := n.api.nu.Spec.DeepCopy()
	hold := n.api.content(t, v1alpha1.ContentPins, newerList(h))
	trust := n.api.content(t, v1alpha1.ContentTrust, map[string]any{"policies": []any{}, "expires": "2027"})

	t.Run("a hold list", func(t *testing.T) {
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Pins = hold })
		outdated(t, n, hold, "images.priority", pins)
	})
	t.Run("also after a restart", func(t *testing.T) {
		n.stop()
		n.api.mu.Lock()
		n.api.status = nil
		n.api.mu.Unlock()
		n.start()
		outdated(t, n, hold, "images.priority", pins)
		n.runtime.lose("registry.k8s.io/pause:3.10.2")
		for i := 0; !n.runtime.has("registry.k8s.io/pause:3.10.2"); i++ {
			if i == 600 {
				t.Fatal("the agent does not bring back what it is to hold")
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	t.Run("it goes on with a list that it knows", func(t *testing.T) {
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { *s = *known })
		n.reported("held", held)
	})
	t.Run("a trust list", func(t *testing.T) {
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Trust = trust })
		outdated(t, n, trust, "expires", pins)
	})
	t.Run("optional members are ignored", func(t *testing.T) {
		name := n.api.content(t, v1alpha1.ContentPins, newerList(h, "images.priority"))
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { *s = *known; s.Pins = name })
		n.reported("held", func(s *v1alpha1.NodeUpdateStatus) bool { return held(s) && s.Pins.Content == name })
	})
}

// What an agent of another version knew of a Content is not all that this one knows.
func TestAnotherVersionReadsItsContentsAnew(t *testing.T) {
	n := idle(t, &fakeRuntime{})
	api := newFakeAPI()
	name := api.content(t, v1alpha1.ContentTrust, model.Trust{RequireSignatures: true})
	nu := &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Trust: name}}
	for _, by := range []string{"", "0.0.1", agentVersion()} {
		t.Run(fmt.Sprintf("read by %q", by), func(t *testing.T) {
			path := n.conf.Path("want.json")
			before := &desired.State{ReadBy: by, Spec: nu.Spec} // without requireSignatures
			if err := before.Save(path); err != nil {
				t.Fatal(err)
			}
			w, err := desired.Resolve(t.Context(), api, nu, desired.ReadFile(path, statefile.Ignore))
			if err != nil {
				t.Fatal(err)
			}
			if want := by != agentVersion(); w.Trust.RequireSignatures != want {
				t.Errorf("requireSignatures is %t, want %t", w.Trust.RequireSignatures, want)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		})
	}
}
