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
	"github.com/refit-dev/refit/internal/agent/bootimagecheck"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/host/crio"
	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
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

// Run is the host service: it works until the context ends.
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
	takeAway(conf.Runtime, log)
	api, err := apiclient.New(conf.Kubeconfig, conf.Node, log)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the agent's own program: %w", err)
	}
	host := &nodeHost{node: conf.Node, runtime: unitOf(runtime), kubeconfig: conf.Kubeconfig, cri: runtime.CRI(), self: self}
	list, fields, next := nodeUpdaters(host, osHost{host, exporterOf(runtime), conf.Path("os-images"), flatten.BlobDir(conf.Path("blobs", "sha256")), outbound.New(outbound.AgentRegistry, conf.LocalRegistries...)}, conf.Path)
	machine := sync.OnceValue(func() map[string]string { return bootimagecheck.Facts("/", "") })
	a, err := agent.New(conf, agent.Parts{
		API: api, Runtime: runtime, Facts: &nodeFacts{host: host, fields: fields, machine: machine}, Place: host.place, Log: log,
		Running:   runtime.CRI().StaticDigests,
		MendPulls: host.mendPulls,
		Label:     bundlestore.UnprivilegedLabel,
		Stager:    next.os,
		Mend: func(ctx context.Context, c *model.NodeConfig, busy func() bool) ([]string, error) {
			return next.files.Repair(ctx, conf.Path("repair"), c, busy)
		},
		Drill:   drillOf(conf),
		Settled: (&coldstart.Indexer{Config: conf, Runtime: runtime, Log: log}).Index,
		Health:  (&nodeHealth{skew: api.Skew, ask: etcd.Ask}).Look,
		Runner: func(store agent.Store) agent.Runner {
			host.config, host.held = store.Config, store.Held
			return &engine.Engine{Dir: conf.StateDir, Updaters: list, Payload: store.Payload, Log: log, Note: store.Note}
		},
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// takeAway removes what loads that were cut off, of an agent before this one or of
// the installation, may have left in the configuration of a runtime.
func takeAway(socket string, log *slog.Logger) {
	for _, p := range []crio.Places{{}, {Install: true}} {
		c, err := crio.Open(socket, p, log)
		if err == nil {
			err = errors.Join(c.Clean(), c.Close())
		}
		if err != nil {
			log.Warn("the container runtime may still have a mirror that is gone", "error", err)
		}
	}
}

// nodeUpdaters is what this agent can change on its node, who sees the fields that it
// reports, and what works beside runs. An updater is one package, one line here, and a pass of
// updatertest.
func nodeUpdaters(h *nodeHost, oh osHost, own func(...string) string) (list []updaters.Updater, fields []fielder, beside besideRuns) {
	runtime := runtimePart(h)
	f := files.New(h, "", own("files.json"))
	p := programs.New(runtime)
	s := programs.NewSandbox(runtime, "")
	k := kubelet.NewConfig(kubeletPart(h), "")
	c := certificates.New(h)
	o := osdeploy.New(oh, own("os.json"))
	list = []updaters.Updater{
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
	return list, []fielder{ofConfig(f.Fields), ofConfig(s.Fields), ofConfig(k.Fields), ofConfig(c.Fields), ofConfig(o.Fields), ofConfig(externalFields),
		asFields(func(ctx context.Context, asked agent.Asked) map[string]string {
			return p.Fields(ctx, asked.Payloads, asked.Find)
		})}, besideRuns{f, o}
}

// besideRuns are the updaters that also work while no run is under way.
type besideRuns struct {
	files *files.Updater
	os    *osdeploy.Updater
}

// noticeDeadConnections makes the client library ask after some silent seconds
// whether the API server's connection still lives, instead of after 30: a
// control-plane node that lost power says nothing, and a run waits for us.
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
