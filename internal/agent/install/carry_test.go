package install

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
)

// ran is a runner that starts a program below a root.
type ran struct {
	root string
	argv []string
	err  error
}

func (r *ran) Run(_ context.Context, _ io.Reader, argv ...string) ([]byte, error) {
	r.argv = argv
	if _, err := os.Stat(filepath.Join(r.root, argv[0])); err != nil {
		return nil, err
	}
	return nil, r.err
}

const stagedDir = "ostree/deploy/os/deploy/bb.0/"

// imageHost is a host whose booted image has the agent: with a unit of /usr, and a configuration that
// is the image's own.
func imageHost(t *testing.T, more map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"usr/bin/refit-agent": "agent", "usr/lib/systemd/system/refit-agent.service": "[Service]\nExecStart=/usr/bin/refit-agent run\n",
		"usr/lib/systemd/system/multi-user.target.wants/refit-agent.service": "-> ../refit-agent.service",
		"etc/refit/agent.yaml": "node: n1\n", "usr/etc/refit/agent.yaml": "node: n1\n", "var/lib/x": "", stagedDir + "usr/bin/sh": "sh"}
	maps.Copy(files, more)
	for name, text := range files {
		if text == "gone" {
			continue
		}
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(to, file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, "/refit-agent") {
			mode = 0o755
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// below moves files of an image into the deployment that is staged.
func below(files map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[stagedDir+name] = text
	}
	return out
}

var nextDeployment = &osdriver.Deployment{ID: "bb.0"}

// An image that has the agent, or leaves it where it is, keeps the node as it is. For any other one the
// agent is copied to /var, with units and a configuration that the merge of /etc keeps.
func TestCarry(t *testing.T) {
	t.Parallel()
	with := func(more map[string]string) map[string]string {
		out := below(map[string]string{"usr/bin/refit-agent": "newer", "usr/lib/systemd/system/refit-agent.service": "[Service]\nExecStart=-/usr/bin/refit-agent run\n",
			"usr/lib/systemd/system/multi-user.target.wants/refit-agent.service": "-> ../refit-agent.service", "usr/etc/refit/agent.yaml": "node: x\n"})
		maps.Copy(out, more)
		return out
	}
	const unit, wants = "etc/systemd/system/refit-agent.service", "etc/systemd/system/multi-user.target.wants/refit-agent.service"
	own := func(program string, more map[string]string) map[string]string {
		out := map[string]string{unit: "[Service]\nExecStart=" + program + " run\n", wants: "-> /etc/systemd/system/refit-agent.service", "etc/refit/agent.yaml": "node: own\n"}
		maps.Copy(out, more)
		return out
	}
	for name, c := range map[string]struct {
		files   map[string]string
		carried bool
		refused string
	}{
		"the image has an agent":                          {with(nil), false, ""},
		"no agent":                                        {nil, true, ""},
		"a unit without its program":                      {with(map[string]string{stagedDir + "usr/bin/refit-agent": "gone"}), true, ""},
		"a program without its unit":                      {with(map[string]string{stagedDir + "usr/lib/systemd/system/refit-agent.service": "gone"}), true, ""},
		"a unit that is not enabled":                      {with(map[string]string{stagedDir + "usr/lib/systemd/system/multi-user.target.wants/refit-agent.service": "gone"}), true, ""},
		"a unit that is masked":                           {with(map[string]string{stagedDir + "usr/etc/systemd/system/refit-agent.service": "-> /dev/null"}), true, ""},
		"the image's configuration goes":                  {with(map[string]string{stagedDir + "usr/etc/refit/agent.yaml": "gone"}), true, ""},
		"a configuration of the node":                     {with(map[string]string{stagedDir + "usr/etc/refit/agent.yaml": "gone", "etc/refit/agent.yaml": "node: own\n"}), false, ""},
		"no configuration at all":                         {with(map[string]string{stagedDir + "usr/etc/refit/agent.yaml": "gone", "etc/refit/agent.yaml": "gone", "usr/etc/refit/agent.yaml": "gone"}), false, ""},
		"a unit of the node, the program in the image":    {own("/usr/bin/refit-agent", nil), true, ""},
		"a unit of the node, the program in /var":         {own("/var/opt/own/refit-agent", map[string]string{"var/opt/own/refit-agent": "agent"}), false, ""},
		"/usr/local leads into /var":                      {own("/usr/local/bin/refit-agent", map[string]string{stagedDir + "usr/local": "-> ../var/usrlocal", "var/usrlocal/bin/refit-agent": "agent"}), false, ""},
		"/usr/local led into /var, and is the image's":    {own("/usr/local/bin/refit-agent", map[string]string{"usr/local": "-> ../var/usrlocal", "var/usrlocal/bin/refit-agent": "agent", stagedDir + "usr/local/bin/x": ""}), true, ""},
		"/opt leads into /var by an absolute link":        {own("/opt/refit-agent", map[string]string{stagedDir + "opt": "-> /var/opt", "var/opt/refit-agent": "agent"}), false, ""},
		"links in a circle":                               {own("/opt/refit-agent", map[string]string{stagedDir + "opt": "-> opt"}), true, ""},
		"a unit of the old image, not changed":            {own("/var/a/refit-agent", map[string]string{"var/a/refit-agent": "agent", "usr/" + unit: "[Service]\nExecStart=/var/a/refit-agent run\n"}), true, ""},
		"a unit that the node removed":                    {with(map[string]string{"usr/" + unit: "[Service]\n"}), false, ""},
		"no agent, and /etc is transient":                 {below(map[string]string{"usr/lib/ostree/prepare-root.conf": "[etc]\ntransient = true\n"}), false, "the image has no refit-agent.service that starts a program, and its /etc is transient"},
		"an agent, and /etc is transient":                 {with(map[string]string{stagedDir + "usr/lib/ostree/prepare-root.conf": "[etc]\ntransient = true\n"}), false, ""},
		"a unit of the node, and /etc is transient":       {own("/var/a/refit-agent", map[string]string{"var/a/refit-agent": "agent", stagedDir + "usr/lib/ostree/prepare-root.conf": "[etc]\ntransient=yes\n"}), false, "its /etc is transient"},
		"a unit of the image that starts what is in /var": {with(map[string]string{stagedDir + "usr/bin/refit-agent": "gone", stagedDir + "usr/lib/systemd/system/refit-agent.service": "[Service]\nExecStart=/var/a/refit-agent run\n", "var/a/refit-agent": "agent"}), false, ""},
		"a node on which the agent was masked":            {map[string]string{unit: "-> /dev/null"}, false, "is masked on this node"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := imageHost(t, c.files)
			self := filepath.Join(t.TempDir(), "self")
			if err := os.WriteFile(self, []byte("running"), 0o700); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(filepath.Join(root, unit))
			run := &ran{root: root}
			carrier := Carrier{Root: root, Program: self, Runner: run}
			for range 2 { // again and again is once
				err := carrier.Carry(t.Context(), nextDeployment)
				if c.refused != "" {
					if !errors.Is(err, osdriver.ErrNoAgent) || !strings.Contains(err.Error(), c.refused) {
						t.Fatal(err)
					}
				} else if err != nil {
					t.Fatal(err)
				}
			}
			copied, err := os.ReadFile(filepath.Join(root, carriedBinary))
			if !c.carried {
				if after, _ := os.ReadFile(filepath.Join(root, unit)); err == nil || string(after) != string(before) {
					t.Fatalf("it was copied (%v), the unit is %s", err, after)
				}
				return
			}
			text, _ := os.ReadFile(filepath.Join(root, unit))
			if string(copied) != "running" || !strings.Contains(string(text), "\nExecStart="+carriedBinary+" run\n") || len(run.argv) != 2 || run.argv[0] != carriedBinary {
				t.Fatalf("%q, %v\n%s", copied, run.argv, text)
			}
			for _, file := range []string{Import, Preflight, BootCheck, "kubelet.service.d/20-refit-preflight.conf", "multi-user.target.wants/" + Preflight} {
				if text, err := os.Lstat(filepath.Join(root, "etc/systemd/system", file)); err != nil {
					t.Error(text, err)
				}
			}
			if to, err := os.Readlink(filepath.Join(root, wants)); err != nil || to != "/etc/systemd/system/refit-agent.service" {
				t.Error(to, err)
			}
		})
	}
}

