package osdriver_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
)

// What hides the image is found, what is every machine's own is not.
func TestEtcDrift(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		diff  string
		want  []osdriver.Drift
	}{
		"a unit that hides the image's": {map[string]string{"etc/systemd/system/a.service": "old", "usr/lib/systemd/system/a.service": "new", "etc/systemd/system/b.service": "b", "usr/lib/systemd/system/c.service": "c"}, "",
			[]osdriver.Drift{{Kind: osdriver.DriftShadow, Detail: "/etc/systemd/system/a.service hides /usr/lib/systemd/system/a.service"}}},
		"the same content hides nothing": {map[string]string{"etc/sysctl.d/a.conf": "x", "usr/lib/sysctl.d/a.conf": "x"}, "", nil},
		"a link is a person's decision":  {map[string]string{"etc/systemd/system/a.service": "-> /dev/null", "usr/lib/systemd/system/a.service": "x"}, "", nil},
		"a file whose content is pinned (T3)": {nil, "M    ssh/sshd_config\nA    new\nD    gone\nM    hostname\nM    ssh/ssh_host_rsa_key\n",
			[]osdriver.Drift{{Kind: osdriver.DriftShadow, Detail: "/etc/ssh/sshd_config was changed on the node: a new image does not change it any more"}}},
		"a host that updates itself (T6)": {map[string]string{"usr/lib/systemd/system/timers.target.wants/bootc-fetch-apply-updates.timer": "-> ../bootc-fetch-apply-updates.timer"}, "",
			[]osdriver.Drift{{Kind: osdriver.DriftSelfUpdates, Detail: "bootc-fetch-apply-updates.timer is enabled and moves this host by itself"}}},
		"a timer that was masked": {map[string]string{"usr/lib/systemd/system/timers.target.wants/rpm-ostreed-automatic.timer": "-> ../x", "etc/systemd/system/rpm-ostreed-automatic.timer": "-> /dev/null"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &osdriver.Script{Answers: map[string]osdriver.Answer{"ostree admin config-diff": {Out: c.diff}}}
			if d := cmp.Diff(c.want, s.Host(t, c.files).EtcDrift(t.Context())); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// A host with a hundred changed files does not fill a status.
func TestEtcDriftEnds(t *testing.T) {
	s := &osdriver.Script{Answers: map[string]osdriver.Answer{"ostree admin config-diff": {Out: strings.Repeat("M    x\n", 100)}}}
	got := s.Host(t, nil).EtcDrift(t.Context())
	if len(got) != 17 || got[16].Detail != "and 84 more" {
		t.Fatal(len(got), got[len(got)-1])
	}
}

func TestFinaliseFailure(t *testing.T) {
	s := &osdriver.Script{Answers: map[string]osdriver.Answer{"journalctl --boot=-1 --unit=ostree-finalize-staged.service": {Out: "error: No space left\n\n"}}}
	if got := s.Host(t, nil).FinaliseFailure(t.Context()); got != "error: No space left" {
		t.Fatal(got)
	}
	if !strings.Contains(s.Ran[0], "--unit=bootc-finalize-staged.service") {
		t.Fatal("a host whose deployments bootc keeps is not asked", s.Ran)
	}
	if got := (&osdriver.Script{}).Host(t, nil).FinaliseFailure(t.Context()); got != "" {
		t.Fatal(got)
	}
}

// Commands run without variables that make programs assume a container.
func TestCommand(t *testing.T) {
	t.Setenv("container", "lab")
	out, err := osdriver.Command{}.Run(t.Context(), strings.NewReader("x"), "sh", "-c", `cat; echo "[$container]"`)
	if err != nil || string(out) != "x[]\n" {
		t.Fatalf("%q %v", out, err)
	}
	_, err = osdriver.Command{}.Run(t.Context(), nil, "sh", "-c", "echo why >&2; exit 3")
	if err == nil || err.Error() != "`sh -c echo why >&2; exit 3` ended with 3: why" {
		t.Fatal(err)
	}
	if _, err = (osdriver.Command{}).Run(t.Context(), nil, "/nonexistent-program"); err == nil || osdriver.Missing(err) {
		t.Fatal("a path that is not there is no missing program of the host", err)
	}
	if _, err = (osdriver.Command{}).Run(t.Context(), nil, "nonexistent-program"); !osdriver.Missing(err) {
		t.Fatal(err)
	}
}
