package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/apiclient"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/agent/bootimagecheck"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/host/crio"
	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/agent/install"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/certificates"
	"github.com/refit-dev/refit/internal/agent/updaters/engine"
	"github.com/refit-dev/refit/internal/agent/updaters/files"
	"github.com/refit-dev/refit/internal/agent/updaters/kubeadm"
	"github.com/refit-dev/refit/internal/agent/updaters/kubelet"
	"github.com/refit-dev/refit/internal/agent/updaters/osdeploy"
	"github.com/refit-dev/refit/internal/agent/updaters/programs"
	"github.com/refit-dev/refit/internal/agent/updaters/staticpod"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/outbound"
)

// Run runs the agent until the context ends.
func Run(ctx context.Context, conf agentconfig.Config, log *slog.Logger) error {
	conf, err := conf.Complete()
	if err != nil {
		return err
	}
	if err := noticeDeadConnections(); err != nil {
		return err
	}
	runtime, err := imagekeeper.Open(ctx, conf.Runtime, crio.Places{}, log)
	if err != nil {
		return err
	}
	defer runtime.Close()
	removeLeftovers(conf.Runtime, log)
	api := apiclient.New(conf.Kubeconfig, conf.Node, log)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the agent's own program: %w", err)
	}
	supervised := kube.Supervised("/")
	host := &nodeHost{node: conf.Node, runtime: unitOf(runtime), kubeconfig: conf.Kubeconfig, cri: runtime.CRI(), socket: conf.Runtime, self: self,
		supervised: supervised, paths: kube.NodePaths(supervised)}
	list, fields, next := nodeUpdaters(host, osHost{host, exporterOf(runtime), conf.Path("os-images"), flatten.BlobDir(conf.Path("blobs", "sha256")), outbound.New(outbound.AgentRegistry, conf.LocalRegistries...)}, conf.Path)
	fields = append(fields, &manifestFields{host: host, dir: conf.Path("manifest-check"), configuration: host.ClusterConfiguration, program: host.kubeadmProgram, run: runKubeadm,
		patches: func(ctx context.Context) (string, error) { return authority.KubeadmPatches(ctx, api) }})
	machine := sync.OnceValue(func() map[string]string { return bootimagecheck.Facts("/", "") })
	a, err := agent.New(conf, agent.Parts{
		API: api, Runtime: runtime, Facts: &nodeFacts{host: host, fields: fields, machine: machine}, Place: host.place, Log: log, Journal: systemd.Journal,
		Running:     runtime.CRI().StaticDigests,
		RepairPulls: host.repairPulls,
		Contents:    bundlestore.UnprivilegedContents,
		Deltas:      bundlestore.UnprivilegedDelta,
		Stager:      next.os,
		Repair: func(ctx context.Context, c *model.NodeConfig, busy func() bool) ([]string, error) {
			return next.files.Repair(ctx, conf.Path("repair"), c, busy)
		},
		Drill:    drillOf(conf),
		Rehearse: (&rehearsal{conf.StateDir}).run,
		Settled:  whenSettled(&coldstart.Indexer{Config: conf, Runtime: runtime, Log: log}),
		Health:   (&nodeHealth{paths: host.paths, skew: api.Skew, ask: etcd.QueryHealth}).Observe,
		Runner: func(store agent.Store) agent.Runner {
			host.config, host.findPinned = store.FindConfig, store.FindPinned
			return &engine.Engine{Dir: conf.StateDir, Updaters: list, Payload: store.FindPayload, Log: log, Note: store.ReportProblem,
				Health: wellnessOf(host, store.PeersReached).Observe}
		},
	})
	if err != nil {
		return err
	}
	go keepSmall(ctx, log)
	return a.Run(ctx)
}

// removeLeftovers removes configuration of the runtime that an interrupted load left, of an
// earlier agent process or of the installer.
func removeLeftovers(socket string, log *slog.Logger) {
	for _, p := range []crio.Places{{}, {Install: true}} {
		c, err := crio.Open(socket, p, log)
		if err == nil {
			err = errors.Join(c.Clean(), c.Close())
		}
		if err != nil {
			log.Warn("failed to remove a leftover registry mirror from the container runtime", "error", err)
		}
	}
}

// nodeUpdaters returns the updaters of this node, those that read fields, and those that also
// work outside of runs. A new updater is a package, a line here, and a pass of updatertest.
func nodeUpdaters(h *nodeHost, oh osHost, own func(...string) string) (list []updaters.Updater, fields []fielder, alone standalone) {
	runtime := runtimePart(h)
	f := files.New(h, "", own("files.json"))
	p := programs.New(runtime)
	s := programs.NewSandbox(runtime, "")
	k := kubelet.NewConfig(kubeletPart(h), "")
	c := certificates.New(h)
	o := osdeploy.New(oh, own("os.json")).WithPolicy(osdeploy.PolicyFile).WithSELinux("/").WithBootCounter(&osdriver.BootCounter{Runner: osdriver.Command{}}).WithAgent(install.Carrier{Runner: osdriver.Command{}})
	list = []updaters.Updater{
		kubeadm.NewControlPlane(h),
		kubeadm.New(h),
		kubelet.New(h),
		p,
		s,
		k,
		f,
		c,
		o,
		files.NewReboot(h),
		kubeadm.NewSettle(h),
		staticpod.New(h, ""),
	}
	if d := h.supervised; d != nil {
		part := supervisorPart{h, d}
		list = append(list, kubelet.NewSupervisor(part, d.Distribution))
		fields = append(fields, asFields(part.fields))
	}
	return list, append(fields, ofConfig(f.Fields), ofConfig(s.Fields), ofConfig(k.Fields), ofConfig(c.Fields), ofConfig(o.Fields), ofConfig(externalFields),
		asFields(func(ctx context.Context, asked agent.Asked) map[string]string {
			return p.Fields(ctx, asked.Payloads, asked.Find)
		})), standalone{f, o}
}

// standalone are the updaters that also work outside of runs.
type standalone struct {
	files *files.Updater
	os    *osdeploy.Updater
}

// noticeDeadConnections makes the client library ping an idle connection to the API server after
// a few seconds instead of 30. A control-plane node that lost power closes no connection, and a
// run waits for the agent.
func noticeDeadConnections() error {
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "3"} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, seconds); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