// What cannot be copied is no refusal of the image: the next try may succeed. A copy that cannot run is.
func TestCarryFails(t *testing.T) {
	t.Parallel()
	root := imageHost(t, nil)
	noexec := &osdriver.ToolError{Argv: []string{carriedBinary}, Code: 126, Said: "Permission denied"}
	carrier := Carrier{Root: root, Program: filepath.Join(root, "usr/bin/refit-agent"), Runner: &ran{root, nil, noexec}}
	if err := carrier.Carry(t.Context(), nextDeployment); !errors.Is(err, osdriver.ErrNoAgent) || !strings.Contains(err.Error(), "Permission denied") {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/systemd/system/refit-agent.service")); err == nil {
		t.Fatal("units start a program that cannot run")
	}
	carrier.Program = filepath.Join(root, "none")
	if err := carrier.Carry(t.Context(), nextDeployment); err == nil || errors.Is(err, osdriver.ErrNoAgent) {
		t.Fatal(err)
	}
	// bootc keeps what it stages elsewhere, and no deployment is none.
	for _, d := range []*osdriver.Deployment{nil, {}, {ID: "verity"}, {ID: "*"}, {ID: "../deploy/bb.0"}} {
		if err := carrier.Carry(t.Context(), d); err != nil {
			t.Fatalf("%+v: %v", d, err)
		}
	}
}

// The removal of the agent takes the copy too.
func TestCarriedAgentIsRemoved(t *testing.T) {
	t.Parallel()
	root := imageHost(t, nil)
	if err := (Carrier{Root: root, Program: filepath.Join(root, "usr/bin/refit-agent"), Runner: &ran{root: root}}).Carry(t.Context(), nextDeployment); err != nil {
		t.Fatal(err)
	}
	if err := removeFiles(Places{Root: root}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{carriedBinary, "etc/systemd/system/refit-agent.service", "etc/systemd/system/multi-user.target.wants/refit-agent.service", "etc/systemd/system/multi-user.target.wants/refit-preflight.service", "etc/systemd/system/multi-user.target.wants/refit-import.service"} {
		if _, err := os.Lstat(filepath.Join(root, file)); err == nil {
			t.Errorf("%s is left", file)
		}
	}
}
