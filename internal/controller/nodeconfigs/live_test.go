package nodeconfigs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage/contents"
	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
)

// Differences of a newer image that need no reboot are files of the nodes. A file that was
// written over one of the image, and is no longer wanted, is restored to that of the image.
// A NodeConfig with the path comes before both.
func TestWrittenOverAnImage(t *testing.T) {
	const was, is = "r.example/os@sha256:was", "r.example/os@sha256:is"
	data := string(contents.SealFiles("sha256:was", "sha256:is", []model.ConfigFile{
		{Path: "/etc/chrony.conf", Mode: 0o644, Owner: "root", Group: "root", Data: []byte("two")}, {Path: "/etc/mine", Mode: 0o644, Owner: "root", Group: "root", Data: []byte("image's")}, {Path: "/etc/old.conf", Absent: true}}))
	live := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ContentName(v1alpha1.ContentOSLive, data)}, Type: v1alpha1.ContentOSLive, Data: data}
	pool := v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{OSImage: "edge", Disruption: []v1alpha1.DisruptionRule{
		{Files: []string{"/etc/chrony.conf", "/etc/old.conf"}, Actions: []v1alpha1.DisruptionAction{{Type: "Reload", Unit: "chronyd.service"}}}}}}
	image := func(st v1alpha1.OSImagePool) *v1alpha1.OSImage {
		st.Name, st.Image = "edge", was
		return &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{st}}}
	}
	mine := model.ConfigFile{Path: "/etc/mine", Mode: 0o644, Owner: "root", Group: "root", Data: []byte("a person's"), Disruption: model.DisruptionNone}
	newer := &v1alpha1.OSImageLive{Build: "b2", Image: is, Content: live.Name, Message: "image " + is + " differs"}
	reload := func(f model.ConfigFile) model.ConfigFile {
		f.Disruption, f.Units = model.DisruptionReload, []string{"chronyd.service"}
		return f
	}
	for name, c := range map[string]struct {
		st      v1alpha1.OSImagePool
		want    []model.ConfigFile
		version string
		note    string
	}{
		"nothing is live": {v1alpha1.OSImagePool{}, []model.ConfigFile{mine}, model.ConfigVersion, ""},
		"a newer image is": {v1alpha1.OSImagePool{Live: newer, Written: []string{"/etc/chrony.conf", "/etc/mine", "/etc/old.conf"}},
			[]model.ConfigFile{reload(model.ConfigFile{Path: "/etc/chrony.conf", Mode: 0o644, Owner: "root", Group: "root", Data: []byte("two")}), mine, reload(model.ConfigFile{Path: "/etc/old.conf", Absent: true})}, model.ConfigVersion, "image " + is + " differs"},
		"it was, and is restored": {v1alpha1.OSImagePool{Written: []string{"/etc/chrony.conf", "/etc/mine", "/etc/uncovered"}},
			[]model.ConfigFile{reload(model.ConfigFile{Path: "/etc/chrony.conf", AsImage: true}), mine, {Path: "/etc/uncovered", AsImage: true, Disruption: model.DisruptionReboot}}, model.ConfigVersionAsImage, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &configSnapshot{pools: []v1alpha1.UpdatePool{pool}, images: map[string]*poolImage{}}
			if err := w.imagesOf(image(c.st), map[string]*v1alpha1.Content{live.Name: live}); err != nil {
				t.Fatal(err)
			}
			got, vs := w.withImage(&pool, nil, model.NodeConfig{Version: model.ConfigVersion, Files: []model.ConfigFile{mine}})
			if diff := cmp.Diff(c.want, got.Files); diff != "" || len(vs) > 0 || got.Version != c.version || got.OS.Image != was || got.OS.Note != c.note {
				t.Errorf("%s %v %q %+v", diff, vs, got.Version, got.OS)
			}
			if f := got.Fields(); f[model.FieldOSImage] != "sha256:was" {
				t.Error("another image is wanted than the one that is booted:", f)
			}
			var read model.NodeConfig
			if err := json.Unmarshal(got.JSON(), &read); err != nil || cmp.Diff(got.Fields(), read.Fields()) != "" {
				t.Error("an agent reads it otherwise", err)
			}
		})
	}
	// A cache that has not seen the files yet leaves everything as it is.
	w := &configSnapshot{pools: []v1alpha1.UpdatePool{pool}, images: map[string]*poolImage{}}
	if err := w.imagesOf(image(v1alpha1.OSImagePool{Live: newer}), nil); err == nil || !strings.Contains(err.Error(), "not seen yet") {
		t.Error(err)
	}
	// Files of other images are not written.
	other := *newer
	other.Image = "r.example/os@sha256:other"
	if err := w.imagesOf(image(v1alpha1.OSImagePool{Live: &other}), map[string]*v1alpha1.Content{live.Name: live}); err == nil {
		t.Error("files of another image are taken")
	}
}

