package console

import (
	"errors"
	"fmt"
	"testing"
)

func TestCode(t *testing.T) {
	plain := errors.New("plain")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{plain, ExitInternal},
		{UsageErrorf("bad %s", "flag"), ExitUsage},
		{fmt.Errorf("while verifying: %w", WithExit(ExitVerification, plain)), ExitVerification},
		{WithExit(ExitBlocked, nil), ExitOK},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
	if !errors.Is(WithExit(ExitFailed, plain), plain) {
		t.Error("the cause is lost")
	}
}
