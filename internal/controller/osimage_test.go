//go:build linux

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// bootable is an image with a kernel; nodes have the rest of what they need to boot and to join.
var bootable = registrytest.Image{Version: "9", Layers: []string{"kernel"}, Files: map[string]string{"usr/lib/modules/6.12.1/vmlinuz": "kernel"},
	Labels: map[string]string{osimage.LabelBootc: "1", osimage.LabelHostProvides: "kubelet,runtime,refit-agent,systemd,initramfs"}}

// The installed controller builds a pool's image, and tells the pool's nodes, and
// no others, which they are to boot, with the arguments it was made with. Nothing
// moves by itself.
func TestOSImages(t *testing.T) {
	reg := registrytest.Start(t)
	s := newSite(t, from)
	base := reg.Push("os/base", bootable, "9")
	s.create(&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: reg.Ref("os/base@" + base)}, Repository: reg.Ref("os/edge")}})
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "n2"}}, OSImage: "edge"}})
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"edge"}, KernelArguments: []v1alpha1.KernelArgument{"quiet"},
		Files: []v1alpha1.NodeFile{inline("/etc/unknown.conf", "x"), inline("/usr/lib/own.conf", "x")}}})

	var config model.NodeConfig
	s.wait("the desired state of n2 has its image", func() string {
		config, _ = s.configOf("n2")
		if config.OS == nil || config.OS.Digest() == "" {
			return fmt.Sprintf("%+v", config)
		}
		return ""
	})
	if !strings.HasPrefix(config.OS.Image, reg.Ref("os/edge@sha256:")) || !slices.Equal(config.OS.KernelArguments, []string{"quiet"}) || len(config.Files) != 2 || config.Files[0].Disruption != model.DisruptionReboot || !config.Files[1].InImage {
		t.Errorf("%+v %+v", config.OS, config.Files)
	}
	if other, _ := s.configOf("n3"); other.OS != nil {
		t.Errorf("n3 is in no pool, but its desired state has %+v", other.OS)
	}
	if f := config.Fields(); f[model.FieldOSImage] != config.OS.Digest() || f[model.FieldKernelArguments] != "quiet" {
		t.Error(f)
	}
	var nu v1alpha1.NodeUpdate
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n2"}, &nu); err != nil || nu.Spec.Run != nil {
		t.Error("a node moves by itself", err)
	}

	heldOnABuild(t, s, config)

	// The same packages for some nodes of the pool cannot be: they share an image.
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "some"}, Spec: v1alpha1.NodeConfigSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "n2"}}, Packages: []v1alpha1.PackageName{"vim"}}})
	s.waitConfig("some", "the invalid NodeConfig is reported", configSays(v1alpha1.ReasonConfigInvalid, "share the image of OSImage edge"))
	// Packages on nodes without an image have no way there.
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "alone"}, Spec: v1alpha1.NodeConfigSpec{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "n3"}}, Packages: []v1alpha1.PackageName{"vim"}}})
	s.waitConfig("alone", "the invalid NodeConfig is reported", configSays(v1alpha1.ReasonConfigInvalid, "no OSImage"))
}

