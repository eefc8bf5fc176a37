//go:build linux

package osimages

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

func (w *site) pushBase(version string) string {
	return w.reg.Push("os/base", registrytest.Image{Version: version, Layers: []string{"kernel", "userland " + version}}, "9")
}

func (w *site) has(digest string) bool {
	w.t.Helper()
	ok, err := registry.NewWriter(nil, nil).Has(context.Background(), w.reg.Ref("os/edge"), digest)
	w.must(err)
	return ok
}

// What people may say of OSImages, pools and configurations, and the words in
// which the rest is refused.
func TestKinds(t *testing.T) {
	w := newSite(t)
	digest := "@sha256:" + strings.Repeat("a", 64)
	yes, no := true, false
	key := &v1alpha1.ConfigMapKey{Name: "x", Key: "y"}
	per := func(s *v1alpha1.OSImageSpec) {
		s.Build = &v1alpha1.OSBuildPlace{Image: "r.example/b" + digest}
		s.Containerfile = &v1alpha1.OSContainerfile{PerArchitecture: []v1alpha1.OSArchitectureFile{{Architecture: "arm64", Inline: "FROM configs"}}}
	}
	image := func(change func(*v1alpha1.OSImageSpec)) client.Object {
		s := v1alpha1.OSImageSpec{Base: &v1alpha1.OSBase{Image: "r.example/base" + digest}, Repository: "r.example/os/edge"}
		change(&s)
		return &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}, Spec: s}
	}
	rules := func(r ...v1alpha1.DisruptionRule) client.Object {
		p := pool()
		p.Name, p.GenerateName, p.Spec.Disruption = "", "x-", r
		return p
	}
	act := func(kind, unit string) v1alpha1.DisruptionAction {
		return v1alpha1.DisruptionAction{Type: kind, Unit: unit}
	}
	nodes := func(change func(*v1alpha1.NodeConfigSpec)) client.Object {
		c := config(change)
		c.Name, c.GenerateName = "", "x-"
		return c
	}
	for name, c := range map[string]struct {
		o    client.Object
		says string
	}{
		"a base by digest":              {image(func(*v1alpha1.OSImageSpec) {}), ""},
		"a base that is followed":       {image(func(s *v1alpha1.OSImageSpec) { s.Base.Image, s.Base.Track = "r.example/base:9", &yes }), ""},
		"a tag that is not followed":    {image(func(s *v1alpha1.OSImageSpec) { s.Base.Image = "r.example/base:9" }), "track: true to follow the tag"},
		"a digest that is followed":     {image(func(s *v1alpha1.OSImageSpec) { s.Base.Track = &yes }), "set image to repository@sha256"},
		"track: false":                  {image(func(s *v1alpha1.OSImageSpec) { s.Base.Track = &no }), "leave track out"},
		"a base without a registry":     {image(func(s *v1alpha1.OSImageSpec) { s.Base.Image = "base" + digest }), "must be a registry, a path and a digest"},
		"no repository":                 {image(func(s *v1alpha1.OSImageSpec) { s.Repository = "" }), "base needs repository"},
		"without a registry":            {image(func(s *v1alpha1.OSImageSpec) { s.Repository, s.Output = "", v1alpha1.OutputNodes }), ""},
		"no repository says what to do": {image(func(s *v1alpha1.OSImageSpec) { s.Repository = "" }), "on a site without a registry set output: Nodes"},
		"nodes, and a place to push":    {image(func(s *v1alpha1.OSImageSpec) { s.Output = v1alpha1.OutputNodes }), "no registry is asked: leave out repository"},
		"nodes, and a base that is followed": {image(func(s *v1alpha1.OSImageSpec) {
			s.Repository, s.Output, s.Base.Image, s.Base.Track = "", v1alpha1.OutputNodes, "r.example/base:9", &yes
		}), "takes a base that a bundle brings, by its digest"},
		"nodes, and a Containerfile": {image(func(s *v1alpha1.OSImageSpec) {
			s.Repository, s.Output, s.Containerfile, s.Build = "", v1alpha1.OutputNodes, &v1alpha1.OSContainerfile{Inline: "FROM configs"}, &v1alpha1.OSBuildPlace{Image: "r.example/b" + digest}
		}), "build it where there is a registry, bring it in a bundle"},
		"nodes, and a finished image": {image(func(s *v1alpha1.OSImageSpec) {
			*s = v1alpha1.OSImageSpec{Image: "r.example/os" + digest, Output: v1alpha1.OutputNodes}
		}), "takes a base that a bundle brings"},
		"an output that is none":            {image(func(s *v1alpha1.OSImageSpec) { s.Output = "Stick" }), "Registry"},
		"a tag to push to":                  {image(func(s *v1alpha1.OSImageSpec) { s.Repository = "r.example/os/edge:1" }), "without tag or digest"},
		"a finished image":                  {image(func(s *v1alpha1.OSImageSpec) { *s = v1alpha1.OSImageSpec{Image: "r.example/os" + digest} }), ""},
		"a finished image by tag":           {image(func(s *v1alpha1.OSImageSpec) { *s = v1alpha1.OSImageSpec{Image: "r.example/os:1"} }), "nodes are never pointed at a tag"},
		"both":                              {image(func(s *v1alpha1.OSImageSpec) { s.Image = "r.example/os" + digest }), "set base to have images built, or image"},
		"neither":                           {image(func(s *v1alpha1.OSImageSpec) { *s = v1alpha1.OSImageSpec{} }), "set base to have images built, or image"},
		"a Containerfile without a builder": {image(func(s *v1alpha1.OSImageSpec) { s.Containerfile = &v1alpha1.OSContainerfile{Inline: "FROM configs"} }), "containerfile needs build.image"},
		"a builder by tag":                  {image(func(s *v1alpha1.OSImageSpec) { s.Build = &v1alpha1.OSBuildPlace{Image: "r.example/b:1"} }), "must be named by digest"},
		"all that a build takes": {image(func(s *v1alpha1.OSImageSpec) {
			s.Containerfile = &v1alpha1.OSContainerfile{Inline: "FROM configs", PerArchitecture: []v1alpha1.OSArchitectureFile{{Architecture: "arm64", ConfigMap: key}}}
			s.Build = &v1alpha1.OSBuildPlace{Image: "r.example/b" + digest, Context: &v1alpha1.OSBuildContext{ConfigMap: "files"}, Secrets: []v1alpha1.PullSecret{{Name: "a"}}, Mirrors: key}
			s.CABundle, s.Proxy = key, &v1alpha1.OSBuildProxy{HTTPS: "http://proxy:3128", NoProxy: ".svc"}
		}), ""},
		"texts per architecture for all platforms": {image(func(s *v1alpha1.OSImageSpec) { per(s); s.Platforms = []string{"linux/arm64"} }), ""},
		"texts per architecture and no platforms":  {image(per), "name the platforms, each with a text"},
		"a platform without a text":                {image(func(s *v1alpha1.OSImageSpec) { per(s); s.Platforms = []string{"linux/amd64", "linux/arm64"} }), "name the platforms, each with a text"},
		"a Containerfile without a text": {image(func(s *v1alpha1.OSImageSpec) {
			s.Containerfile, s.Build = &v1alpha1.OSContainerfile{}, &v1alpha1.OSBuildPlace{Image: "r.example/b" + digest}
		}), "set inline or configMap"},
		"a Containerfile twice": {image(func(s *v1alpha1.OSImageSpec) {
			s.Containerfile, s.Build = &v1alpha1.OSContainerfile{Inline: "FROM configs", ConfigMap: key}, &v1alpha1.OSBuildPlace{Image: "r.example/b" + digest}
		}), "set one of inline and configMap"},
		"an architecture without a text": {image(func(s *v1alpha1.OSImageSpec) { per(s); s.Containerfile.PerArchitecture[0].Inline = "" }), "set exactly one of inline and configMap"},
		"a context by tag": {image(func(s *v1alpha1.OSImageSpec) {
			s.Build = &v1alpha1.OSBuildPlace{Image: "r.example/b" + digest, Context: &v1alpha1.OSBuildContext{Artifact: "r.example/files:1"}}
		}), "by a tag the same build would not be the same"},
		"no context": {image(func(s *v1alpha1.OSImageSpec) {
			s.Build = &v1alpha1.OSBuildPlace{Image: "r.example/b" + digest, Context: &v1alpha1.OSBuildContext{}}
		}), "set exactly one of configMap and artifact"},
		"a proxy with a password":      {image(func(s *v1alpha1.OSImageSpec) { s.Proxy = &v1alpha1.OSBuildProxy{HTTP: "http://a:b@proxy"} }), "without user and password"},
		"a proxy that is none":         {image(func(s *v1alpha1.OSImageSpec) { s.Proxy = &v1alpha1.OSBuildProxy{NoProxy: "x"} }), "set http or https"},
		"a platform of another system": {image(func(s *v1alpha1.OSImageSpec) { s.Platforms = []string{"windows/amd64"} }), "should match"},
		"a CA bundle for a finished image": {image(func(s *v1alpha1.OSImageSpec) {
			*s = v1alpha1.OSImageSpec{Image: "r.example/os" + digest, CABundle: key}
		}), "nothing is built, so leave out"},
		"one secret, and another": {image(func(s *v1alpha1.OSImageSpec) {
			s.Secret, s.PushSecret = &v1alpha1.PullSecret{Name: "a"}, &v1alpha1.PullSecret{Name: "b"}
		}), "set secret if one does for all"},
		"a rule":               {rules(v1alpha1.DisruptionRule{Files: []string{"/etc/x"}, Actions: []v1alpha1.DisruptionAction{act("Restart", "x.service"), act("Drain", "")}}), ""},
		"Reboot and more":      {rules(v1alpha1.DisruptionRule{Files: []string{"/etc/x"}, Actions: []v1alpha1.DisruptionAction{act("Reboot", ""), act("Drain", "")}}), "None and Reboot stand alone"},
		"a restart of nothing": {rules(v1alpha1.DisruptionRule{Files: []string{"/etc/x"}, Actions: []v1alpha1.DisruptionAction{act("Restart", "")}}), "Reload and Restart need a unit"},
		"a rule about nothing": {rules(v1alpha1.DisruptionRule{Actions: []v1alpha1.DisruptionAction{act("None", "")}}), "name files, units or sshKeys"},
		"kernel arguments, keys, packages": {nodes(func(s *v1alpha1.NodeConfigSpec) {
			s.KernelArguments = []v1alpha1.KernelArgument{"console=ttyS0,115200n8", "a.b=c"}
			s.Packages = []v1alpha1.PackageName{"g++"}
			s.SSHAuthorizedKeys = []v1alpha1.UserKeys{{User: "core", Keys: []string{"ssh-ed25519 AAAA x"}}}
		}), ""},
		"a kernel argument of two words": {nodes(func(s *v1alpha1.NodeConfigSpec) { s.KernelArguments = []v1alpha1.KernelArgument{"a b"} }), "one word without blanks"},
		"a user whose name leads elsewhere": {nodes(func(s *v1alpha1.NodeConfigSpec) {
			s.SSHAuthorizedKeys = []v1alpha1.UserKeys{{User: "../x", Keys: []string{"k"}}}
		}), "must be the name of a user"},
		"a package that is a command": {nodes(func(s *v1alpha1.NodeConfigSpec) { s.Packages = []v1alpha1.PackageName{"a;b"} }), "must be the name of a package"},
	} {
		err := w.admin.Create(context.Background(), c.o)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
