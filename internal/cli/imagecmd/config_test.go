package imagecmd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

func runConfig(t *testing.T, text string, args ...string) (out, says string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	c := NewConfig(&inputs.Access{Out: &o, Err: &e})
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.SetArgs(append([]string{"import", file}, args...))
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.Execute()
	return o.String(), e.String(), err
}

const machineConfig = `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"50-edge","labels":{"machineconfiguration.openshift.io/role":"edge"}},
"spec":{"kernelArguments":["quiet"],"config":{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/motd","mode":420,"contents":{"source":"data:,hi%0A"}}]},
"systemd":{"units":[{"name":"a.service","mask":true}]},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA x"]}]}}}}`

// What is printed can be applied as it is.
func TestImport(t *testing.T) {
	out, says, err := runConfig(t, machineConfig)
	if err != nil || says != "" {
		t.Fatal(err, says)
	}
	want := `apiVersion: refit.dev/v1alpha1
kind: NodeConfig
metadata:
  name: 50-edge
spec:
  files:
  - contents:
      inline: |
        hi
    group: root
    mode: 420
    owner: root
    path: /etc/motd
  kernelArguments:
  - quiet
  pools:
  - edge
  sshAuthorizedKeys:
  - keys:
    - ssh-ed25519 AAAA x
    user: core
  units:
  - name: a.service
    state: masked
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
	if out, _, _ := runConfig(t, machineConfig, "--name", "mine", "--pool", "p"); !strings.Contains(out, "name: mine\n") || !strings.Contains(out, "- p\n") {
		t.Error(out)
	}
}

// What is not carried over is named and decides the exit code.
func TestDroppedParts(t *testing.T) {
	text := `{"ignition":{"version":"3.2.0"},"storage":{"disks":[{"device":"/dev/sda"}],"files":[{"path":"/etc/a","contents":{"source":"data:;base64,/w=="}}]}}`
	out, says, err := runConfig(t, text)
	if console.ExitCode(err) != console.ExitBlocked || out != "" || !strings.Contains(says, "not converted: storage.disks: ") {
		t.Error(console.ExitCode(err), out, says)
	}
	out, says, err = runConfig(t, text, "--partial")
	if err != nil || !strings.Contains(out, "base64: /w==") || !strings.Contains(out, "name: imported") || says == "" {
		t.Error(err, out)
	}
	if _, _, err := runConfig(t, "kind: Pod"); console.ExitCode(err) != console.ExitUsage {
		t.Error(err)
	}
	c := NewConfig(&inputs.Access{})
	c.SetArgs([]string{"import", "/nowhere"})
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.Execute(); console.ExitCode(err) != console.ExitUsage || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
