package joinserver_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeconfigs"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/model"
)

const osDigest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"

func updatePool(name, image string) *v1alpha1.UpdatePool {
	return &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}}, OSImage: image}}
}

func inline(path, text string, mode int32, owner string) v1alpha1.NodeFile {
	return v1alpha1.NodeFile{Path: path, Mode: &mode, Owner: owner, Contents: &v1alpha1.FileContents{Inline: &text}}
}

// everything that a pool's configuration can have.
func everything() []client.Object {
	all := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.NodeConfigSpec{
		Files: []v1alpha1.NodeFile{inline("/etc/motd", "hello\n", 0o644, ""), inline("/var/lib/app/conf", "x=1\n", 0o600, "1000"), {Path: "/etc/old", Absent: true}},
		Units: []v1alpha1.NodeUnit{{Name: "chronyd.service", State: "enabled"}, {Name: "cups.service", State: "masked"}, {Name: "cron.service", State: "disabled"},
			{Name: "own.service", State: "enabled", Contents: "[Service]\nExecStart=/bin/true\n"}},
		SSHAuthorizedKeys: []v1alpha1.UserKeys{{User: "core", Keys: []string{"ssh-ed25519 AAAA me"}}}}}
	kargs := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "kargs"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"imaged", "made", "plain"}, KernelArguments: []v1alpha1.KernelArgument{"quiet"}}}
	labelled := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "labelled"}, Spec: v1alpha1.NodeConfigSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "7"}},
		Files: []v1alpha1.NodeFile{inline("/etc/rack", "7\n", 0o644, "")}}}
	image := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.OSImageSpec{Image: "r.example/os@" + osDigest},
		Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{{Name: "imaged", Image: "r.example/os@" + osDigest}}}}
	made := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Spec: v1alpha1.OSImageSpec{Image: model.NoRegistry + "/os/made@" + osDigest},
		Status: v1alpha1.OSImageStatus{Pools: []v1alpha1.OSImagePool{{Name: "made", Image: model.NoRegistry + "/os/made@" + osDigest}}}}
	return []client.Object{all, kargs, labelled, image, made, updatePool("imaged", "edge"), updatePool("made", "made"), updatePool("plain", ""), updatePool("files", "")}
}

// doc are the members of Ignition that the tests compare.
type doc struct {
	Ignition struct {
		Version string
		Config  struct{ Merge []struct{ Source string } }
	}
	KernelArguments struct{ ShouldExist []string }
	Storage         struct {
		Files []struct {
			Path        string
			Mode        uint32
			User, Group struct {
				Name string
				ID   *int
			}
			Contents struct{ Source string }
		}
	}
	Systemd struct {
		Units []struct {
			Name     string
			Enabled  *bool
			Mask     bool
			Contents string
		}
	}
}

