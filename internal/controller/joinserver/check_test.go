package joinserver_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/go-logr/logr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/joinserver"
	"github.com/refit-dev/refit/internal/convert"
)

// pools is a server over objects in memory: what the API server decides is tested
// next to it, this is what the server makes of pools and policies.
func pools(t *testing.T, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	s := &site{t: t, admin: c, now: time.Now(), recorder: events.NewFakeRecorder(100)}
	s.server = joinserver.New(c, s.recorder, logr.Discard(), joinserver.Options{Now: s.clock, Names: []string{"127.0.0.1"}})
	if err := c.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: convert.Server}, Data: map[string][]byte{"ca.crt": []byte("PEM")}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// tell as the machine's own check does.
func (s *site) tell(token, from, body string) int {
	r := httptest.NewRequest(http.MethodPost, "/join/"+token, strings.NewReader(body))
	r.RemoteAddr = net.JoinHostPort(from, "40000")
	w := httptest.NewRecorder()
	s.server.Handler().ServeHTTP(w, r)
	return w.Code
}

// served takes a configuration apart: the limits in it, and the pool's own.
func served(t *testing.T, body string) (*convert.SkewLimits, string) {
	t.Helper()
	var c struct {
		Ignition struct {
			Config struct {
				Merge []struct{ Source string }
			}
		}
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &c); err != nil || len(c.Ignition.Config.Merge) != 1 || len(c.Storage.Files) == 0 {
		t.Fatalf("%v %s", err, body)
	}
	data := func(source string) []byte {
		_, text, _ := strings.Cut(source, ";base64,")
		out, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	f, err := convert.ParseSkewLimits(data(c.Storage.Files[0].Contents.Source))
	if err != nil {
		t.Fatal(err)
	}
	return f, string(data(c.Ignition.Config.Merge[0].Source))
}

// A machine is given the rules of its pool, and of the policy and the
// streams that it names, in addition to its configuration.
func TestServesLimits(t *testing.T) {
	t.Parallel()
	policy := &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.BootImagePolicySpec{Streams: []string{"v1.36", "gone"},
		Skew: v1alpha1.BootImageSkew{Rules: []v1alpha1.SkewRule{{Name: "cpu", MinimumFacts: map[string]string{"cpu": "x86-64-v3"}}, {Name: "release", MinimumRelease: "1.35.0"}}}},
		Status: v1alpha1.BootImagePolicyStatus{Release: "1.36.3"}}
	stream := &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "v1.36"}, Spec: v1alpha1.BootImageStreamSpec{Rules: []v1alpha1.SkewRule{{Name: "os", MinimumOS: "9.4", Targets: []string{"1.36"}}}},
		Status: v1alpha1.BootImageStreamStatus{Release: "1.36.3", Kubernetes: "1.36.3", OS: "9.6.20251023-0"}}
	s := pools(t, policy, stream)
	s.secret("first-boot-plain", secretConfig, nil)
	s.secret("first-boot-least", secretConfig, map[string]string{convert.AnnotationMinimumOS: "9.6", convert.AnnotationFix: "Use 9.6."})
	s.secret("first-boot-policy", secretConfig, map[string]string{convert.AnnotationPolicy: "all", convert.AnnotationSource: "src"})
	s.secret("first-boot-lost", secretConfig, map[string]string{convert.AnnotationPolicy: "nobody"})
	s.secret("first-boot-agent", secretConfig, map[string]string{convert.AnnotationMinimumOS: "9.6", convert.AnnotationAgent: "http://x/agent"})

	if code, body := s.ask(s.token("plain", time.Hour), "10.0.0.1", accept3, "Ignition/2.20.0"); code != http.StatusOK || body != secretConfig {
		t.Errorf("without limits nothing is added: %d %s", code, body)
	}
	token := s.token("least", time.Hour)
	code, body := s.ask(token, "10.0.0.1", accept3, "Ignition/2.20.0")
	if code != http.StatusOK {
		t.Fatal(code, body)
	}
	validate(t, body)
	f, inside := served(t, body)
	if inside != secretConfig || f.Pool != "least" || f.Fix != "Use 9.6." || len(f.Rules) != 1 || f.Rules[0].MinimumOS != "9.6" {
		t.Errorf("%+v %s", f, inside)
	}
	if f.Report == nil || f.Report.URL != "https://example.com/join/"+token || f.Report.CA != "PEM" {
		t.Errorf("%+v", f.Report)
	}
	code, body = s.ask(s.token("policy", time.Hour), "10.0.0.1", accept3, "Ignition/2.20.0")
	if code != http.StatusOK {
		t.Fatal(code, body)
	}
	f, _ = served(t, body)
	if len(f.Rules) != 2 || f.Rules[0].Name != "os" || f.Rules[1].Name != "cpu" || f.Source != "src" || f.Target != (convert.LimitsTarget{Kubernetes: "1.36.3", Release: "1.36.3", OS: "9.6.20251023-0"}) {
		t.Errorf("%+v", f)
	}
	for _, pool := range []string{"lost", "agent"} {
		held := s.token(pool, time.Hour)
		if code, body := s.ask(held, "10.0.0.1", accept3, "Ignition/2.20.0"); code != http.StatusServiceUnavailable || strings.Contains(body, "ssh-ed25519") {
			t.Errorf("%s: limits that are not known are not passed over: %d %s", pool, code, body)
		}
		rec := &corev1.Secret{}
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: convert.JoinNamespace, Name: convert.JoinSecretName(held)}, rec); err != nil || rec.Annotations[convert.AnnotationJoinUsedBy] != "" {
			t.Errorf("%s: and the token is still good: %v %v", pool, rec.Annotations, err)
		}
	}
}

