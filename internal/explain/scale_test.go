package explain

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkMake30000 explains an update of thirty thousand nodes.
func BenchmarkMake30000(b *testing.B) {
	f := Facts{Now: time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC), Update: &Update{Name: "u", Version: "1.36.3", Phase: "Updating", Done: 15000, Total: 30000, BlockerCount: 1500}}
	for i := range 30000 {
		f.Nodes = append(f.Nodes, Node{Name: fmt.Sprintf("node-%05d", i), Role: "worker", Ready: true, Kubelet: "v1.36.3", Phase: "Ready", ImagesTotal: 24, ImagesReady: 24, ImagesPinned: 24})
	}
	for i := range 20 {
		f.Update.Blockers = append(f.Update.Blockers, Blocker{Reason: "Updating", Message: f.Nodes[i].Name + " is being updated", Object: "Node/" + f.Nodes[i].Name})
	}
	for b.Loop() {
		if v := Make(f); len(v.Nodes) != 30000 || v.MoreWaits != 1480 {
			b.Fatalf("%d nodes, %d more", len(v.Nodes), v.MoreWaits)
		}
	}
}
