package service

import (
	"context"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters/kubeadm"
)

// RunExchange replaces files of this node together.
func RunExchange(ctx context.Context, conf agentconfig.Config, x *kubeadm.Exchange) error {
	m, err := systemd.Connect(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	c, err := cri.Open(conf.Runtime)
	if err != nil {
		return err
	}
	defer c.Close()
	return x.Run(ctx, exchangeNode{m, c})
}

type exchangeNode struct {
	*systemd.Manager
	cri *cri.Client
}

// EndPod ends the containers of a pod of kube-system that run.
func (n exchangeNode) EndPod(ctx context.Context, pod kubeadm.EndedPod) error {
	all, err := n.cri.Containers(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Running && c.Namespace == "kube-system" && c.Pod == pod.Name {
			if err := n.cri.Stop(ctx, c.ID, pod.GraceSeconds); err != nil {
				return err
			}
		}
	}
	return nil
}
