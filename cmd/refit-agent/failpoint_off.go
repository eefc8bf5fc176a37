//go:build !failpoint

package main

import "github.com/refit-dev/refit/internal/agent/agentconfig"

// armFailpoints does nothing in a released agent.
func armFailpoints(agentconfig.Config) {}
