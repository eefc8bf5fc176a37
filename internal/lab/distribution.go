package lab

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/machine"
)

// linkLookAlike collects the programs of a look-alike's nodes: it alone, and the names that
// the installers of k3s and RKE2 link to it. The lab uses them on nodes of k0s, too.
func linkLookAlike(dir string, l *components.LookAlike) error {
	name := distribution.SplitVersion(l.Version).Distribution
	to := filepath.Join(dir, name, "local/bin")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, link := range []string{"kubectl", "ctr", "crictl"} {
		if err := os.Symlink(name, filepath.Join(to, link)); err != nil {
			return err
		}
	}
	return machine.LinkOrCopy(l.Program, filepath.Join(to, name))
}

// lookAlikeUnit is the text of the distributions' units: containers live on over a restart.
const lookAlikeUnit = `[Unit]
Description=%[1]s %[2]s (look-alike of refit's lab)
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStart=/usr/local/bin/%[1]s %[2]s

[Install]
WantedBy=multi-user.target
`

// k0sUnit is the text that k0s install writes: systemd does not wait until it is ready.
const k0sUnit = `[Unit]
Description=%[1]s %[2]s (look-alike of refit's lab)
ConditionFileIsExecutable=/usr/local/bin/%[1]s
After=network-online.target
Wants=network-online.target

[Service]
StartLimitInterval=5
StartLimitBurst=10
ExecStart=/usr/local/bin/%[1]s %[2]s
RestartSec=10
Delegate=yes
KillMode=process
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
LimitNOFILE=999999
Restart=always

[Install]
WantedBy=multi-user.target
`

// unitOf returns the unit's text for a role, server or agent.
func unitOf(row distribution.Row, role string) []byte {
	if row.Name != distribution.K0s {
		return fmt.Appendf(nil, lookAlikeUnit, row.Name, role)
	}
	return fmt.Appendf(nil, k0sUnit, row.Name, map[string]string{"server": "controller --enable-worker", "agent": "worker"}[role])
}

// startDistribution makes the cluster of a look-alike: images in the directory from which it
// imports them, its configuration, its unit.
func (l *Lab) startDistribution(ctx context.Context, datastore string, p parts, say func(string, ...any)) error {
	row, _ := distribution.ByName(l.Config.Distribution)
	token := rand.Text()
	for i, node := range l.Config.Nodes {
		role, unit := "agent", row.Agents[0]
		if i == 0 {
			role, unit = "server", row.Servers[0]
		}
		for _, image := range append(p.release.OnEveryNode(), p.apps...) {
			if err := l.putImage(node, row.Places.Images, image); err != nil {
				return err
			}
		}
		config := fmt.Sprintf("node-name: %s\nnode-ip: %s\ntoken: %s\npause-image: %s\n", node, nodeAddress(i+1), token, p.release.Pause().Name)
		switch {
		case role == "agent":
			config += "server: https://" + nodeAddress(1) + ":9345\n"
		case datastore != DatastoreSQLite:
			config += "cluster-init: true\n" // k3s has etcd then
		}
		if _, err := l.Output(ctx, node, "mkdir", "-p", filepath.Dir(row.Places.Config)); err != nil {
			return err
		}
		if err := l.WriteFile(ctx, node, row.Places.Config, []byte(config), 0o600); err != nil {
			return err
		}
		if err := l.WriteFile(ctx, node, "/etc/systemd/system/"+unit, unitOf(row, role), 0o644); err != nil {
			return err
		}
	}
	say("configuration and images of the look-alike of %s %s on all nodes", row.Title, l.Config.Version)
	return l.startUnits(ctx, row, say)
}

// startUnits starts the server, then the agents.
func (l *Lab) startUnits(ctx context.Context, row distribution.Row, say func(string, ...any)) error {
	enable := func(ctx context.Context, node, unit string) error {
		_, err := l.Output(ctx, node, "systemctl", "enable", "--now", unit)
		return err
	}
	if err := enable(ctx, nodeName(1), row.Servers[0]); err != nil {
		return err
	}
	say("the server runs")
	admin, err := l.Output(ctx, nodeName(1), "sh", "-c", `until test -s "$0"; do sleep 0.5; done; cat "$0"`, row.Places.AdminConfig)
	if err != nil {
		return err
	}
	if err := l.writeKubeconfig([]byte(admin)); err != nil {
		return err
	}
	agents, all := errgroup.WithContext(ctx)
	for _, node := range l.Workers() {
		agents.Go(func() error { return enable(all, node, row.Agents[0]) })
	}
	if err := agents.Wait(); err != nil {
		return err
	}
	if err := l.waitReady(ctx, say); err != nil {
		return err
	}
	say("all nodes Ready")
	if err := l.waitAddons(ctx, say); err != nil {
		return err
	}
	say("CoreDNS ready; KUBECONFIG=%s", l.Kubeconfig())
	return nil
}

// putImage puts the archive of an image into a directory of a node.
func (l *Lab) putImage(node, dir string, i components.Image) error {
	at, err := l.Path(node, dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	return machine.LinkOrCopy(i.Archive, filepath.Join(at, filepath.Base(i.Archive)))
}
