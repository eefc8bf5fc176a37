package cli

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/model"
)

// Without a bundle, plan and apply create an update for the changes of NodeConfigs. The
// same edits get one update, nodes without changes none, and a running update gets no
// second one next to it.
func TestWhatTheNodeConfigsWant(t *testing.T) {
	p := newPerson(t)
	ctx := context.Background()
	updates := func() (out []v1alpha1.ClusterUpdate) {
		var l v1alpha1.ClusterUpdateList
		if err := p.List(ctx, &l); err != nil {
			t.Fatal(err)
		}
		return l.Items
	}
	if said := p.types(console.ExitUsage, "plan"); !strings.Contains(said, "every node matches its NodeConfigs and OS image") {
		t.Errorf("%q", said)
	}
	text := "hello"
	c := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "motd"}, Spec: v1alpha1.NodeConfigSpec{Files: []v1alpha1.NodeFile{{Path: "/etc/motd", Contents: &v1alpha1.FileContents{Inline: &text}}}}}
	if err := p.Create(ctx, c); err != nil {
		t.Fatal(err)
	}
	p.types(console.ExitInProgress, "plan", "--timeout", "1s") // no controller runs here
	all := updates()
	if len(all) != 1 || all[0].Spec.Bundle != "" || all[0].Spec.Start != v1alpha1.StartManual {
		t.Fatalf("%+v", all)
	}
	p.types(console.ExitInProgress, "plan", "--timeout", "1s")
	if n := len(updates()); n != 1 {
		t.Fatalf("%d updates for one edit", n)
	}
	u := &all[0]
	u.Status.Phase, u.Status.ObservedGeneration = v1alpha1.PhaseDone, u.Generation
	if err := p.controller.Status().Update(ctx, u); err != nil {
		t.Fatal(err)
	}
	c.Status = v1alpha1.NodeConfigStatus{ObservedGeneration: c.Generation, Nodes: 3, Current: 3}
	if err := p.controller.Status().Update(ctx, c); err != nil {
		t.Fatal(err)
	}
	p.types(console.ExitOK, "plan") // the last one
	if n := len(updates()); n != 1 {
		t.Errorf("%d updates although all is as wanted", n)
	}
	c.Status.Current = 2
	if err := p.controller.Status().Update(ctx, c); err != nil {
		t.Fatal(err)
	}
	p.types(console.ExitInProgress, "plan", "--timeout", "1s")
	if n := len(updates()); n != 2 {
		t.Errorf("%d updates although a node is not as wanted", n)
	}
}

// A pool may have an OS image and no NodeConfig: its nodes wait for an update all the same.
func TestWhatAnOSImageAloneWants(t *testing.T) {
	p := newPerson(t)
	ctx := context.Background()
	const wanted, other = "sha256:" + "11111111111111111111111111111111", "sha256:" + "22222222222222222222222222222222"
	config := model.NodeConfig{OS: &model.ConfigOS{Image: "registry.example/os@" + wanted}}
	state := v1alpha1.ContentName(v1alpha1.ContentConfig, string(config.JSON()))
	node := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "n1"}, Spec: v1alpha1.NodeUpdateSpec{Config: state}}
	if err := p.Create(ctx, &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{OSImage: "edge"}}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{
		&v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: state}, Type: v1alpha1.ContentConfig, Data: string(config.JSON())}, node,
	} {
		if err := p.controller.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	for what, tc := range map[string]struct {
		fields map[string]string
		waits  bool
	}{
		"another image is booted":     {map[string]string{model.FieldOSImage: other}, true},
		"its image is booted":         {map[string]string{model.FieldOSImage: wanted}, false},
		"its OS cannot be moved":      {map[string]string{model.FieldOSUnsupported: "the OS is made of packages"}, false},
		"no agent has reported on it": {nil, false},
	} {
		node.Status.Observed = nil
		if tc.fields != nil {
			node.Status.Observed = &v1alpha1.Observed{Fields: tc.fields}
		}
		if err := p.Status().Update(ctx, node); err != nil {
			t.Fatal(err)
		}
		if name, err := configsWaiting(ctx, p); err != nil || (name != "") != tc.waits {
			t.Errorf("%s: update %q, %v", what, name, err)
		}
	}
}