func decoded(t *testing.T, source string) []byte {
	t.Helper()
	_, text, _ := strings.Cut(source, ";base64,")
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// parts of a served configuration: a person's, and the pool's own.
func parts(t *testing.T, body string) (person string, own doc) {
	t.Helper()
	var whole doc
	if err := json.Unmarshal([]byte(body), &whole); err != nil || len(whole.Ignition.Config.Merge) != 2 {
		t.Fatalf("%v %s", err, body)
	}
	raw := decoded(t, whole.Ignition.Config.Merge[1].Source)
	validate(t, string(raw))
	if err := json.Unmarshal(raw, &own); err != nil {
		t.Fatal(err)
	}
	return string(decoded(t, whole.Ignition.Config.Merge[0].Source)), own
}

func orRoot(name string, id *int) string {
	switch {
	case id != nil:
		return fmt.Sprint(*id)
	case name == "":
		return "root"
	}
	return name
}

// fields of a machine that did what a configuration says, as its agent sees them.
func (d doc) fields(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range d.Storage.Files {
		out[model.FieldFile+f.Path] = model.FileValue(model.DigestOf(decoded(t, f.Contents.Source)), f.Mode, orRoot(f.User.Name, f.User.ID), orRoot(f.Group.Name, f.Group.ID))
	}
	for _, u := range d.Systemd.Units {
		switch {
		case u.Mask:
			out[model.FieldUnit+u.Name] = model.UnitMasked
		case u.Enabled != nil && *u.Enabled:
			out[model.FieldUnit+u.Name] = model.UnitEnabled
		default:
			out[model.FieldUnit+u.Name] = model.UnitDisabled
		}
	}
	return out
}

// A machine that joins is given all that its pool wants, so that the agent finds
// nothing to change, and the image by digest.
func TestServesTheWholePool(t *testing.T) {
	t.Parallel()
	s := pools(t, everything()...)
	for _, pool := range []string{"imaged", "made", "plain", "files"} { // made: nodes put the image together, and it is none yet
		s.secret("first-boot-"+pool, secretConfig, nil)
		code, body := s.ask(s.token(pool, time.Hour), "10.0.0.1", accept3, "Ignition/2.20.0")
		if code != http.StatusOK {
			t.Fatal(pool, code, body)
		}
		validate(t, body)
		person, own := parts(t, body)
		name, want, verdicts, err := nodeconfigs.ForNewNode(context.Background(), s.admin, pool)
		if err != nil || len(verdicts) > 0 || name == "" || person != secretConfig {
			t.Fatal(pool, name, verdicts, err, person)
		}
		have := own.fields(t)
		for field, value := range want.Fields() {
			missing := have[field] == "" && (value == model.ValueAbsent || strings.HasPrefix(field, "os/")) // nothing to take away; below
			if have[field] != value && !missing {
				t.Errorf("%s: %s is %q on a machine that joins, and %q is wanted", pool, field, have[field], value)
			}
		}
		if strings.Contains(body, "/etc/rack") || strings.Contains(fmt.Sprint(have), "/etc/rack") {
			t.Errorf("%s: what is for some nodes by label is given to all", pool)
		}
		unit := have[model.FieldUnit+"refit-os-image.service"]
		_, named := have[model.FieldFile+"/etc/refit/first-image"]
		if imaged := pool == "imaged"; (unit == model.UnitEnabled) != imaged || named != imaged {
			t.Errorf("%s: unit %q, image named %v", pool, unit, named)
		}
		for _, f := range own.Storage.Files {
			if f.Path == "/etc/refit/first-image" && string(decoded(t, f.Contents.Source)) != "r.example/os@"+osDigest+"\n" {
				t.Error(string(decoded(t, f.Contents.Source)))
			}
		}
		if diff := cmp.Diff(map[string][]string{"plain": {"quiet"}, "made": {"quiet"}}[pool], own.KernelArguments.ShouldExist); diff != "" {
			t.Errorf("%s: kernel arguments come once, with the image or without: %s", pool, diff)
		}
	}
}

// Limits stand around it all.
func TestServesTheWholePoolWithItsLimits(t *testing.T) {
	t.Parallel()
	s := pools(t, everything()...)
	s.secret("first-boot-imaged", secretConfig, map[string]string{convert.AnnotationMinimumOS: "9.6"})
	code, body := s.ask(s.token("imaged", time.Hour), "10.0.0.1", accept3, "Ignition/2.20.0")
	if code != http.StatusOK {
		t.Fatal(code, body)
	}
	validate(t, body)
	f, inside := served(t, body)
	if person, own := parts(t, inside); f.Pool != "imaged" || person != secretConfig || len(own.Systemd.Units) == 0 {
		t.Errorf("%+v %s", f, inside)
	}
}

// NodeConfigs that contradict each other: nothing is served, and the token stays good.
func TestConflictServesNothing(t *testing.T) {
	t.Parallel()
	other := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1alpha1.NodeConfigSpec{Pools: []string{"files"}, Files: []v1alpha1.NodeFile{inline("/etc/motd", "no\n", 0o644, "")}}}
	s := pools(t, append(everything(), other)...)
	s.secret("first-boot-files", secretConfig, nil)
	token := s.token("files", time.Hour)
	if code, body := s.ask(token, "10.0.0.1", accept3, "Ignition/2.20.0"); code != http.StatusServiceUnavailable || strings.Contains(body, "ssh-ed25519") {
		t.Error(code, body)
	}
	if err := s.admin.Delete(context.Background(), other); err != nil {
		t.Fatal(err)
	}
	s.later(time.Minute)
	if code, body := s.ask(token, "10.0.0.2", accept3, "Ignition/2.20.0"); code != http.StatusOK {
		t.Error(code, body)
	}
}

