package exit

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
		{nil, OK},
		{plain, Internal},
		{Usagef("bad %s", "flag"), UsageCode},
		{fmt.Errorf("while verifying: %w", With(Verification, plain)), Verification},
		{With(Blocked, nil), OK},
	} {
		if got := Code(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
	if !errors.Is(With(Failed, plain), plain) {
		t.Error("the cause is lost")
	}
}