// A rule for single files differs from the policy of the pool; another policy is another configuration.
func TestRenderDriftRules(t *testing.T) {
	file := func(path string) model.ConfigFile {
		return model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte("x"), Disruption: model.DisruptionNone}
	}
	w := &configSnapshot{sources: map[string]nodeconfig.Source{"all": {Name: "all", Files: []model.ConfigFile{file("/etc/a"), file("/etc/b")}}},
		pools: []v1alpha1.UpdatePool{{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: v1alpha1.UpdatePoolSpec{Drift: v1alpha1.DriftRepair}}, {ObjectMeta: metav1.ObjectMeta{Name: "rules"},
			Spec: v1alpha1.UpdatePoolSpec{Drift: v1alpha1.DriftRepair, DriftRules: []v1alpha1.DriftRule{{Files: []string{"/etc/a"}, Action: v1alpha1.DriftIgnore}, {Files: []string{"/etc/b"}, Action: v1alpha1.DriftReport}}}}}}
	plain, rules := w.render([]string{"all"}, "plain"), w.render([]string{"all"}, "rules")
	if plain.name == "" || plain.name == rules.name || plain.config.HasDriftRules() {
		t.Fatalf("%+v %+v", plain, rules)
	}
	var read model.NodeConfig
	if err := json.Unmarshal([]byte(rules.data), &read); err != nil || read.Drift != model.DriftRepair || read.Files[0].Drift != model.DriftIgnore || read.Files[1].Drift != model.DriftReport {
		t.Fatal(err, rules.data)
	}
}

// A registries.conf that only adds a mirror for digests reloads the runtime; any other change, and what
// a person says of it, is as before.
func TestMirrorsNeedNoBoot(t *testing.T) {
	const path, old = "/etc/containers/registries.conf", "[[registry]]\nlocation = \"r.example\"\n"
	const adds, tags = old + "[[registry.mirror]]\nlocation = \"m.example\"\npull-from-mirror = \"digest-only\"\n", old + "[[registry.mirror]]\nlocation = \"m.example\"\n"
	file := func(path, data string) model.ConfigFile {
		return model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte(data)}
	}
	declared := file(path, adds)
	declared.Disruption = model.DisruptionDrain
	other := file(path, adds)
	other.Mode = 0o600
	held := model.NodeConfig{Files: []model.ConfigFile{file(path, old), file("/etc/containers/registries.conf.d/10.conf", old), file("/etc/app.conf", old)}}
	pool := &v1alpha1.UpdatePool{Spec: v1alpha1.UpdatePoolSpec{OSImage: "edge"}}
	ruled := &v1alpha1.UpdatePool{Spec: v1alpha1.UpdatePoolSpec{OSImage: "edge", Disruption: []v1alpha1.DisruptionRule{{Files: []string{"/etc/containers"}, Actions: []v1alpha1.DisruptionAction{{Type: "Drain"}}}}}}
	for name, c := range map[string]struct {
		pool *v1alpha1.UpdatePool
		held model.NodeConfig
		file model.ConfigFile
		want model.Disruption
	}{
		"adds a mirror":                 {pool, held, file(path, adds), model.DisruptionReload},
		"adds one in a drop-in":         {pool, held, file("/etc/containers/registries.conf.d/10.conf", adds), model.DisruptionReload},
		"is as in the image again":      {pool, held, file(path, old), model.DisruptionReload},
		"a mirror for tags":             {pool, held, file(path, tags), model.DisruptionReboot},
		"what the image has is unknown": {pool, model.NodeConfig{}, file(path, adds), model.DisruptionReboot},
		"the NodeConfig says otherwise": {pool, held, declared, model.DisruptionDrain},
		"a rule says otherwise":         {ruled, held, file(path, adds), model.DisruptionDrain},
		"another mode":                  {pool, held, other, model.DisruptionReboot},
		"another file":                  {pool, held, file("/etc/app.conf", adds), model.DisruptionReboot},
	} {
		got := Assign(c.pool, c.held, []nodeconfig.Source{{Name: "n", Files: []model.ConfigFile{c.file}}})[0].Files[0]
		if got.Disruption != c.want || (c.want == model.DisruptionReload) != (len(got.Units) == 1) {
			t.Errorf("%s: %s %v", name, got.Disruption, got.Units)
		}
	}
}
