//go:build failpoint

package main

import (
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/failpoint/kill"
)

// armFailpoints lets tests end this agent at a named line: bin/failpoint only.
func armFailpoints(c agentconfig.Config) { kill.From(c.WithPlaces().Path("failpoint")) }
