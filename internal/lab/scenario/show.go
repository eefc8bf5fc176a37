package scenario

import (
	"context"
	"fmt"
)

// Show prints what a person would ask the cluster for, with its own kubectl.
func (s *Scenario) Show(ctx context.Context) {
	first := s.Lab.Nodes()[0]
	for _, args := range [][]string{{"get", "nodes", "-o", "wide"}, {"get", "refit", "-A"}} {
		out, err := s.Output(ctx, first, append([]string{"timeout", "20", "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)...)
		if err != nil {
			out = err.Error()
		}
		s.say("$ kubectl %s %s", args[0], args[1])
		fmt.Fprint(indent{s.Out}, out)
	}
}
