package gate

// HealthChecks is the name of the check that asks the pools' own health checks. A rollout asks
// them again, and a risk that is accepted for the gate counts there too.
const HealthChecks = "health-checks"

// healthChecks: what an administrator wants of the cluster before nodes move.
func healthChecks(in *Input) (no, warn blockers) { return in.Health, nil }
