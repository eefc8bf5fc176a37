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
