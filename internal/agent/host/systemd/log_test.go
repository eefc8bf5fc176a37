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