// One event and one record for a machine that its own check refused, however often
// it says so, and only from where the configuration was given to.
func TestMachineSaysItWasRefused(t *testing.T) {
	t.Parallel()
	s := pools(t)
	s.secret("first-boot-w", secretConfig, map[string]string{convert.AnnotationMinimumOS: "9.6"})
	token := s.token("w", time.Hour)
	const refusal = `{"os":"9.4.20250101-0","message":"This machine cannot join pool w"}`
	if code := s.tell(token, "10.0.0.1", refusal); code != http.StatusForbidden {
		t.Errorf("before the token was used: %d", code)
	}
	if code, body := s.ask(token, "10.0.0.1", accept3, "Ignition/2.20.0"); code != http.StatusOK {
		t.Fatal(code, body)
	}
	for name, tc := range map[string]struct {
		token, from, body string
		code              int
	}{
		"another address":    {token, "10.0.0.2", refusal, http.StatusForbidden},
		"an unknown token":   {strings.Repeat("A", 43), "10.0.0.1", refusal, http.StatusForbidden},
		"no token":           {"", "10.0.0.1", refusal, http.StatusForbidden},
		"nothing said":       {token, "10.0.0.1", `{}`, http.StatusBadRequest},
		"no report":          {token, "10.0.0.1", "x", http.StatusBadRequest},
		"more than a report": {token, "10.0.0.1", `{"message":"` + strings.Repeat("x", 20<<10) + `"}`, http.StatusBadRequest},
	} {
		if code := s.tell(tc.token, tc.from, tc.body); code != tc.code {
			t.Errorf("%s: %d", name, code)
		}
	}
	if len(s.recorder.Events) != 0 {
		t.Error("who is not believed makes no event")
	}
	for range 3 {
		if code := s.tell(token, "10.0.0.1", refusal); code != http.StatusNoContent {
			t.Errorf("%d", code)
		}
	}
	if n := len(s.recorder.Events); n != 1 {
		t.Errorf("%d events", n)
	}
	if e := <-s.recorder.Events; !strings.Contains(e, "BootImageTooOld") || !strings.Contains(e, "a machine at 10.0.0.1: This machine cannot join pool w") {
		t.Error(e)
	}
	rec := &corev1.Secret{}
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: convert.JoinNamespace, Name: convert.JoinSecretName(token)}, rec); err != nil {
		t.Fatal(err)
	}
	if an := rec.Annotations; an[convert.AnnotationRefused] != "This machine cannot join pool w" || an[convert.AnnotationRefusedFrom] != "10.0.0.1" || an[convert.AnnotationRefusedAt] == "" {
		t.Errorf("%v", an)
	}
	s.later(2 * time.Hour)
	if code := s.tell(token, "10.0.0.1", refusal); code != http.StatusForbidden {
		t.Errorf("hours later: %d", code)
	}
}

