package e2e

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/ignition"
	"github.com/refit-dev/refit/internal/convert"
)

// TestFirstBoot runs under a real systemd, with a real kubelet. The machine's unit keeps
// the kubelet from starting while the limits are not met, and the console shows why. The
// kubelet starts once they are met, and the check does not run again. The machine boots no
// other image: the test's limit is one that its own image cannot meet.
func TestFirstBoot(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a unit before a real kubelet takes a lab of its own: make e2e")
	}
	s := start(t, "firstboot", 2)
	ctx := t.Context()
	const node = "n2"
	run := func(argv ...string) (string, error) {
		var out bytes.Buffer
		err := s.Lab.Exec(ctx, node, nil, &out, &out, argv...)
		return out.String(), err
	}
	put := func(path, mode string, content io.Reader) {
		t.Helper()
		must(t, s.Lab.Exec(ctx, node, content, io.Discard, io.Discard, "sh", "-c", "mkdir -p $(dirname "+path+") && cat > "+path+".new && chmod "+mode+" "+path+".new && mv "+path+".new "+path))
	}
	give := func(rules ...v1alpha1.SkewRule) {
		t.Helper()
		data, err := (&convert.SkewLimits{Pool: "workers", Fix: "Use image 99.1.", Rules: rules}).JSON()
		must(t, err)
		put(convert.LimitsPath, "600", bytes.NewReader(data))
	}
	step(t, "the unit is there before the kubelet", func(t *testing.T) {
		agent, err := os.Open("../../bin/refit-agent")
		must(t, err)
		defer agent.Close()
		put(ignition.Agent, "755", agent)
		put("/etc/systemd/system/"+ignition.Unit, "644", strings.NewReader(ignition.UnitText(convert.LimitsPath)))
		give(v1alpha1.SkewRule{Name: "os", MinimumOS: "99.1"})
		for _, argv := range [][]string{{"systemctl", "daemon-reload"}, {"systemctl", "enable", ignition.Unit}, {"systemctl", "stop", "kubelet"}} {
			if out, err := run(argv...); err != nil {
				t.Fatalf("%v: %v\n%s", argv, err, out)
			}
		}
	})
	step(t, "an image that is too old does not join, and says so", func(t *testing.T) {
		if out, err := run("systemctl", "start", "kubelet"); err == nil {
			t.Errorf("the kubelet started: %s", out)
		}
		if out, err := run("systemctl", "is-active", "kubelet"); err == nil {
			t.Errorf("the kubelet runs: %s", out)
		}
		issue, err := run("sh", "-c", "cat /run/issue.d/*.issue")
		if err != nil || !strings.Contains(issue, "cannot join pool workers") || !strings.Contains(issue, "Use image 99.1.") {
			t.Errorf("%v %s", err, issue)
		}
	})
	step(t, "with limits that hold it joins, and is asked once", func(t *testing.T) {
		give()
		for range 2 {
			if out, err := run("systemctl", "restart", "kubelet"); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			if out, err := run("sh", "-c", "[ -e "+convert.LimitsPath+" ] || ls /run/issue.d/*.issue"); err == nil {
				t.Errorf("something was left: %s", out)
			}
		}
		if out, err := run("systemctl", "is-active", "kubelet"); err != nil {
			t.Errorf("the kubelet does not run: %s", out)
		}
	})
}
