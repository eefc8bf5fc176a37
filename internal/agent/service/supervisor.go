package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/host/etcd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters/kubelet"
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

func (p supervisorPart) row() distribution.Row {
	row, _ := distribution.ByName(p.node.Distribution)
	return row
}

func (p supervisorPart) Kubectl() string { return "" } // a link to the program

func (p supervisorPart) RestartKubelet(ctx context.Context) error {
	return p.host.unit(ctx, func(m *systemd.Manager) error { return m.Restart(ctx, p.node.Unit) })
}

// Running compares versions, too: k3s executes a copy of itself below its data directory, so
// its process never has the file of the unit.
func (p supervisorPart) Running(ctx context.Context) (version string, replaced bool, err error) {
	version, replaced, err = p.host.running(ctx, p.node.Unit, p.row().VersionArgs...)
	if err != nil || version == "" || replaced {
		return version, replaced, err
	}
	placed, err := p.host.binaries.Version(ctx, p.node.Program, p.row().VersionArgs...)
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

// Unpacked is where k3s and RKE2 unpack their parts. RKE2 takes them from an image that it may have
// to pull, so it is not made to do it again.
func (p supervisorPart) Unpacked() (dir string, again bool) {
	switch p.node.Distribution {
	case distribution.K3s:
		return p.dataPath("data"), true
	case distribution.RKE2:
		return p.dataPath("data"), false
	}
	return "", false
}

func (p supervisorPart) BootID() (string, error) { return p.host.BootID() }

// SQLite is the path of the database of a server that has no other datastore.
func (p supervisorPart) SQLite() string {
	if p.datastore() != model.DatastoreSQLite {
		return ""
	}
	return p.database()
}

func (p supervisorPart) database() string { return p.dataPath(p.row().SQLite) }

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
	now := kube.Supervised(p.node.Root)
	other := now == nil || now.NamesDatastore
	written := p.row().RunningConfig != "" // then it counts more than a directory that an earlier one left
	if _, err := os.Stat(p.dataPath(p.row().Etcd)); err == nil && (!other || !written) {
		return model.DatastoreEtcd
	}
	if st, err := os.Stat(p.database()); err == nil && st.Mode().IsRegular() && !other {
		return model.DatastoreSQLite
	}
	return model.DatastoreOther
}

// Etcd is the member of this node where the distribution's own command does not save a
// snapshot alone.
func (p supervisorPart) Etcd() kubelet.Etcd {
	if m := p.member(); m != nil {
		return m
	}
	return nil
}

func (p supervisorPart) member() *etcd.Member {
	c := p.row().EtcdClient
	if c.CA == "" || p.datastore() != model.DatastoreEtcd {
		return nil
	}
	return &etcd.Member{URL: clientURL(""), Credentials: etcd.Credentials{CA: p.dataPath(c.CA), Cert: p.dataPath(c.Cert), Key: p.dataPath(c.Key)}}
}

// SnapshotCommand is the distribution's own.
func (p supervisorPart) SnapshotCommand(dir string) []string {
	if !p.server() || p.row().EtcdClient.CA != "" || p.SQLite() != "" {
		return nil
	}
	return []string{p.node.Program, "etcd-snapshot", "save", "--name", "refit", "--dir", dir}
}

// fields has the datastore of a server, and how many servers it has where not all of them
// need to be nodes.
func (p supervisorPart) fields(ctx context.Context, _ agent.Asked) map[string]string {
	store := p.datastore()
	if store == "" {
		return nil
	}
	out := map[string]string{model.FieldDatastore: store}
	if m := p.member(); m != nil && p.row().WorkersOnly {
		if n, err := m.Members(ctx); err == nil {
			out[model.FieldServers] = strconv.Itoa(n)
		}
	}
	return out
}

// release returns the version of the release for what the kubelet reports.
func (p supervisorPart) release(ctx context.Context, reported string) string {
	if !p.row().ReleaseHidden {
		return reported
	}
	running, _, _ := p.Running(ctx)
	return distribution.Release(reported, running)
}

// observe returns the version of the running program; controlPlane is that of a server.
func (p supervisorPart) observe(ctx context.Context) (version, controlPlane string) {
	version, _, _ = p.Running(ctx)
	if p.server() {
		controlPlane = version
	}
	return version, controlPlane
}