// An image that is too old for Ignition's own check, and then a new one: the
// refusal is undone.
func TestRefusalIsTakenBack(t *testing.T) {
	t.Parallel()
	s := pools(t)
	s.secret("first-boot-w", secretConfig, map[string]string{"refit.dev/minimum-ignition": "2.14.0"})
	token := s.token("w", time.Hour)
	refused := func() string {
		rec := &corev1.Secret{}
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: convert.JoinNamespace, Name: convert.JoinSecretName(token)}, rec); err != nil {
			t.Fatal(err)
		}
		return rec.Annotations[convert.AnnotationRefused]
	}
	for range 3 {
		if code, _ := s.ask(token, "10.0.0.1", accept3, "Ignition/2.2.1"); code != http.StatusOK {
			t.Fatal(code)
		}
	}
	if n := len(s.recorder.Events); n != 1 || !strings.Contains(refused(), "its boot image is too old") {
		t.Errorf("%d events, %q", n, refused())
	}
	if code, body := s.ask(token, "10.0.0.1", accept3, "Ignition/2.20.0"); code != http.StatusOK || body != secretConfig || refused() != "" {
		t.Errorf("%d %q", code, refused())
	}
}

// What refit recorded of a source counts before its machines are served: an image that is too old
// gets the reason. A source whose risk a person accepted gets its configuration without the rules.
func TestRecordedSkew(t *testing.T) {
	t.Parallel()
	source := func(name, mode, reason string) *v1alpha1.MachineSource {
		return &v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSourceSpec{Skew: mode}, Status: v1alpha1.MachineSourceStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionNewEnough, Status: metav1.ConditionFalse, Reason: reason, Message: "OS 9.2 is below 9.4; update its image"}}}}
	}
	policy := &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.BootImagePolicySpec{Skew: v1alpha1.BootImageSkew{Rules: []v1alpha1.SkewRule{{Name: "os", MinimumOS: "9.4"}}}},
		Status: v1alpha1.BootImagePolicyStatus{Release: "1.36.3"}}
	s := pools(t, policy, source("old", "", v1alpha1.ReasonBootImageTooOld), source("unknown", "", v1alpha1.ReasonBootImageUnknown), source("accepted", "None", v1alpha1.ReasonBootImageTooOld))
	for _, name := range []string{"old", "unknown", "accepted"} {
		s.secret("first-boot-"+name, secretConfig, map[string]string{convert.AnnotationPolicy: "all", convert.AnnotationSource: name, convert.AnnotationFix: "Use 9.6."})
	}
	token := s.token("old", time.Hour)
	for range 2 {
		code, body := s.ask(token, "10.0.0.1", accept3, "Ignition/2.20.0")
		if code != http.StatusOK || strings.Contains(body, "ssh-ed25519") {
			t.Fatalf("a secret for a machine that cannot join: %d %s", code, body)
		}
	}
	rec := &corev1.Secret{}
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: convert.JoinNamespace, Name: convert.JoinSecretName(token)}, rec); err != nil {
		t.Fatal(err)
	}
	if why := rec.Annotations[convert.AnnotationRefused]; !strings.Contains(why, "too old by MachineSource old: OS 9.2 is below 9.4; update its image. Use 9.6.") || rec.Annotations[convert.AnnotationJoinUsedBy] != "" || len(s.recorder.Events) != 1 {
		t.Errorf("%q %v, %d events", why, rec.Annotations, len(s.recorder.Events))
	}
	for name, rules := range map[string]int{"unknown": 1, "accepted": 0} {
		code, body := s.ask(s.token(name, time.Hour), "10.0.0.1", accept3, "Ignition/2.20.0")
		if code != http.StatusOK || !strings.Contains(body, "merge") != (rules == 0) {
			t.Errorf("%s: %d %s", name, code, body)
			continue
		}
		if rules == 0 {
			if body != secretConfig {
				t.Errorf("%s: %s", name, body)
			}
		} else if f, inside := served(t, body); len(f.Rules) != rules || inside != secretConfig {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