// A node stages its OS image before it is cordoned. While the registry is unreachable no node
// is cordoned, and the update resumes when the registry is back. When the update is done or
// deleted, the stage requests are removed.
func TestStagedBeforeTheDrain(t *testing.T) {
	reg := registrytest.Start(t)
	s := newSite(t, from)
	base := reg.Push("os/base", bootable, "9")
	s.create(&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: reg.Ref("os/base@" + base)}, Repository: reg.Ref("os/edge")}})
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{OSImage: "edge", NodeSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: []string{"n2", "n3"}}}}}})
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"edge"}, KernelArguments: []v1alpha1.KernelArgument{"quiet"}}})
	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.prepares, a.registryAway = true, true })
	}
	stage := func(node string) string {
		var nu v1alpha1.NodeUpdate
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, &nu); err != nil {
			t.Fatal(err)
		}
		return nu.Spec.Stage
	}
	s.wait("the desired state of the nodes has their image", func() string {
		for _, n := range []string{"n2", "n3"} {
			if c, _ := s.configOf(n); c.OS.Digest() == "" {
				return n + " is not"
			}
		}
		return ""
	})
	s.updateOfConfigs("boot", v1alpha1.StartImmediate)
	s.waitUpdate("boot", "the update reports why no node starts", func(u *v1alpha1.ClusterUpdate) bool {
		return blocked(v1alpha1.ReasonOSNotStaged)(u)
	})
	for _, name := range []string{"n2", "n3"} {
		_, config := s.configOf(name)
		n := s.node(name)
		if stage(name) != config || n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationUpdating] != "" {
			t.Errorf("%s makes %q ready, cordoned %v", name, stage(name), n.Spec.Unschedulable)
		}
	}
	if stage("n1") != "" {
		t.Error("n1 is in no pool with an image and makes one ready")
	}
	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.registryAway = false })
	}
	s.waitUpdate("boot", "the update resumes by itself", phase(v1alpha1.PhaseDone))
	s.wait("no node has a stage request", func() string { return stage("n2") + stage("n3") })

	for _, a := range s.agents {
		a.set(func(a *simAgent) { a.registryAway = true })
	}
	s.wait("another argument is wanted", func() string {
		var c v1alpha1.NodeConfig
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &c); err != nil {
			return err.Error()
		}
		c.Spec.KernelArguments = []v1alpha1.KernelArgument{"quiet", "late"}
		if err := s.admin.Update(context.Background(), &c); err != nil {
			return err.Error()
		}
		return ""
	})
	s.wait("a new image has the argument", func() string {
		if c, _ := s.configOf("n3"); c.OS == nil || len(c.OS.KernelArguments) != 2 {
			return fmt.Sprintf("%+v", c.OS)
		}
		return ""
	})
	s.updateOfConfigs("never", v1alpha1.StartImmediate)
	s.wait("n3 makes it ready", func() string {
		if stage("n3") == "" {
			return "n3 has no stage request"
		}
		return ""
	})
	s.wait("the update is deleted", func() string {
		var u v1alpha1.ClusterUpdate
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "never"}, &u); err != nil {
			return err.Error()
		}
		u.Annotations = map[string]string{"refit.dev/allow-delete": "true"}
		if err := s.admin.Update(context.Background(), &u); err != nil {
			return err.Error()
		}
		if err := s.admin.Delete(context.Background(), &u); err != nil {
			return err.Error()
		}
		return ""
	})
	s.wait("no node has a stage request of the deleted update", func() string { return stage("n2") + stage("n3") })
}

