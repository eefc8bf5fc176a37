package agent

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// Room is asked for before anything is fetched from a registry; what does not fit
// blocks only such pulls. The kubelet checks the room for its own pulls.
func TestRoomForWhatIsFetched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		img  model.PinSetImage
		full bool
	}{
		"it fits":                {model.PinSetImage{Registry: true, Size: 1 << 10}, false},
		"it does not fit":        {model.PinSetImage{Registry: true, Size: 1 << 50}, true},
		"its size is unknown":    {model.PinSetImage{Registry: true}, false},
		"its kubelet fetches it": {model.PinSetImage{Registry: true, Kubelet: true, Size: 1 << 50}, false},
	} {
		dir := t.TempDir()
		sh := &shared{conf: agentconfig.Config{Node: "n1", StateDir: dir}, runtime: &fakeRuntime{dir: dir, images: map[string]string{}, pins: map[string]bool{}},
			log: slog.New(slog.DiscardHandler)}
		sh.authority = authority.Open(filepath.Join(dir, authority.File), nil, sh.log, nil, func() {})
		sh.keeper = imagekeeper.NewKeeper(sh.runtime, dir, nil)
		a := &imageLoop{shared: sh, space: &spaceChecker{shared: sh, roomAt: fsutil.RoomAt, eviction: func() kube.Eviction { return kube.Eviction{} }}}
		c.img.Name, c.img.Digest = "r.example/app:1", "sha256:a"
		src := source{}
		vs := a.checkRoom(t.Context(), &desired.State{Pins: model.PinSet{Images: []model.PinSetImage{c.img}}}, &src)
		if src.full != c.full || src.closed || len(vs) > 0 != c.full || c.full && vs[0].Reason != v1alpha1.ReasonInsufficientSpace {
			t.Errorf("%s: full %v, closed %v: %v", name, src.full, src.closed, vs)
		}
	}
}
