package service

import (
	"context"
	"log/slog"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/nodeapi"
	"github.com/refit-dev/refit/internal/host/containerd"
	pin "github.com/refit-dev/refit/internal/pipeline/pin/agent"
)

// containerRuntime is containerd as the agent uses it.
type containerRuntime struct{ pin.Containerd }

func (c containerRuntime) Version(ctx context.Context) (string, string, error) {
	return c.CRI().Version(ctx)
}

// Run is the host service: it works until the context ends.
func Run(ctx context.Context, conf agent.Config, log *slog.Logger) error {
	conf, err := conf.Complete()
	if err != nil {
		return err
	}
	ctd, err := containerd.Open(conf.Runtime)
	if err != nil {
		return err
	}
	defer ctd.Close()
	api, err := nodeapi.New(conf.Kubeconfig, conf.Node, log)
	if err != nil {
		return err
	}
	a, err := agent.New(conf, agent.Parts{
		API: api, Runtime: containerRuntime{pin.Containerd{Client: ctd}},
		Runner: noRunner{}, Facts: &nodeFacts{}, Log: log,
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

type noRunner struct{}

func (noRunner) Run(context.Context, *v1alpha1.NodeRun, func(*v1alpha1.NodeRunStatus)) {}