// In a pool with an OS image, a change with a Reload rule needs no build, cordon, drain or
// restart. A change without a rule needs all of them.
func TestAReloadTakesNothing(t *testing.T) {
	reg := registrytest.Start(t)
	s := newSite(t, from)
	base := reg.Push("os/base", bootable, "9")
	s.create(&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: reg.Ref("os/base@" + base)}, Repository: reg.Ref("os/edge")}})
	s.create(&v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "n2"}}, OSImage: "edge",
		Disruption: []v1alpha1.DisruptionRule{{Files: []string{"/etc/app.d"}, Actions: []v1alpha1.DisruptionAction{{Type: "Reload", Unit: "app.service"}}}}}})
	s.create(&v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"edge"}, Files: []v1alpha1.NodeFile{inline("/etc/app.d/x.conf", "one"), inline("/etc/other.conf", "one")}}})
	edit := func(i int, text string) {
		t.Helper()
		s.wait("the edit is taken", func() string {
			var c v1alpha1.NodeConfig
			if err := s.admin.Get(context.Background(), client.ObjectKey{Name: "edge"}, &c); err != nil {
				return err.Error()
			}
			c.Spec.Files[i].Contents.Inline = &text
			if err := s.admin.Update(context.Background(), &c); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	waitConfig := func(what string, ok func(c model.NodeConfig) bool) (c model.NodeConfig) {
		t.Helper()
		s.wait(what, func() string {
			if c, _ = s.configOf("n2"); !ok(c) {
				return fmt.Sprintf("%+v", c)
			}
			return ""
		})
		return c
	}
	has := func(c model.NodeConfig, i int, text string) bool {
		return len(c.Files) == 2 && string(c.Files[i].Data) == text
	}
	moved := func(name string) (plan string, cordoned int) {
		t.Helper()
		s.agents["n2"].set(func(a *simAgent) { a.cordoned = 0 })
		s.updateOfConfigs(name, v1alpha1.StartImmediate)
		u := s.waitUpdate(name, "the update is done", phase(v1alpha1.PhaseDone))
		var c v1alpha1.Content
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: u.Status.Plan}, &c); err != nil {
			t.Fatal(err)
		}
		s.agents["n2"].set(func(a *simAgent) { cordoned = a.cordoned })
		return c.Data, cordoned
	}
	builds := func() int {
		var list v1alpha1.OSBuildList
		if err := s.admin.List(context.Background(), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}

	first := waitConfig("the desired state of n2 has its image", func(c model.NodeConfig) bool { return c.OS.Digest() != "" && has(c, 0, "one") })
	if plan, cordoned := moved("first"); cordoned == 0 || !strings.Contains(plan, `"os-image"`) {
		t.Errorf("the first image: cordoned %d rounds, plan %s", cordoned, plan)
	}
	edit(0, "two")
	live := waitConfig("the desired state of n2 has the edit", func(c model.NodeConfig) bool { return has(c, 0, "two") })
	if live.OS.Image != first.OS.Image || live.Files[0].Disruption != model.DisruptionReload || !slices.Equal(live.Files[0].Units, []string{"app.service"}) {
		t.Errorf("the desired state has %+v", live)
	}
	plan, cordoned := moved("live")
	for _, step := range []string{"cordon", "drain", "reboot", "os-image", "uncordon"} {
		if strings.Contains(plan, `"id":"`+step+`"`) {
			t.Errorf("the plan has %s: %s", step, plan)
		}
	}
	if cordoned != 0 || builds() != 1 || s.has("n2", "/etc/app.d/x.conf") != model.DigestOf([]byte("two")) {
		t.Errorf("cordoned %d rounds, %d builds, n2 has %s", cordoned, builds(), s.has("n2", "/etc/app.d/x.conf"))
	}
	edit(1, "two") // no rule matches this file
	waitConfig("the desired state of n2 has another image", func(c model.NodeConfig) bool { return has(c, 1, "two") && c.OS.Image != first.OS.Image })
	if plan, cordoned := moved("boot"); cordoned == 0 || !strings.Contains(plan, `"id":"drain"`) || !strings.Contains(plan, `"id":"os-image"`) || builds() != 2 {
		t.Errorf("cordoned %d rounds, %d builds, plan %s", cordoned, builds(), plan)
	}
}

// A pool with spec.osBuild keeps the image and the configuration of that build, despite later
// edits. Without it, the pool has the current ones.
func heldOnABuild(t *testing.T, s *site, first model.NodeConfig) {
	t.Helper()
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var image v1alpha1.OSImage
	must(s.admin.Get(ctx, client.ObjectKey{Name: "edge"}, &image))
	build := image.Status.Pools[0].Build
	var c v1alpha1.NodeConfig
	must(s.admin.Get(ctx, client.ObjectKey{Name: "edge"}, &c))
	c.Spec.KernelArguments, c.Spec.Files = []v1alpha1.KernelArgument{"nosmt"}, nil
	must(s.admin.Update(ctx, &c))
	has := func(argument, digest string) {
		t.Helper()
		s.wait("the desired state of n2 has the image with "+argument, func() string {
			config, _ := s.configOf("n2")
			if config.OS == nil || !slices.Equal(config.OS.KernelArguments, []string{argument}) || digest != "" && config.OS.Digest() != digest {
				return fmt.Sprintf("%+v", config.OS)
			}
			return ""
		})
	}
	hold := func(build string) {
		t.Helper()
		var p v1alpha1.UpdatePool
		must(s.admin.Get(ctx, client.ObjectKey{Name: "edge"}, &p))
		p.Spec.OSBuild = build
		must(s.admin.Update(ctx, &p))
	}
	has("nosmt", "")
	hold(build)
	has("quiet", first.OS.Digest())
	if config, _ := s.configOf("n2"); len(config.Files) != len(first.Files) {
		t.Errorf("held on %s it has the files %+v", build, config.Files)
	}
	hold("")
	has("nosmt", "")
}
