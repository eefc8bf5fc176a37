package service

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/model"
)

// A server has SQLite only where nothing names another datastore: a file alone may be left of
// an earlier one.
func TestDatastoreOfAServer(t *testing.T) {
	t.Parallel()
	const data, server = "/var/lib/rancher/k3s/server/", "/etc/systemd/system/k3s.service"
	const unit = "[Service]\nExecStart=/usr/local/bin/k3s server\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"SQLite":                        {map[string]string{server: unit, data + "db/state.db": "x"}, model.DatastoreSQLite},
		"SQLite, a comment":             {map[string]string{server: unit, data + "db/state.db": "x", "/etc/rancher/k3s/config.yaml": "# datastore-endpoint: none\n"}, model.DatastoreSQLite},
		"etcd":                          {map[string]string{server: unit, data + "db/state.db": "x", data + "db/etcd/member/snap/db": "x"}, model.DatastoreEtcd},
		"no file":                       {map[string]string{server: unit}, model.DatastoreOther},
		"a flag":                        {map[string]string{server: "[Service]\nExecStart=/usr/local/bin/k3s server \\\n  '--datastore-endpoint=mysql://p' \n", data + "db/state.db": "x"}, model.DatastoreOther},
		"a drop-in":                     {map[string]string{server: unit, server + ".d/db.conf": "[Service]\nEnvironment=K3S_DATASTORE_ENDPOINT=mysql://p\n", data + "db/state.db": "x"}, model.DatastoreOther},
		"an environment":                {map[string]string{server: unit, server + ".env": "K3S_DATASTORE_ENDPOINT='postgres://p'\n", data + "db/state.db": "x"}, model.DatastoreOther},
		"a configuration":               {map[string]string{server: unit, "/etc/rancher/k3s/config.yaml": "datastore-endpoint: nats://p\n", data + "db/state.db": "x"}, model.DatastoreOther},
		"a part of a configuration":     {map[string]string{server: unit, "/etc/rancher/k3s/config.yaml.d/db.yaml": "datastore-endpoint: nats://p\n", data + "db/state.db": "x"}, model.DatastoreOther},
		"another directory":             {map[string]string{server: "[Service]\nExecStart=/usr/local/bin/k3s server --data-dir /mnt/k3s\n", "/mnt/k3s/server/db/state.db": "x"}, model.DatastoreSQLite},
		"an agent with a server's file": {map[string]string{"/etc/systemd/system/k3s-agent.service": unit, data + "db/state.db": "x"}, ""},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			at := filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		p := supervisorPart{node: kube.Supervised(root)}
		if p.node == nil {
			t.Fatalf("%s: not detected", name)
		}
		if got := p.fields(t.Context(), agent.Asked{})[model.FieldDatastore]; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if p.SQLite() != "" && p.SnapshotCommand("/x") != nil {
			t.Errorf("%s: a snapshot of etcd without etcd", name)
		}
	}
}

// k0s keeps its datastore elsewhere. What its controller wrote down when it started counts more
// than a directory that an earlier one left.
func TestDatastoreOfK0s(t *testing.T) {
	t.Parallel()
	const data, server = "/var/lib/k0s/", "/etc/systemd/system/k0scontroller.service"
	const unit, db, member = "[Service]\nExecStart=/usr/local/bin/k0s controller --enable-worker\n", data + "db/state.db", data + "etcd/member/snap/db"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"single":                 {map[string]string{server: unit, db: "x"}, model.DatastoreSQLite},
		"etcd":                   {map[string]string{server: unit, member: "x"}, model.DatastoreEtcd},
		"etcd of others":         {map[string]string{server: unit, member: "x", "/etc/k0s/k0s.yaml": "spec:\n  storage:\n    etcd:\n      externalCluster:\n        endpoints: [x]\n"}, model.DatastoreOther},
		"a database":             {map[string]string{server: unit, db: "x", "/run/k0s/k0s.yaml": "spec: {nodeConfig: {spec: {storage: {kine: {dataSource: 'mysql://p'}}}}}\n"}, model.DatastoreOther},
		"what it started with":   {map[string]string{server: unit, member: "x", "/run/k0s/k0s.yaml": "storage:\n  etcd:\n    externalCluster: null\n  type: etcd\n"}, model.DatastoreEtcd},
		"none":                   {map[string]string{server: unit}, model.DatastoreOther},
		"a worker":               {map[string]string{"/etc/systemd/system/k0sworker.service": unit, db: "x"}, ""},
		"another data directory": {map[string]string{server: "[Service]\nExecStart=/usr/local/bin/k0s controller --single --data-dir=/mnt/k0s\n", "/mnt/k0s/db/state.db": "x"}, model.DatastoreSQLite},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			at := filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		p := supervisorPart{node: kube.Supervised(root)}
		if p.node == nil {
			t.Fatalf("%s: not detected", name)
		}
		if got := p.datastore(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if p.SnapshotCommand("/x") != nil || (p.Etcd() != nil) != (c.want == model.DatastoreEtcd) {
			t.Errorf("%s: refit saves the snapshot of etcd itself, and of nothing else", name)
		}
	}
}
