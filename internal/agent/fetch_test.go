package agent

import (
	"log/slog"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// Room is asked for before anything is fetched from a registry; what does not fit
// holds up only such fetches, and what the kubelet fetches is its affair.
func TestRoomForWhatIsFetched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		img  model.HeldImage
		full bool
	}{
		"it fits":                      {model.HeldImage{Registry: true, Size: 1 << 10}, false},
		"it does not fit":              {model.HeldImage{Registry: true, Size: 1 << 50}, true},
		"nobody knows how large it is": {model.HeldImage{Registry: true}, false},
		"its kubelet fetches it":       {model.HeldImage{Registry: true, Kubelet: true, Size: 1 << 50}, false},
	} {
		dir := t.TempDir()
		a := &Agent{conf: agentconfig.Config{Node: "n1", StateDir: dir}, runtime: &fakeRuntime{dir: dir, images: map[string]string{}, pins: map[string]bool{}},
			log: slog.New(slog.DiscardHandler), roomAt: fsutil.RoomAt, eviction: func() kube.Eviction { return kube.Eviction{} }}
		c.img.Name, c.img.Digest = "r.example/app:1", "sha256:a"
		src := source{}
		vs := a.asks(t.Context(), &desired.State{Hold: model.HoldList{Images: []model.HeldImage{c.img}}}, &src)
		if src.full != c.full || src.closed || len(vs) > 0 != c.full || c.full && vs[0].Reason != v1alpha1.ReasonInsufficientSpace {
			t.Errorf("%s: full %v, closed %v: %v", name, src.full, src.closed, vs)
		}
	}
}
