//go:build failpoint

package main

import (
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/failpoint"
)

// armFailpoints lets tests end this agent at a named line: bin/failpoint only.
func armFailpoints(c agentconfig.Config) { failpoint.KillFrom(c.WithDefaultPaths().Path("failpoint")) }
