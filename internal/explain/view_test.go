package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMake(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	budget := Blocker{Reason: "DisruptionBudget", Message: "pod shop/app-1 may not be evicted: budget shop/app allows 0 disruptions", Fix: "add a replica"}
	tests := map[string]struct {
		facts    Facts
		headline string
		colour   string
		next     string
	}{
		"nothing known":               {Facts{}, "No node has reported", Green, "refit install"},
		"a stick waits for approval":  {Facts{Bundles: []Bundle{{Name: "b", Version: "1.36.3", Digest: "sha256:x"}}}, "waits for approval", Yellow, "refit approve sha256:x"},
		"approved, nothing planned":   {Facts{Bundles: []Bundle{{Name: "b", Digest: "sha256:x", Approved: true, Loaded: "2/3"}}}, "on 2/3 nodes", Green, "refit plan --to sha256:x"},
		"a budget blocks a drain":     {Facts{Update: &Update{Name: "u", Phase: "Updating", Version: "1.36.3", Done: 1, Total: 3, Current: []string{"n2"}, Blockers: []Blocker{budget}, BlockerCount: 3}}, "1 of 3 nodes done, now n2; waits: pod shop/app-1", Blue, "add a replica"},
		"halted says why":             {Facts{Update: &Update{Name: "u", Phase: "Halted", Version: "1.36.3", Total: 3, Blockers: []Blocker{{Message: "kubeadm failed on n1:\nerror: x"}}}}, "kubeadm failed on n1", Red, "refit retry u"},
		"a hop says its own version":  {Facts{Update: &Update{Name: "u", Phase: "Updating", Version: "1.36.3", Hop: 1, Hops: 2, HopVersion: "1.35.4", Done: 1, Total: 3}}, "Updating to 1.36.3 (hop 1 of 2, to 1.35.4): 1 of 3 nodes done", Blue, ""},
		"between two hops":            {Facts{Update: &Update{Name: "u", Phase: "Preparing", Version: "1.36.3", Hop: 2, Hops: 2, HopVersion: "1.36.3", BetweenHops: true, Blockers: []Blocker{{Message: "node n2 loads"}}}}, "Hop 1 of 2 is done; before hop 2, to 1.36.3, every check passes again: node n2 loads", Blue, ""},
		"paused":                      {Facts{Update: &Update{Name: "u", Phase: "Updating", Version: "1.36.3", Total: 3, Paused: true}}, "Paused. Updating", Yellow, "refit resume u"},
		"done counts what was seen":   {Facts{Update: &Update{Name: "u", Phase: "Done", Version: "1.36.3", Done: 3, Total: 3}}, "Done: 3 of 3 nodes", Green, ""},
		"ready waits for a person":    {Facts{Update: &Update{Name: "u", Phase: "Ready", Version: "1.36.3", Total: 3}}, "waits for refit apply", Yellow, "refit apply u"},
		"started a moment ago":        {Facts{Update: &Update{Name: "u", Phase: "Ready", Version: "1.36.3", Total: 3, Starting: true}}, "Starting the update", Blue, ""},
		"blocked names cause and fix": {Facts{Update: &Update{Name: "u", Phase: "Blocked", Blockers: []Blocker{{Message: "node n2 needs 5 bytes, 3 are free", Fix: "free 2 bytes on n2"}}}}, "node n2 needs 5 bytes", Yellow, "free 2 bytes"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.facts.Now = now
			v := Make(tc.facts)
			if !strings.Contains(v.Headline, tc.headline) {
				t.Errorf("headline %q does not have %q", v.Headline, tc.headline)
			}
			if strings.Contains(v.Headline, "\n") {
				t.Errorf("the headline has more than one line: %q", v.Headline)
			}
			if v.Colour != tc.colour {
				t.Errorf("colour %s, want %s", v.Colour, tc.colour)
			}
			if !strings.Contains(v.Next, tc.next) {
				t.Errorf("next %q does not have %q", v.Next, tc.next)
			}
			if tc.facts.Update != nil && v.MoreWaits != max(0, tc.facts.Update.BlockerCount-len(tc.facts.Update.Blockers)) {
				t.Errorf("more waits %d", v.MoreWaits)
			}
		})
	}
}

func TestElapsedEndsWhenTheUpdateEnds(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	u := &Update{Phase: "Done", StartedAt: start, FinishedAt: start.Add(90 * time.Second)}
	if got := Make(Facts{Now: start.Add(time.Hour), Update: u}).Elapsed; got != 90 {
		t.Errorf("elapsed %d, want 90", got)
	}
}

