//go:build !failpoint

package main

import "github.com/refit-dev/refit/internal/agent/config"

// armFailpoints does nothing in a released agent.
func armFailpoints(config.Config) {}
