//go:build !linux

package e2e

import (
	"testing"

	"github.com/refit-dev/refit/internal/lab/scenario"
)

func checkPredictions(t *testing.T, _ *scenario.Scenario) { t.Skip("a lab can only run on Linux") }
