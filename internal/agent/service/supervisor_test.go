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
