package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The command of the kubelet's unit exits with success for any result of the check. The
// command is the unit's own; only its paths and the minute of patience differ.
func TestTheKubeletsUnitNeverWaitsForEver(t *testing.T) {
	t.Parallel()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("needs Linux:", err)
	}
	stamp := `echo "{\"bootID\":\"` + strings.TrimSpace(string(boot)) + `\"}" > RUN/preflight.json`
	for name, c := range map[string]struct {
		// check is the program; empty: there is none.
		check string
		// runs of the program; released: the unit gave it up.
		runs     int
		released string
	}{
		"there is no program":                               {"", 0, ""},
		"the check stamps the boot":                         {stamp, 1, ""},
		"the stamp is there, and the process hangs":         {stamp + "; sleep 100", 1, ""},
		"the check ends well without a stamp":               {"true", 1, ""},
		"the check fails each time":                         {"exit 7", 3, "failed three times with exit code 7"},
		"the check crashes once":                            {`[ -e RUN/once ] && { ` + stamp + `; exit 0; }; touch RUN/once; kill -SEGV $$`, 2, ""},
		"the process stands still":                          {"sleep 100", 1, "stood still for a minute"},
		"the process is at work for longer than the minute": {"for i in 1 2 3 4 5 6; do echo $i > RUN/preflight.alive; sleep 1; done; " + stamp, 1, ""},
		"the program is torn":                               {"zeros", 0, "failed three times with exit code"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run, binary := filepath.Join(dir, "run"), filepath.Join(dir, "refit-agent")
			if err := os.MkdirAll(run, 0o755); err != nil {
				t.Fatal(err)
			}
			text := "#!/bin/sh\necho x >> RUN/count\n" + c.check + "\n"
			if c.check == "zeros" {
				text = strings.Repeat("\x00", 4096)
			}
			if c.check != "" {
				if err := os.WriteFile(binary, []byte(strings.ReplaceAll(text, "RUN", run)), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			// As systemd: the command in quotes, $$ and %% are one.
			line, ok := strings.CutPrefix(preflightCommand(binary), "/bin/sh -c '")
			line, end := strings.CutSuffix(line, "'")
			if !ok || !end || strings.ContainsAny(line, "'\n\\") {
				t.Fatalf("systemd would not read this as one command: %s", preflightCommand(binary))
			}
			script := strings.NewReplacer("$$", "$", "%%", "%", "/run/refit", run, "-lt 60", "-lt 3").Replace(line)
			began := time.Now()
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
			cmd.WaitDelay = time.Second // a check that hangs holds the pipes
			out, err := cmd.CombinedOutput()
			if err != nil && !strings.Contains(err.Error(), "WaitDelay") {
				t.Fatalf("the kubelet would not start: %v\n%s", err, out)
			}
			count, _ := os.ReadFile(filepath.Join(run, "count"))
			if got := strings.Count(string(count), "x"); got != c.runs {
				t.Errorf("the check ran %d times, want %d (%s)\n%s", got, c.runs, time.Since(began), out)
			}
			released, _ := os.ReadFile(filepath.Join(run, "preflight.released"))
			if c.released == "" && len(released) > 0 || !strings.Contains(string(released), c.released) || c.released != "" && !strings.HasPrefix(string(released), strings.TrimSpace(string(boot))+" ") {
				t.Errorf("released: %q, want %q", released, c.released)
			}
			if c.released != "" && !strings.Contains(string(out), "THE KUBELET STARTS WITHOUT A CHECK") {
				t.Errorf("the log says nothing:\n%s", out)
			}
			// The next start of the kubelet waits for nothing: no check runs.
			if c.released != "" {
				out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", script).CombinedOutput()
				after, _ := os.ReadFile(filepath.Join(run, "count"))
				if err != nil || string(after) != string(count) {
					t.Errorf("the next start ran the check %d times: %v %s", strings.Count(string(after), "x")-c.runs, err, out)
				}
			}
		})
	}
}
