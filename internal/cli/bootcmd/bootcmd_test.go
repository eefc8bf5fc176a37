package bootcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/source/joining/record"
)

func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	c := New(&cluster.Access{Out: &out, Err: &out})
	c.SetArgs(args)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetOut(&out)
	err := c.Execute()
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String(), exit.Code(err)
}

const dump = "testdata/dump.yaml"

// R1.72, R1.75: the target decides, not what runs; every no has its cure.
func TestCheck(t *testing.T) {
	t.Parallel()
	out, code := run(t, "check", "--target", "1.37.0", "--from", dump, "-o", "json")
	var v Check
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err, out)
	}
	if code != exit.Blocked || v.OK || v.Blocked != 1 || v.Sources != 3 {
		t.Errorf("%d %+v", code, v)
	}
	got := map[string]string{}
	for _, f := range v.Findings {
		got[f.Source+" "+f.Rule] = f.Kind + " " + f.Message + " " + f.Fix + " " + f.Waived
	}
	for key, parts := range map[string][]string{
		"machinedeployment.default.workers from-135":       {"TooOld", "release 1.34.1, at least 1.35.0 is wanted (sigstore policies)", "BootImagePolicy all"},
		"machinedeployment.default.workers one-major-step": {"MajorStep", "OS 8, the target's is 10"},
		"pxe image-known": {"Unknown", `"golden-2"`, "checked by hand"},
	} {
		for _, p := range parts {
			if !strings.Contains(got[key], p) {
				t.Errorf("%s: want %q in %q", key, p, got[key])
			}
		}
	}
	// what runs now is no obstacle for a patch of it
	if out, code = run(t, "check", "--target", "1.36.9", "--from", dump); code != exit.Blocked || strings.Contains(out, "from-135") {
		t.Errorf("%d %s", code, out) // the OS still moves to 10
	}
	if out, code = run(t, "check", "--target", "next", "--from", dump); code != exit.UsageCode || !strings.Contains(out, "no known scheme") {
		t.Errorf("%d %s", code, out)
	}
	if _, code = run(t, "check", "--target", "1.37.0", "--from", "testdata/none.yaml"); code == exit.OK {
		t.Error("a dump that is not there is no pass")
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	out, code := run(t, "status", "--from", dump)
	for _, p := range []string{"all: 1 of 3 sources are current, 1 outdated", "machinedeployment.default.workers", "BootImageRolls", "8.10.20240101-0", "set the strategy OnDelete", "golden-2"} {
		if !strings.Contains(out, p) {
			t.Errorf("want %q in\n%s", p, out)
		}
	}
	if code != exit.OK {
		t.Error(code)
	}
	out, _ = run(t, "status", "--from", dump, "-o", "json")
	var v Status
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Sources) != 3 || v.Sources[2].Name != "pxe" || v.Release != "1.36.3" {
		t.Error(err, out)
	}
	if _, code = run(t, "status", "-o", "html", "--from", dump); code != exit.UsageCode {
		t.Error(code)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	out, code := run(t, "diff", "--from", dump)
	want := `kubectl patch awsmachinetemplate/w -n default --type json -p '[{"op":"replace","path":"/spec/template/spec/ami/id","value":"ami-136"}]'`
	if code != exit.OK || !strings.Contains(out, want) || !strings.Contains(out, "let MachineDeployment/workers refer to the copy") {
		t.Errorf("%d %s", code, out)
	}
	if out, code = run(t, "diff", "machinedeployment.default.fresh", "--from", dump); code != exit.OK || !strings.Contains(out, "Nothing to write") {
		t.Errorf("%d %s", code, out)
	}
	if out, code = run(t, "diff", "nobody", "--from", dump); code != exit.UsageCode || !strings.Contains(out, "refit bootimage status lists them") {
		t.Errorf("%d %s", code, out)
	}
}

// A token stands in what is printed and nowhere else.
func TestPointer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := fake.NewClientBuilder().Build()
	u, _ := url.Parse("https://10.0.0.1:7950")
	if _, err := pointer(ctx, c, "worker", u, time.Now()); err == nil || !strings.Contains(err.Error(), "-join-address") {
		t.Error(err)
	}
	secret := func(ns, name string, data map[string][]byte) {
		if err := c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	secret("refit-system", record.Server, map[string][]byte{"ca.crt": []byte("CA")})
	if _, err := pointer(ctx, c, "worker", u, time.Now()); exit.Code(err) != exit.Blocked || !strings.Contains(err.Error(), "first-boot-worker") {
		t.Error(err)
	}
	secret(record.Namespace, "first-boot-worker", nil)
	out, err := pointer(ctx, c, "worker", u, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(out), "https://10.0.0.1:7950/join/")
	token, _, _ := strings.Cut(rest, `"`)
	var made corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: record.Namespace, Name: record.Name(token)}, &made); !ok || err != nil || made.Labels[record.LabelPool] != "worker" {
		t.Errorf("%v %s", err, out)
	}
	if held := fmt.Sprint(made); strings.Contains(held, token) {
		t.Error("the record holds the token")
	}
	for _, args := range [][]string{{"token", "worker", "--url", "http://a"}, {"token", "worker", "--url", "https://a", "--for", "0s"}, {"token", "worker", "--url", "https://a/b"}, {"token", "--url", "https://a"}} {
		if _, code := run(t, args...); code == exit.OK {
			t.Errorf("%v is accepted", args)
		}
	}
}
