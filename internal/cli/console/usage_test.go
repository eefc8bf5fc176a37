package console

import (
	"errors"
	"testing"
)

func TestCobraErrorsAreUsageErrors(t *testing.T) {
	t.Parallel()
	if !isUsage(errors.New(`unknown command "x" for "refit"`)) || isUsage(errors.New("disk full")) {
		t.Error("usage errors and others are mixed up")
	}
}
