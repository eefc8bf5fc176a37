package installcmd

import (
	"testing"

	"github.com/refit-dev/refit/internal/cli/exit"
)

func TestParseHosts(t *testing.T) {
	t.Parallel()
	got, err := parseHosts([]string{"n1", "n2:/dev/sdb"})
	if err != nil || len(got) != 2 || got[1] != (host{"n2", "/dev/sdb"}) {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range []string{"", ":/dev/sdb", "n1:sdb", "-oProxyCommand=x"} {
		if _, err := parseHosts([]string{bad}); exit.Code(err) != exit.UsageCode {
			t.Errorf("%q is taken: %v", bad, err)
		}
	}
}