func TestBytesAreReadable(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 3 << 40: "3.0 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

// The remaining time is a range in minutes, and never negative.
func TestLeft(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		from, to time.Duration
		want     string
	}{
		"a range":          {20 * time.Minute, 85 * time.Minute, "about 20m to 1h25m left"},
		"one and the same": {5 * time.Minute, 5*time.Minute + 10*time.Second, "about 5m left"},
		"late":             {-time.Hour, -time.Minute, "about 1m left"},
		"a first update":   {2 * time.Minute, 9 * time.Minute, "about 2m to 9m left by the times of refit's lab"},
	} {
		u := &Update{Phase: "Updating", FromLab: strings.HasPrefix(name, "a first"), Earliest: now.Add(tc.from), Latest: now.Add(tc.to), Away: 42, Longest: 40}
		v := Make(Facts{Now: now, Update: u})
		if v.Left != tc.want || !v.DoneLatest.Equal(u.Latest) || v.Away != 42 || v.Longest != 40 {
			t.Errorf("%s: %q %+v", name, v.Left, v)
		}
	}
	if v := Make(Facts{Now: now, Update: &Update{Phase: "Updating"}}); v.Left != "" {
		t.Errorf("no forecast, but left is %q", v.Left)
	}
}

// A site of one node sees each step. 100 % is kept for the end.
func TestPercentGrowsWithSteps(t *testing.T) {
	t.Parallel()
	one := func(done int, current []string, n Node) View {
		return Make(Facts{Update: &Update{Name: "u", Phase: "Updating", Done: done, Total: 1, Current: current}, Nodes: []Node{n}})
	}
	n1 := []string{"n1"}
	var percents []int
	var steps []string
	for _, v := range []View{
		one(0, nil, Node{Name: "n1"}),                              // planned
		one(0, n1, Node{Name: "n1"}),                               // drained
		one(0, n1, Node{Name: "n1", StepsTotal: 3}),                // permitted
		one(0, n1, Node{Name: "n1", StepsTotal: 3, StepsDone: 1}),  //
		one(0, n1, Node{Name: "n1", StepsTotal: 3, StepsDone: 3}),  // observed
		one(1, nil, Node{Name: "n1", StepsTotal: 3, StepsDone: 3}), // done; the permission stays
	} {
		percents, steps = append(percents, v.Percent), append(steps, v.Step())
	}
	if want := []int{0, 0, 20, 40, 80, 100}; !slices.Equal(percents, want) {
		t.Errorf("percent %v, want %v", percents, want)
	}
	if want := []string{"", "", "step 1 of 3 on n1", "step 2 of 3 on n1", "all 3 steps of n1 are done", ""}; !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
}

// However nodes share the steps of an update, percent never shrinks while they do them.
// Percent counts the hops that are done.
func TestPercentOfHops(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ hop, done, want int }{{1, 0, 0}, {1, 3, 50}, {2, 0, 50}, {2, 3, 100}} {
		v := Make(Facts{Update: &Update{Name: "u", Phase: "Updating", Hop: tc.hop, Hops: 2, Done: tc.done, Total: 3}})
		if v.Percent != tc.want {
			t.Errorf("hop %d with %d of 3 nodes: %d percent, want %d", tc.hop, tc.done, v.Percent, tc.want)
		}
	}
}

func TestPercentNeverShrinks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Node {
			return Node{StepsTotal: rapid.IntRange(1, 9).Draw(t, "steps")}
		}), 1, 8).Draw(t, "nodes")
		for i := range nodes {
			nodes[i].Name = string(rune('a' + i))
		}
		u := &Update{Name: "u", Phase: "Updating", Total: len(nodes)}
		last := -1
		for u.Done < len(nodes) {
			i := rapid.IntRange(0, len(nodes)-1).Draw(t, "node")
			n := &nodes[i]
			switch at := slices.Index(u.Current, n.Name); {
			case at < 0 && n.StepsDone < n.StepsTotal:
				u.Current = append(u.Current, n.Name)
			case at >= 0 && n.StepsDone < n.StepsTotal:
				n.StepsDone++
			case at >= 0:
				u.Current = slices.Delete(u.Current, at, at+1)
				u.Done++
			}
			v := Make(Facts{Update: u, Nodes: nodes})
			if v.Percent < last || (v.Percent == 100) != (u.Done == len(nodes)) {
				t.Fatalf("%d %% after %d %%, with %d of %d nodes done", v.Percent, last, u.Done, len(nodes))
			}
			last = v.Percent
		}
	})
}
