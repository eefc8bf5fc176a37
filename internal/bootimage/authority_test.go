package bootimage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage"
)

// What is done about the authority in a first-boot configuration.
func TestDecideAuthority(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	contest := bootimage.Contest{Writes: 3, Window: 6 * time.Hour, Quiet: time.Hour}
	past := func(to string, ago ...time.Duration) (out []bootimage.Past) {
		for _, d := range ago {
			out = append(out, bootimage.Past{At: at.Add(-d), To: to})
		}
		return out
	}
	for name, tc := range map[string]struct {
		in   bootimage.Authority
		want string // action, state, reason
		says string
	}{
		"an old authority is replaced":                {bootimage.Authority{Mode: bootimage.NewMachinesOnly}, "Write Current AsExpected", "trusts the server's authority"},
		"the same costs nothing":                      {bootimage.Authority{Mode: bootimage.Roll, Same: true}, "Suggest Current AsExpected", "trusts the server's authority"},
		"a mode that does not write":                  {bootimage.Authority{Mode: bootimage.Observe}, "Suggest Outdated AuthorityOutdated", "mode Observe writes nothing"},
		"nor does Propose":                            {bootimage.Authority{Mode: bootimage.Propose}, "Suggest Outdated AuthorityOutdated", "mode Propose writes nothing"},
		"cloud-init is left alone":                    {bootimage.Authority{Mode: bootimage.Roll, Left: "it is no Ignition configuration"}, "Suggest Excluded AsExpected", "left alone"},
		"several authorities are refused":             {bootimage.Authority{Mode: bootimage.Roll, Unusable: "it has 2"}, "Suggest Unknown AuthorityUnusable", "it has 2"},
		"a Secret of another tool":                    {bootimage.Authority{Mode: bootimage.Roll, Owner: "argocd"}, "Suggest Skipped AuthorityOutdated", "argocd writes it"},
		"three times undone":                          {bootimage.Authority{Mode: bootimage.Roll, UndoneBy: "script", Past: past("new", 3*time.Minute, 2*time.Minute, time.Minute)}, "Suggest Contested AuthorityContested", "written 3 times and reverted by script"},
		"three times another authority is no contest": {bootimage.Authority{Mode: bootimage.Roll, Past: past("old", 3*time.Minute, 2*time.Minute, time.Minute)}, "Write Current AsExpected", ""},
		"after quiet it is tried again":               {bootimage.Authority{Mode: bootimage.Roll, Past: past("new", 63*time.Minute, 62*time.Minute, 61*time.Minute)}, "Write Current AsExpected", ""},
		"the other side is not quiet":                 {bootimage.Authority{Mode: bootimage.Roll, ForeignAt: at.Add(-time.Minute), Past: past("new", 63*time.Minute, 62*time.Minute, 61*time.Minute)}, "Suggest Contested AuthorityContested", ""},
	} {
		tc.in.Now, tc.in.Secret, tc.in.Wanted, tc.in.Contest = at, "ns/worker-user-data", "new", contest
		d := bootimage.DecideAuthority(tc.in)
		if got := d.Action + " " + d.State + " " + d.Reason; got != tc.want || !strings.Contains(d.Message, tc.says) || !strings.HasPrefix(d.Message, "Secret ns/worker-user-data: ") {
			t.Errorf("%s: %s: %s", name, got, d.Message)
		}
		if d.Action != bootimage.Write && d.State != bootimage.Current && d.State != bootimage.Excluded && d.Fix == "" {
			t.Errorf("%s: no fix", name)
		}
	}
}
