package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
)

// The check of a boot into a new image passes with an agent that runs, records why it does not, and
// restarts a machine four times at most. The command is the unit's own; only its paths and times
// differ.
func TestBootCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// agent is what systemctl answers about the agent's unit; before are earlier lines.
		agent, before string
		missing       bool
		fails         bool
		says          string
	}{
		"the agent runs":                   {"exit 0", "", false, false, ""},
		"the image has no agent":           {"exit 0", "", true, true, "failed the image has no "},
		"the agent does not run":           {"[ $1 = show ] && echo ActiveState=failed; exit 3", "", false, true, "failed refit-agent.service does not run: ActiveState=failed"},
		"the agent crashes again":          {"[ $1 = show ] && exit 0; [ $(( $(cat COUNT) % 3 )) != 0 ]", "", false, true, "failed refit-agent.service does not run"},
		"four boots were checked already":  {"exit 3", "boot 1\nboot 2\nfailed x\nboot 3\nboot 4\n", true, false, "failed x\nboot 3\nboot 4"},
		"three boots were checked already": {"exit 3", "boot 1\nboot 2\nboot 3\n", true, true, "failed the image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			attempt, binary, count := filepath.Join(dir, "attempt"), filepath.Join(dir, "refit-agent"), filepath.Join(dir, "count")
			systemctl := "#!/bin/sh\necho $(($(cat " + count + ")+1)) >" + count + "\n" + strings.ReplaceAll(c.agent, "COUNT", count) + "\n"
			for file, text := range map[string]string{attempt: c.before, count: "0", filepath.Join(dir, "systemctl"): systemctl, filepath.Join(dir, "sync"): "#!/bin/sh\n", binary: ""} {
				if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if c.missing {
				if err := os.Remove(binary); err != nil {
					t.Fatal(err)
				}
			}
			line, ok := strings.CutPrefix(bootCheckCommand(binary), "/bin/sh -c '")
			line, end := strings.CutSuffix(line, "'")
			if !ok || !end || strings.ContainsAny(line, "'\n\\") {
				t.Fatalf("systemd would not read this as one command: %s", bootCheckCommand(binary))
			}
			script := strings.NewReplacer("$$", "$", "%%", "%", osdriver.BootAttempt, attempt, "-lt 150", "-lt 8", "sleep 2", "sleep 0").Replace(line)
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			recorded, _ := os.ReadFile(attempt)
			if (err != nil) != c.fails || !strings.Contains(string(recorded), c.says) {
				t.Fatalf("%v: %s\n%s", err, out, recorded)
			}
		})
	}
}

// greenboot asks the same check, in boots into a new image alone, and logs the reason.
func TestGreenbootCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	attempt, ran := filepath.Join(dir, "attempt"), filepath.Join(dir, "ran")
	script := filepath.Join(dir, "50-refit.sh")
	if err := os.WriteFile(script, []byte(strings.ReplaceAll(greenbootCheckText, osdriver.BootAttempt, attempt)), 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(code string) (string, error) {
		systemctl := "#!/bin/sh\necho \"$@\" >>" + ran + "\nexit " + code + "\n"
		if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(systemctl), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-C", script) // as greenboot does
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := check("1"); err != nil {
		t.Fatalf("a boot that is not tried: %v: %s", err, out)
	}
	if err := os.WriteFile(attempt, []byte("boot 1\nfailed the image has no agent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := check("0"); err != nil {
		t.Fatalf("a good boot: %v: %s", err, out)
	}
	if out, err := check("1"); err == nil || !strings.Contains(out, "refit: failed the image has no agent") {
		t.Fatalf("a bad boot: %v: %s", err, out)
	}
	if got, err := os.ReadFile(ran); err != nil || string(got) != "start "+BootCheck+"\nstart "+BootCheck+"\n" {
		t.Fatalf("asked %q, %v", got, err)
	}
}

// The check is there where greenboot is, and goes with the agent.
func TestGreenbootCheckIsInstalled(t *testing.T) {
	p := root(t)
	o := Options{Places: p, NoStart: true, Printf: discard(t)}
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.at("/etc/greenboot")); !os.IsNotExist(err) {
		t.Fatalf("on a host without greenboot: %v", err)
	}
	if err := os.MkdirAll(p.at(greenbootChecks), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Install(t.Context(), o)
	if err != nil || len(r.Changed) != 1 || r.Changed[0] != p.greenbootCheck() {
		t.Fatalf("%v, %v", r.Changed, err)
	}
	if i, err := os.Stat(p.greenbootCheck()); err != nil || i.Mode().Perm() != 0o755 {
		t.Fatalf("%v, %v", i, err)
	}
	if err := removeFiles(p); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(p.at(greenbootChecks)); err != nil || len(left) > 0 {
		t.Fatalf("left: %v, %v", left, err)
	}
}
