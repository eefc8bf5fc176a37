package systemd

import (
	"fmt"
	"strings"
	"testing"
)

// A kubelet that systemd starts again and again says once why it does not run.
func TestLastLinesRepeatNothing(t *testing.T) {
	start := func(second, pid int) string {
		return fmt.Sprintf(`Starting kubelet.service - kubelet: The Kubernetes Node Agent...
Started kubelet.service - kubelet: The Kubernetes Node Agent.
Flag --feature-gates has been deprecated, This parameter should be set via the config file.
E1122 21:59:%02d.867826    %d run.go:72] "command failed" err="unrecognized feature gate: MemoryManager"
kubelet.service: Main process exited, code=exited, status=1/FAILURE
kubelet.service: Failed with result 'exit-code'.
`, second, pid)
	}
	log := "an older line\n" + start(44, 2144) + start(45, 2152) + "Starting kubelet.service - kubelet: The Kubernetes Node Agent..."
	got := lastLines(log, 12)
	want := "an older line\n" + strings.Join(strings.Split(start(45, 2152), "\n")[1:], "\n") + "Starting kubelet.service - kubelet: The Kubernetes Node Agent..."
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := lastLines(log, 2); got != "kubelet.service: Failed with result 'exit-code'.\nStarting kubelet.service - kubelet: The Kubernetes Node Agent..." {
		t.Errorf("of two lines: %s", got)
	}
	if got := lastLines("", 12); got != "" {
		t.Errorf("of an empty log: %q", got)
	}
}

func TestWithoutSecrets(t *testing.T) {
	for what, c := range map[string]struct{ in, want string }{
		"a bad flag stays":               {"E1121 kubelet failed to parse flag: unknown flag: --no-such-flag", "E1121 kubelet failed to parse flag: unknown flag: --no-such-flag"},
		"the reason of a refusal stays":  {`Unable to register node "n2" err="connect: connection refused" token expired`, `Unable to register node "n2" err="connect: connection refused" token expired`},
		"a flag":                         {"--bootstrap-token=abcdef.0123456789abcdef --v=2", "--bootstrap-token=[hidden] --v=2"},
		"a field":                        {`{"password": "hunter2","user":"x"}`, `{"password": "[hidden]","user":"x"}`},
		"a header":                       {"Authorization: Bearer abc.def.ghi rest", "Authorization: [hidden] rest"},
		"a scheme alone":                 {"sent bearer abcdefghij", "sent bearer [hidden]"},
		"the user of a proxy":            {"proxy http://me:pw@proxy:3128 refused", "proxy http://[hidden]@proxy:3128 refused"},
		"a token of a service account":   {"got eyJhbGciOi.eyJpc3MiOi.c2ln", "got [hidden]"},
		"kubeadm's token":                {"join with abcdef.0123456789abcdef", "join with [hidden]"},
		"a key":                          {"read -----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY----- done", "read [hidden] done"},
		"a key that is cut off":          {"read -----BEGIN EC PRIVATE KEY-----\nAAAA", "read [hidden]"},
		"a path of a file with a secret": {"--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml", "--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml"},
	} {
		if got := WithoutSecrets(c.in); got != c.want {
			t.Errorf("%s: %q, not %q", what, got, c.want)
		}
	}
}
