package lab

import (
	"slices"
	"strings"
	"testing"
)

func TestWhichNodesHaveCRIO(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want []int
		err  string
	}{
		"nothing said: containerd everywhere":       {o: Options{}},
		"crio everywhere":                           {o: Options{Nodes: 2, Runtime: RuntimeCRIO}, want: []int{1, 2}},
		"mixed: the last worker":                    {o: Options{Nodes: 4, Runtime: RuntimeMixed}, want: []int{4}},
		"mixed needs a worker":                      {o: Options{Nodes: 2, ControlPlanes: 2, Runtime: RuntimeMixed}, err: "last worker"},
		"a runtime that this lab does not know":     {o: Options{Runtime: "docker"}, err: "this lab knows containerd, crio, mixed"},
		"a single node may have it for all it does": {o: Options{Nodes: 1, Runtime: RuntimeCRIO}, want: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := c.o.complete()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("want %q, got %v", c.err, err)
				}
				return
			}
			if got := o.crioNodes(); err != nil || !slices.Equal(got, c.want) {
				t.Fatalf("%v %v", got, err)
			}
		})
	}
}

func TestDistributionOfALab(t *testing.T) {
	for name, c := range map[string]struct {
		o         Options
		want, err string
	}{
		"the first build of the newest release": {o: Options{Distribution: "k3s"}, want: "v1.36.3+k3s1"},
		"the first build of a release":          {o: Options{Distribution: "rke2", Version: "v1.35.4"}, want: "v1.35.4+rke2r1"},
		"another build":                         {o: Options{Distribution: "k3s", Version: "v1.35.4+k3s2"}, want: "v1.35.4+k3s2"},
		"a build of another distribution":       {o: Options{Distribution: "k3s", Version: "v1.35.4+rke2r1"}, err: "is no build"},
		"a build without a distribution":        {o: Options{Version: "v1.35.4+k3s1"}, err: "is no build"},
		"no look-alike":                         {o: Options{Distribution: "talos"}, err: "look-alikes of k3s, rke2, k0s"},
		"the first build of k0s":                {o: Options{Distribution: "k0s", Version: "v1.35.4"}, want: "v1.35.4+k0s.0"},
		"SQLite of k0s":                         {o: Options{Distribution: "k0s", Datastore: DatastoreSQLite}, err: "k0s etcd"},
		"several servers":                       {o: Options{Distribution: "k3s", ControlPlanes: 3}, err: "one server"},
		"CRI-O":                                 {o: Options{Distribution: "k3s", Runtime: RuntimeCRIO}, err: "containerd"},
		"SQLite":                                {o: Options{Distribution: "k3s", Datastore: DatastoreSQLite}, want: "v1.36.3+k3s1"},
		"SQLite where there is none":            {o: Options{Distribution: "rke2", Datastore: DatastoreSQLite}, err: "those of rke2 and k0s etcd"},
		"a datastore of kubeadm's nodes":        {o: Options{Datastore: DatastoreEtcd}, err: "no choice"},
		"an unknown datastore":                  {o: Options{Distribution: "k3s", Datastore: "mysql"}, err: "knows etcd, sqlite"},
	} {
		o, err := c.o.complete()
		if c.err == "" && (err != nil || o.Version != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %s, %v", name, o.Version, err)
		}
	}
}

// Workers boot an OS image, or the only node of a cluster.
func TestOSImageOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, controlPlanes int
		says                 string
	}{
		"workers":             {3, 1, "is no OCI layout"},
		"the only node":       {1, 1, "is no OCI layout"},
		"control planes only": {3, 3, "ask for more nodes than control planes"},
	} {
		o := Options{Nodes: c.nodes, ControlPlanes: c.controlPlanes, OSImage: t.TempDir()}
		if err := o.checkOSImage(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
