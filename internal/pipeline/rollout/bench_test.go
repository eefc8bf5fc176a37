package rollout

import (
	"testing"
	"time"
)

// BenchmarkNext decides for 30,000 nodes, 1,500 of which move.
func BenchmarkNext(b *testing.B) {
	c := newCluster(pool(func(p *Pool) { p.Budget, p.Soak, p.Zones, p.Canary = 1500, time.Minute, true, Amount{Value: 10} }), workersOf("edge", 30000)...)
	for i, np := range c.in.Plan.Nodes {
		m := c.truth[np.Node]
		switch {
		case i < 10000:
			m.AtTarget, m.FinishedAt = true, start.Add(-time.Hour)
		case i < 11500:
			markStarted(m)
			m.Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunRunning, Step: "kubeadm"}
		}
	}
	in := c.facts()
	b.ResetTimer()
	for range b.N {
		if d := Next(in); d.Done != 10000 || len(d.Current) != 1500 {
			b.Fatalf("%d done, %d current", d.Done, len(d.Current))
		}
	}
}
