package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
)

// supervisorPart is a node as the updater supervisor sees it: what concerns the kubelet
// elsewhere concerns the unit that starts everything. It embeds nothing: promoted methods
// would make the agent larger.
type supervisorPart struct {
	host *nodeHost
	node *kube.Detection
}

func (p supervisorPart) Kubelet(context.Context) (string, error) {
	if p.node.Program == "" {
		return "", errors.New("the unit of " + p.node.Title + " has no program in ExecStart")
	}
	return filepath.EvalSymlinks(p.node.Program)
}

func (p supervisorPart) Kubectl() string { return "" } // a link to the program

func (p supervisorPart) RestartKubelet(ctx context.Context) error {
	return p.host.unit(ctx, func(m *systemd.Manager) error { return m.Restart(ctx, p.node.Unit) })
}

// Running compares versions, too: k3s executes a copy of itself below its data directory, so
// its process never has the file of the unit.
func (p supervisorPart) Running(ctx context.Context) (version string, replaced bool, err error) {
	version, replaced, err = p.host.running(ctx, p.node.Unit)
	if err != nil || version == "" || replaced {
		return version, replaced, err
	}
	placed, err := p.host.binaries.Version(ctx, p.node.Program, "--version")
	return version, placed != version, err
}

func (p supervisorPart) KubeletHealthy(ctx context.Context) error {
	if err := kube.KubeletHealthy(ctx); err != nil || !p.server() {
		return err
	}
	return p.host.APIReady(ctx)
}

func (p supervisorPart) Log(ctx context.Context) string { return systemd.Log(ctx, p.node.Unit) }

func (p supervisorPart) server() bool { return p.node.Role == distribution.RoleServer }

func (p supervisorPart) RunDetached(ctx context.Context, unit, description, log, result string, argv []string) error {
	return p.host.RunDetached(ctx, unit, description, log, result, argv)
}

func (p supervisorPart) DetachedRuns(ctx context.Context, unit string) (bool, error) {
	return p.host.DetachedRuns(ctx, unit)
}

func (p supervisorPart) Stop(ctx context.Context) error {
	return p.host.unit(ctx, func(m *systemd.Manager) error { return m.Stop(ctx, p.node.Unit) })
}

// SQLite is the path of the database of a server that has no other datastore.
func (p supervisorPart) SQLite() string {
	if p.datastore() != model.DatastoreSQLite {
		return ""
	}
	return p.database()
}

func (p supervisorPart) database() string { return p.dataPath("server/db/state.db") }

func (p supervisorPart) dataPath(below string) string {
	return filepath.Join(p.node.Root, p.node.Place(distribution.WhatData), below)
}

// datastore of a server, "" on other nodes. Embedded etcd has a directory. A configuration
// with a datastore of its own counts more than a file that an earlier one left, and may have
// changed since the agent started.
func (p supervisorPart) datastore() string {
	if !p.server() {
		return ""
	}
	if _, err := os.Stat(p.dataPath("server/db/etcd")); err == nil {
		return model.DatastoreEtcd
	}
	st, err := os.Stat(p.database())
	if now := kube.Supervised(p.node.Root); err == nil && st.Mode().IsRegular() && now != nil && !now.NamesDatastore {
		return model.DatastoreSQLite
	}
	return model.DatastoreOther
}

// SnapshotCommand is the distribution's own.
func (p supervisorPart) SnapshotCommand(dir string) []string {
	if !p.server() || p.SQLite() != "" {
		return nil
	}
	return []string{p.node.Program, "etcd-snapshot", "save", "--name", "refit", "--dir", dir}
}

// fields has the datastore of a server.
func (p supervisorPart) fields(context.Context, agent.Asked) map[string]string {
	store := p.datastore()
	if store == "" {
		return nil
	}
	return map[string]string{model.FieldDatastore: store}
}

// observe returns the version of the running program; controlPlane is that of a server.
func (p supervisorPart) observe(ctx context.Context) (kubelet, controlPlane string) {
	kubelet, _, _ = p.Running(ctx)
	if p.server() {
		controlPlane = kubelet
	}
	return kubelet, controlPlane
}
