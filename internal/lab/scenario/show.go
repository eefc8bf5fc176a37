package scenario

import "context"

// Show prints what a person would ask the cluster for, with its own kubectl.
func (s *Scenario) Show(ctx context.Context) {
	s.kubectl(ctx, "get", "nodes", "-o", "wide")
	s.kubectl(ctx, "get", "refit", "-A")
}
