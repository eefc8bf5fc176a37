package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// configOf returns the rendered configuration in the desired state of a node, and its name.
func (s *site) configOf(node string) (model.NodeConfig, string) {
	var nu v1alpha1.NodeUpdate
	var c v1alpha1.Content
	var out model.NodeConfig
	if s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, &nu) != nil || nu.Spec.Config == "" {
		return out, ""
	}
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: nu.Spec.Config}, &c); err != nil {
		s.t.Fatal(err) // what is named exists
	}
	if err := json.Unmarshal([]byte(c.Data), &out); err != nil || v1alpha1.ContentName(v1alpha1.ContentConfig, c.Data) != c.Name {
		s.t.Fatal(err, c.Name)
	}
	return out, c.Name
}

func (s *site) waitConfig(name, what string, ok func(*v1alpha1.NodeConfig) bool) {
	s.t.Helper()
	s.wait(what, func() string {
		var c v1alpha1.NodeConfig
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, &c); err != nil {
			return err.Error()
		}
		if !ok(&c) {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})
}

func configSays(reason string, parts ...string) func(*v1alpha1.NodeConfig) bool {
	return func(c *v1alpha1.NodeConfig) bool {
		r := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		if r == nil || r.Reason != reason || r.ObservedGeneration != c.Generation {
			return false
		}
		for _, p := range parts {
			if !strings.Contains(r.Message, p) {
				return false
			}
		}
		return true
	}
}

func inline(path, text string) v1alpha1.NodeFile {
	return v1alpha1.NodeFile{Path: path, Contents: &v1alpha1.FileContents{Inline: &text}}
}

// NodeConfigs are rendered for the nodes they match, with the rights that the
// controller has when installed; a conflict names both and takes nothing away.
func TestNodeConfigs(t *testing.T) {
	s := newSite(t, from)
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "motd"}, Data: map[string]string{"text": "hello"}})
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.NodeConfigSpec{Files: []v1alpha1.NodeFile{
		{Path: "/etc/motd", Contents: &v1alpha1.FileContents{ConfigMap: &v1alpha1.ConfigMapKey{Name: "motd", Key: "text"}}}}}})
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.NodeConfigSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "n2"}}, Files: []v1alpha1.NodeFile{inline("/etc/sysctl.d/90-edge.conf", "net.ipv4.ip_forward=1\n")}}})
	s.wait("n2 gets both, n3 one", func() string {
		a, _ := s.configOf("n2")
		b, _ := s.configOf("n3")
		if len(a.Files) != 2 || len(b.Files) != 1 || string(b.Files[0].Data) != "hello" {
			return fmt.Sprintf("%+v %+v", a, b)
		}
		return ""
	})
	s.waitConfig("all", "the status reports that nodes do not have it yet", func(c *v1alpha1.NodeConfig) bool {
		return configSays(v1alpha1.ReasonConfigWaiting, "0 of 3 nodes")(c) && c.Status.Nodes == 3
	})
	_, before := s.configOf("n2")

	clash := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "clash"}, Spec: v1alpha1.NodeConfigSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "n2"}}, Files: []v1alpha1.NodeFile{inline("/etc/motd", "mine")}}}
	s.create(clash)
	for _, name := range []string{"all", "clash"} {
		s.waitConfig(name, "both report the conflict", configSays(v1alpha1.ReasonConfigConflict, "all and clash", "/etc/motd"))
	}
	if _, now := s.configOf("n2"); now != before {
		t.Error("a conflict changed the desired state of the node")
	}
	if err := s.admin.Delete(context.Background(), clash); err != nil {
		t.Fatal(err)
	}
	s.waitConfig("all", "the conflict is over", configSays(v1alpha1.ReasonConfigWaiting))

	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: v1alpha1.NodeConfigSpec{Files: []v1alpha1.NodeFile{inline("/etc/kubernetes/x", "x"),
		{Path: "/etc/y", Contents: &v1alpha1.FileContents{ConfigMap: &v1alpha1.ConfigMapKey{Name: "absent", Key: "x"}}}}}})
	s.waitConfig("bad", "the invalid configuration is reported", configSays(v1alpha1.ReasonConfigInvalid, "no ConfigMap absent"))
	if _, now := s.configOf("n3"); now == "" {
		t.Error("what cannot be took a node's configuration away")
	}

	// A ClusterUpdate plans it: each node's step names the very configuration.
	raw := header(t, "refit-demo", "9.9.9", "", "example.test/app:1")
	s.plugIn("n2", raw)
	s.approve("nothing-but-images", digest(t, raw))
	s.update("u", digest(t, raw), func(u *v1alpha1.ClusterUpdateSpec) { u.Start = v1alpha1.StartManual })
	u := s.waitUpdate("u", "the update is planned", func(u *v1alpha1.ClusterUpdate) bool { return u.Status.NodesTotal == 3 })
	var c v1alpha1.Content
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: u.Status.Plan}, &c); err != nil {
		t.Fatal(err)
	}
	_, name := s.configOf("n2")
	for _, want := range []string{name, "file//etc/sysctl.d/90-edge.conf", "file//etc/motd", `"undo-deadline":"600"`} {
		if name == "" || !strings.Contains(c.Data, want) {
			t.Errorf("the plan does not name %q: %s", want, c.Data)
		}
	}
}