// A hundred machines at once, each with its token: all are given the same, whole.
func TestHundredMachinesJoinAtOnce(t *testing.T) {
	t.Parallel()
	s := pools(t, everything()...)
	s.secret("first-boot-imaged", secretConfig, nil)
	const machines = 100
	tokens := make([]string, machines)
	for i := range tokens {
		tokens[i] = s.token("imaged", time.Hour)
	}
	bodies := make([]string, machines)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if code, body := s.ask(tokens[i], fmt.Sprintf("10.0.2.%d", i), accept3, "Ignition/2.20.0"); code == http.StatusOK {
				bodies[i] = body
			}
		}()
	}
	wg.Wait()
	validate(t, bodies[0])
	if _, own := parts(t, bodies[0]); len(own.Storage.Files) == 0 {
		t.Error(bodies[0])
	}
	for i, b := range bodies {
		if b != bodies[0] || b == "" {
			t.Errorf("machine %d was given something else: %q", i, b)
		}
	}
}

// A machine with cloud-init is given the same, after what a person gives it.
func TestServesCloudInit(t *testing.T) {
	t.Parallel()
	s := pools(t, everything()...)
	s.secret("first-boot-files", secretConfig, nil)
	if code, body := s.ask(s.token("files", time.Hour), "10.0.0.1", "*/*", "Cloud-Init/23.4"); code != http.StatusBadRequest || !strings.Contains(body, "user-data") {
		t.Errorf("without a token the server answers: %d %s", code, body)
	}
	held := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: convert.JoinNamespace, Name: "first-boot-imaged"}, Data: map[string][]byte{convert.KeyUserData: []byte("#cloud-config\nruncmd: [[kubeadm, join]]\n")}}
	if err := s.admin.Create(context.Background(), held); err != nil {
		t.Fatal(err)
	}
	token := s.token("imaged", time.Hour)
	code, body := s.ask(token, "10.0.0.1", "*/*", "Cloud-Init/23.4")
	archive, ok := strings.CutPrefix(body, "#cloud-config-archive\n")
	if code != http.StatusOK || !ok {
		t.Fatal(code, body)
	}
	var list []struct{ Type, Content string }
	if err := json.Unmarshal([]byte(archive), &list); err != nil || len(list) != 2 || !strings.Contains(list[0].Content, "kubeadm") {
		t.Fatalf("%v %s", err, archive)
	}
	own, ok := strings.CutPrefix(list[1].Content, "#cloud-config\n")
	var c struct {
		Files []struct{ Path, Owner, Permissions, Content string } `json:"write_files"`
		Run   [][]string                                           `json:"runcmd"`
	}
	if err := json.Unmarshal([]byte(own), &c); err != nil || !ok {
		t.Fatal(err, own)
	}
	have := map[string]string{}
	for _, f := range c.Files {
		have[f.Path] = f.Owner + " " + f.Permissions
	}
	if have["/etc/motd"] != "root:root 0644" || have["/var/lib/app/conf"] != "1000:root 0600" || have["/etc/refit/first-image"] != "root:root 0644" {
		t.Errorf("%v", have)
	}
	if got := fmt.Sprint(c.Run); !strings.Contains(got, "[systemctl mask --now cups.service]") || !strings.HasSuffix(got, "[systemctl start refit-os-image.service]]") {
		t.Error(got)
	}
	if code, _ := s.ask(token, "10.0.0.2", "*/*", "Cloud-Init/23.4"); code != http.StatusForbidden {
		t.Error("a token serves two machines:", code)
	}
}
