package updateplan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An update that is limited to some nodes, as one per machine for Cluster API.
func TestOnlySomeNodes(t *testing.T) {
	t.Parallel()
	moved := func(n Node) Node {
		n.Kubelet = "v1.36.3"
		if n.ControlPlane {
			n.ControlPlaneVersion = "v1.36.3"
		}
		return n
	}
	cases := map[string]struct {
		in      Input
		nodes   []string
		verb    string // of kubeadm on the first node
		reasons []string
	}{
		"one control-plane member moves while the others stay": {input(func(in *Input) { in.Only = []string{"c2"} }, cp("c1", old), cp("c2", old), cp("c3", old), worker("w1", old)),
			[]string{"c2"}, "apply", nil},
		"the next member follows": {input(func(in *Input) { in.Only = []string{"c3"}; in.KubeadmVersion = "v1.36.3" }, cp("c1", old), moved(cp("c2", old)), cp("c3", old)),
			[]string{"c3"}, "node", nil},
		"a worker waits for every API server (trap 10)": {input(func(in *Input) { in.Only = []string{"w1"} }, cp("c1", old), moved(cp("c2", old)), worker("w1", old)),
			[]string{"w1"}, "node", []string{reasonVersionSkew}},
		"a worker moves under a control plane that has moved": {input(func(in *Input) { in.Only = []string{"w1"}; in.KubeadmVersion = "v1.36.3" }, moved(cp("c1", old)), worker("w1", old), worker("w2", old)),
			[]string{"w1"}, "node", nil},
		"what others run does not make the target older": {input(func(in *Input) { in.Only = []string{"w1"}; in.Target.Kubernetes = "v1.35.9" }, moved(cp("c1", old)), worker("w1", old)),
			[]string{"w1"}, "node", nil},
		"a node that is not there is no reason to be done": {input(func(in *Input) { in.Only = []string{"w9"} }, moved(cp("c1", old))), []string{}, "", []string{reasonNodeNotFound}},
		"a node that is there already":                     {input(func(in *Input) { in.Only = []string{"c1"} }, moved(cp("c1", old)), worker("w1", old)), []string{}, "", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := Make(tc.in)
			nodes, verb := []string{}, ""
			for _, np := range out.Plan.Nodes {
				nodes = append(nodes, np.Node)
				for _, s := range np.Steps {
					if s.Updater == "kubeadm" {
						verb = s.Verb
					}
				}
			}
			var reasons []string
			for _, v := range out.Blockers {
				reasons = append(reasons, v.Reason)
			}
			if diff := cmp.Diff([]any{tc.nodes, tc.verb, tc.reasons}, []any{nodes, verb, reasons}); diff != "" {
				t.Errorf("(-want +got): %s\n%+v", diff, out.Blockers)
			}
		})
	}
}
