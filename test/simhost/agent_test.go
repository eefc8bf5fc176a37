package simhost

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/model"
)

const (
	agentUnit    = "etc/systemd/system/refit-agent.service"
	agentWanted  = "multi-user.target.wants/refit-agent.service"
	carriedAgent = "/var/opt/refit/bin/refit-agent"
)

// withAgent are the files of an image with an agent of its own, and the agent's configuration.
func withAgent() Files {
	return Files{"usr/bin/refit-agent": "#!/bin/sh\necho image\n", "usr/lib/systemd/system/refit-agent.service": "[Service]\nExecStart=/usr/bin/refit-agent run\n",
		"usr/lib/systemd/system/" + agentWanted: "-> ../refit-agent.service", "etc/refit/agent.yaml": "node: n1\n"}
}

// newAgentNode is a node whose image has the agent that runs.
func newAgentNode(t *testing.T, kind string) *node {
	n := newNodeOf(t, kind, withAgent())
	n.agent = filepath.Join(t.TempDir(), "self")
	if err := os.WriteFile(n.agent, []byte("#!/bin/sh\necho running\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

func onBothWithAgent(t *testing.T, do func(t *testing.T, n *node)) {
	Needs(t)
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			do(t, newAgentNode(t, kind))
		})
	}
}

// An image without the agent is booted, and the agent is there: its program in /var, its unit and its
// configuration in the /etc that libostree merged. So it is with the next such image, and with what was
// before.
func TestImageWithoutTheAgent(t *testing.T) {
	onBothWithAgent(t, func(t *testing.T, n *node) {
		task := n.step(n.put(version(t, "2", nil)))
		if _, err := n.Run(t.Context(), nil, "test", "-e", "/"+agentUnit); err == nil {
			t.Fatal("the unit is in /etc before")
		}
		done(t, n.there(task))
		keeps := func(v string) {
			t.Helper()
			n.isOn(v)
			if _, err := n.Run(t.Context(), nil, "test", "-e", "/usr/bin/refit-agent"); err == nil {
				t.Fatal("the image has an agent: nothing is shown")
			}
			if got := n.Must(carriedAgent, "version"); got != "running" {
				t.Fatalf("the agent says %q", got)
			}
			if unit := n.Must("cat", "/"+agentUnit); !strings.Contains(unit, "\nExecStart="+carriedAgent+" run\n") {
				t.Fatal(unit)
			}
			n.Must("test", "-L", "/etc/systemd/system/"+agentWanted)
			if conf := n.Must("cat", "/etc/refit/agent.yaml"); !strings.Contains(conf, "\nnode: n1") {
				t.Fatalf("the configuration is %q", conf)
			}
		}
		keeps("2")
		done(t, n.there(n.step(n.put(version(t, "3", nil)))))
		keeps("3")
		if err := os.WriteFile(n.agent, []byte("#!/bin/sh\necho newer\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		done(t, n.there(n.step(n.put(version(t, "4", withAgent())))))
		if got := n.Must(carriedAgent, "version"); got != "running" { // it starts as it is
			t.Fatalf("the agent says %q", got)
		}
	})
}

// An image that has the agent changes nothing on the node.
func TestImageWithTheAgent(t *testing.T) {
	onBothWithAgent(t, func(t *testing.T, n *node) {
		done(t, n.there(n.step(n.put(version(t, "2", withAgent())))))
		n.isOn("2")
		for _, file := range []string{"/" + agentUnit, carriedAgent} {
			if _, err := n.Run(t.Context(), nil, "test", "-e", file); err == nil {
				t.Errorf("%s is there", file)
			}
		}
	})
}

// Where /etc is transient the agent cannot be kept. The node says so at staging, before the drain, and
// again in the step, and nothing is left that a restart would boot.
func TestImageThatWouldLoseTheAgent(t *testing.T) {
	onBothWithAgent(t, func(t *testing.T, n *node) {
		task := n.step(n.put(version(t, "2", Files{"usr/lib/ostree/prepare-root.conf": "[etc]\ntransient = true\n"})))
		var c model.NodeConfig
		name := task.Step.Params[model.ParamConfig]
		if err := json.Unmarshal([]byte(n.config[name]), &c); err != nil {
			t.Fatal(err)
		}
		err := n.updater().Prepare(t.Context(), name, &c)
		if n.status().Can(osdriver.CanDownloadOnly) && (err == nil || !strings.Contains(err.Error(), "its /etc is transient")) {
			t.Fatalf("prepared: %v", err)
		}
		if !n.status().NextIsBooted() {
			t.Fatal("any restart boots it")
		}
		failed(t, n.there(task), v1alpha1.ReasonOSImageAgent)
		if n.Boots != 1 || !n.status().NextIsBooted() {
			t.Fatalf("%d boots, next %+v", n.Boots, n.status().Next)
		}
		if _, err := n.Run(t.Context(), nil, "test", "-e", carriedAgent); err == nil {
			t.Error("the agent was copied in vain")
		}
	})
}
