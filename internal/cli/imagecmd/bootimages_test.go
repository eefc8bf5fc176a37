package imagecmd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
)

func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	c := NewBoot(&inputs.Access{Out: &out, Err: &out})
	c.SetArgs(args)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetOut(&out)
	err := c.Execute()
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String(), console.ExitCode(err)
}

const dump = "testdata/dump.yaml"

// The target decides, not what runs; every no has its fix.
func TestCheck(t *testing.T) {
	t.Parallel()
	out, code := run(t, "check", "--target", "1.37.0", "--from", dump, "-o", "json")
	var v Check
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err, out)
	}
	if code != console.ExitBlocked || v.OK || v.Blocked != 1 || v.Sources != 3 {
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
	if out, code = run(t, "check", "--target", "1.36.9", "--from", dump); code != console.ExitBlocked || strings.Contains(out, "from-135") {
		t.Errorf("%d %s", code, out) // the OS still moves to 10
	}
	if out, code = run(t, "check", "--target", "next", "--from", dump); code != console.ExitUsage || !strings.Contains(out, "no known scheme") {
		t.Errorf("%d %s", code, out)
	}
	if _, code = run(t, "check", "--target", "1.37.0", "--from", "testdata/none.yaml"); code == console.ExitOK {
		t.Error("a dump that is not there is no pass")
	}
}

// A source whose policy was deleted is no pass until a person decides.
func TestCheckAfterDeletion(t *testing.T) {
	t.Parallel()
	m := v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Status: v1alpha1.MachineSourceStatus{SkewMode: "Manual", Referenced: &v1alpha1.BootImage{Image: "a", OS: "9.6.20251023-0"}}}
	m.Status.PolicyDeleted = &v1alpha1.DeletedPolicy{Name: "gone"}
	v := (&site{sources: []v1alpha1.MachineSource{m}}).check("1.37.0", time.Now())
	if v.OK || v.Blocked != 1 || len(v.Findings) != 1 || !strings.Contains(v.Findings[0].Message, "BootImagePolicy gone was deleted") || !strings.Contains(v.Findings[0].Fix, "kubectl patch machinesource s") {
		t.Errorf("%+v", v)
	}
	m.Spec.Skew = "Manual"
	if v = (&site{sources: []v1alpha1.MachineSource{m}}).check("1.37.0", time.Now()); !v.OK || len(v.Findings) != 0 {
		t.Errorf("%+v", v)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	out, code := run(t, "status", "--from", dump)
	for _, p := range []string{"all: 1 of 3 sources are current, 1 outdated", "machinedeployment.default.workers", "WouldReplaceMachines", "8.10.20240101-0", "set the strategy OnDelete", "golden-2",
		"machine default/workers-x could not join: This machine cannot join pool workers", "new machines do not trust their server: Secret default/worker-user-data: the server's authority was written 3 times and reverted by script"} {
		if !strings.Contains(out, p) {
			t.Errorf("want %q in\n%s", p, out)
		}
	}
	wide, _ := run(t, "status", "--from", dump, "-o", "wide")
	for _, p := range []string{"3 nodes installed from it, the oldest from an image of 2023-01-01 (", "1 machine without a node yet",
		"its machines have at least: processor x86-64-v2 (n1 and 1 more), boot loader shim 15.4 (n3; 2 not reported)"} {
		if !strings.Contains(wide, p) || strings.Contains(out, p) {
			t.Errorf("want %q in\n%s\nand only there", p, wide)
		}
	}
	if code != console.ExitOK {
		t.Error(code)
	}
	out, _ = run(t, "status", "--from", dump, "-o", "json")
	var v Status
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Sources) != 3 || v.Sources[2].Name != "pxe" || v.Release != "1.36.3" {
		t.Error(err, out)
	}
	w := v.Sources[1]
	if w.Nodes != 3 || w.OldestInstalledImage == nil || w.OldestInstalledImage.Format(time.DateOnly) != "2023-01-01" || w.ImageBuilt.Format(time.DateOnly) != "2024-01-01" || w.Authority.Trusted || len(w.Refused) != 1 || len(w.Machines) != 2 {
		t.Errorf("%+v", w)
	}
	if _, code = run(t, "status", "-o", "html", "--from", dump); code != console.ExitUsage {
		t.Error(code)
	}
}

// The age of an image that waits is counted in days from now on.
func TestWait(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	built, until := metav1.NewTime(at.Add(-12*24*time.Hour)), metav1.NewTime(at.Add(17*24*time.Hour+time.Minute))
	v := sourceView(&v1alpha1.MachineSource{Status: v1alpha1.MachineSourceStatus{Wait: &v1alpha1.BootImageWait{Reason: v1alpha1.ReasonBootImageTooFresh, Image: "ami-1", OS: "9.6.1", Built: &built, Until: &until}}})
	if got, want := strings.Join(v.describeState(false, at), "|"), "image 9.6.1 is 12 days old; it waits for 18 days more, until 2026-12-07"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := v.describeWait(at.Add(30 * 24 * time.Hour)); !strings.Contains(got, "for 0 days more") {
		t.Error(got)
	}
	if got := (&Source{}).describeWait(at); got != "" {
		t.Error(got)
	}
}

// What is printed is what an operator of Prometheus applies.
func TestAlerts(t *testing.T) {
	t.Parallel()
	out, code := run(t, "alerts")
	if code != console.ExitOK || !strings.Contains(out, "kind: PrometheusRule") || !strings.Contains(out, "refit_boot_image_too_old") {
		t.Errorf("%d %s", code, out)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	out, code := run(t, "diff", "--from", dump)
	want := `kubectl patch awsmachinetemplate/w -n default --type json -p '[{"op":"replace","path":"/spec/template/spec/ami/id","value":"ami-136"}]'`
	if code != console.ExitOK || !strings.Contains(out, want) || !strings.Contains(out, "let MachineDeployment/workers refer to the copy") {
		t.Errorf("%d %s", code, out)
	}
	if out, code = run(t, "diff", "machinedeployment.default.fresh", "--from", dump); code != console.ExitOK || !strings.Contains(out, "Nothing to write") {
		t.Errorf("%d %s", code, out)
	}
	if out, code = run(t, "diff", "missing", "--from", dump); code != console.ExitUsage || !strings.Contains(out, "refit bootimage status lists all") {
		t.Errorf("%d %s", code, out)
	}
}

// The newest write is first; what is in use, rolled back, rejected or refused is marked.
func TestList(t *testing.T) {
	t.Parallel()
	out, code := run(t, "list", "--from", dump)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for n, parts := range [][]string{
		{"WRITTEN", "SOURCE", "BY"},
		{"2026-11-02T08:00:00Z", "machinedeployment.default.workers", "ami-133 (8.9.20230701-0)", "ami-134 (8.10.20240101-0)", "ann", "in use, rollback (no disks)"},
		{"2026-11-01T08:00:00Z", "machinedeployment.default.fresh", "ami-136", "BootImagePolicy/all", "in use"},
		{"2026-10-01T08:00:00Z", "ami-135", "refused (its disks are read-only)"},
		{},
		{"machinedeployment.default.workers: ann rejected ami-133 (8.9.20230701-0) for ami-134 (no disks). End it: refit bootimage rollback machinedeployment.default.workers --end"},
	} {
		for _, p := range parts {
			if n >= len(lines) || !strings.Contains(lines[n], p) {
				t.Fatalf("line %d: want %q in\n%s", n, p, out)
			}
		}
	}
	if code != console.ExitOK {
		t.Error(code)
	}
	out, _ = run(t, "list", "machinedeployment.default.fresh", "--from", dump, "-o", "json")
	var v History
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Items) != 2 || len(v.Rejected) != 0 || v.Items[0].To != "ami-136" || !v.Items[0].InUse || v.Items[1].InUse {
		t.Error(err, out)
	}
	if out, code = run(t, "list", "pxe", "--from", dump); code != console.ExitOK || !strings.Contains(out, "no boot image yet") {
		t.Errorf("%d %s", code, out)
	}
	if out, code = run(t, "list", "missing", "--from", dump); code != console.ExitUsage || !strings.Contains(out, "refit bootimage status lists all") {
		t.Errorf("%d %s", code, out)
	}
}

// A rollback is recorded with its image, its person and its reason, or refused with the way out.
func TestRollback(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	wrote := []v1alpha1.BootImageWrite{{From: "a", FromOS: "9.2.20240101-0", To: "b", OS: "9.4.20250101-0"}, {From: "b", FromOS: "9.4.20250101-0", To: "c", OS: "9.6.20251023-0"}}
	source := func(name, uses string, mode v1alpha1.BootImageMode, history ...v1alpha1.BootImageWrite) *v1alpha1.MachineSource {
		return &v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSourceSpec{Manager: &v1alpha1.MachineManager{Kind: "MachineDeployment"}},
			Status: v1alpha1.MachineSourceStatus{Policy: "p", Mode: mode, Referenced: &v1alpha1.BootImage{Image: uses, OS: "9.6.20251023-0"}, History: history}}
	}
	ctx, at := context.Background(), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	cl := fake.NewClientBuilder().WithScheme(scheme).WithObjects(source("s", "c", "NewMachinesOnly", wrote...), source("watched", "c", "Observe", wrote...), source("new", "c", "NewMachinesOnly"),
		&v1alpha1.MachineSource{ObjectMeta: metav1.ObjectMeta{Name: "unknown"}},
		&v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.BootImagePolicySpec{Refused: []v1alpha1.RefusedImage{{Image: "a", Reason: "expired"}}}}).Build()
	for _, tc := range []struct {
		q    rollbackRequest
		code int
		want string
	}{
		{rollbackRequest{source: "none"}, console.ExitUsage, "refit bootimage status lists all"},
		{rollbackRequest{source: "unknown"}, console.ExitBlocked, "its image is not known yet"},
		{rollbackRequest{source: "new"}, console.ExitBlocked, "there is no previous one; refit bootimage list new"},
		{rollbackRequest{source: "s", to: "x"}, console.ExitBlocked, `no image "x"`},
		{rollbackRequest{source: "s", to: "a"}, console.ExitBlocked, "refuses image a: expired"},
		{rollbackRequest{source: "s", end: true}, console.ExitBlocked, "has no rollback"},
		{rollbackRequest{source: "watched"}, console.ExitOK, "mode Observe writes nothing: write b yourself (refit bootimage diff watched)"},
		{rollbackRequest{source: "s", reason: "no disks", by: "ann", at: at}, console.ExitOK, "c is rejected; new machines start from b again"},
	} {
		got, err := rollBack(ctx, cl, tc.q)
		if err != nil {
			got = err.Error()
		}
		if console.ExitCode(err) != tc.code || !strings.Contains(got, tc.want) {
			t.Errorf("%+v: %d %q, want %q", tc.q, console.ExitCode(err), got, tc.want)
		}
	}
	var s v1alpha1.MachineSource
	if err := cl.Get(ctx, client.ObjectKey{Name: "s"}, &s); err != nil {
		t.Fatal(err)
	}
	if r := s.Spec.Rollback; r == nil || r.To != "b" || r.Rejected.Image != "c" || r.Rejected.OS != "9.6.20251023-0" || r.By != "ann" || r.Reason != "no disks" || !r.At.Time.Equal(at) {
		t.Fatalf("%+v", r)
	}
	if _, err := rollBack(ctx, cl, rollbackRequest{source: "s", end: true}); err != nil {
		t.Fatal(err)
	}
	var after v1alpha1.MachineSource
	if err := cl.Get(ctx, client.ObjectKey{Name: "s"}, &after); err != nil || after.Spec.Rollback != nil {
		t.Errorf("%v %+v", err, after.Spec.Rollback)
	}
	for _, args := range [][]string{{"rollback"}, {"rollback", "s", "--end", "--to", "b"}} {
		if out, code := run(t, args...); code == console.ExitOK {
			t.Errorf("%v: %s", args, out)
		}
	}
}

// A token stands in what is printed and nowhere else.
func TestPointer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := fake.NewClientBuilder().Build()
	u, _ := url.Parse("https://10.0.0.1:7950")
	if _, err := pointer(ctx, c, "worker", "", u, time.Now()); err == nil || !strings.Contains(err.Error(), "-join-address") {
		t.Error(err)
	}
	secret := func(ns, name string, data map[string][]byte) {
		if err := c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	secret("refit-system", convert.Server, map[string][]byte{"ca.crt": []byte("CA")})
	if _, err := pointer(ctx, c, "worker", "", u, time.Now()); console.ExitCode(err) != console.ExitBlocked || !strings.Contains(err.Error(), "first-boot-worker") {
		t.Error(err)
	}
	secret(convert.JoinNamespace, "first-boot-worker", nil)
	out, err := pointer(ctx, c, "worker", "", u, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(out), "https://10.0.0.1:7950/join/")
	token, _, _ := strings.Cut(rest, `"`)
	var made corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: convert.JoinNamespace, Name: convert.JoinSecretName(token)}, &made); !ok || err != nil || made.Labels[convert.LabelJoinPool] != "worker" {
		t.Errorf("%v %s", err, out)
	}
	if held := fmt.Sprint(made); strings.Contains(held, token) {
		t.Error("the record holds the token")
	}
	for _, args := range [][]string{{"token", "worker", "--url", "http://a"}, {"token", "worker", "--url", "https://a", "--for", "0s"}, {"token", "worker", "--url", "https://a/b"}, {"token", "worker", "--url", "https://a", "--machine", "m1"}, {"token", "--url", "https://a"}} {
		if _, code := run(t, args...); code == console.ExitOK {
			t.Errorf("%v is accepted", args)
		}
	}
}

const waiting = `
apiVersion: v1
kind: List
items:
- apiVersion: refit.dev/v1alpha1
  kind: MachineSource
  metadata: {name: a}
  status: {upload: {file: rhcos.ova, sha256: aa, steps: [one, two]}}
- apiVersion: refit.dev/v1alpha1
  kind: MachineSource
  metadata: {name: b}
  status: {upload: {file: rhcos.ova, sha256: aa, steps: [one, two]}}
- apiVersion: refit.dev/v1alpha1
  kind: MachineSource
  metadata: {name: c}
`

func TestUploads(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dump.yaml")
	if err := os.WriteFile(file, []byte(waiting), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := run(t, "uploads", "--from", file)
	if code != console.ExitOK || out != "# rhcos.ova, for a, b\none\ntwo\n\n" {
		t.Errorf("%d %q", code, out)
	}
	out, _ = run(t, "uploads", "--from", file, "-o", "json")
	var v Uploads
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Items) != 1 || len(v.Items[0].Sources) != 2 || v.Items[0].File != "rhcos.ova" {
		t.Error(err, out)
	}
	if out, code = run(t, "uploads", "--from", dump); code != console.ExitOK || !strings.Contains(out, "Nothing to upload") {
		t.Errorf("%d %s", code, out)
	}
}

// An upload is recorded as given, and once.
func TestUploaded(t *testing.T) {
	t.Parallel()
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("a disk")))
	file := filepath.Join(t.TempDir(), "rhcos.ova")
	if err := os.WriteFile(file, []byte("a disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no sum":                     {[]string{"s", "rhcos.ova"}, console.ExitUsage, "not a SHA-256"},
		"a word that is to be given": {[]string{"s", sum, "--set", "id=ID"}, console.ExitUsage, "replace the placeholder"},
		"another file":               {[]string{"s", strings.Repeat("0", 64), "--file", file}, console.ExitVerification, "it is another file, or incomplete"},
		"a file that is not there":   {[]string{"s", sum, "--file", file + "x"}, console.ExitUsage, "no such file"},
	} {
		if out, code := run(t, append([]string{"uploaded"}, tc.args...)...); code != tc.code || !strings.Contains(out, tc.want) {
			t.Errorf("%s: %d %s", name, code, out)
		}
	}
	if err := checkUpload(v1alpha1.UploadedImage{SHA256: sum}, file); err != nil {
		t.Error(err)
	}

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	cl := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "s"}}).Build()
	for _, u := range []v1alpha1.UploadedImage{{SHA256: sum}, {SHA256: sum, Region: "hall-2"}, {SHA256: sum, Attributes: map[string]string{"template": "t"}}, {SHA256: sum, Region: "hall-2"}} {
		if _, err := declare(ctx, cl, "s", u); err != nil {
			t.Fatal(err)
		}
	}
	var o v1alpha1.BootImageStream
	if err := cl.Get(ctx, client.ObjectKey{Name: "s"}, &o); err != nil {
		t.Fatal(err)
	}
	if u := o.Spec.Uploaded; len(u) != 2 || u[0].Region != "hall-2" || u[1].Attributes["template"] != "t" {
		t.Errorf("%+v", u)
	}
	if _, err := declare(ctx, cl, "none", v1alpha1.UploadedImage{SHA256: sum}); err == nil || !strings.Contains(err.Error(), "BootImageStream none") {
		t.Error(err)
	}
}

// The same data from the cluster, a file and a bundle.
func TestImage(t *testing.T) {
	t.Parallel()
	const data = `{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[{"architecture":"amd64","platform":"metal","variant":"iso","version":"9.6.1","attributes":{"location":"https://example.test/live.iso","sha256":"aa"}}]}`
	dir := t.TempDir()
	file, made := filepath.Join(dir, "stream.json"), filepath.Join(dir, "b")
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bundlewriter.Create(t.Context(), made, bundlewriter.Options{Sources: []string{"boot-images:" + file}, Version: "1.0.0"}, nil); err != nil {
		t.Fatal(err)
	}
	for _, from := range [][]string{{"--file", file}, {"--bundle", made}} {
		out, code := run(t, append([]string{"image", "--platform", "metal", "-o", "json"}, from...)...)
		var v Image
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != console.ExitOK || v.Version != "9.6.1" || v.Attributes["sha256"] != "aa" || v.Release != "1.36.3" {
			t.Errorf("%s: %d %v %s", from, code, err, out)
		}
	}
	if out, code := run(t, "image", "--platform", "aws", "--file", file); code != console.ExitUsage || !strings.Contains(out, "has no platform aws") || !strings.Contains(out, "metal") {
		t.Errorf("%d %s", code, out)
	}
	if out, code := run(t, "image", "--platform", "metal", "--file", file); code != console.ExitOK || !strings.Contains(out, "location  https://example.test/live.iso") {
		t.Errorf("%d %s", code, out)
	}

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	text := data
	kept := &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.BootImageStreamSpec{URL: &v1alpha1.StreamURL{URL: "https://example.test"}}, Status: v1alpha1.BootImageStreamStatus{Content: "c", Release: "4.19.3"}}
	cl := fake.NewClientBuilder().WithScheme(scheme).WithObjects(kept,
		&v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "inline"}, Spec: v1alpha1.BootImageStreamSpec{Inline: &text}},
		&v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "map"}, Spec: v1alpha1.BootImageStreamSpec{ConfigMap: &v1alpha1.StreamConfigMap{Namespace: "n", Name: "m", Key: "k"}}},
		&v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "pending"}, Spec: v1alpha1.BootImageStreamSpec{Bundle: &v1alpha1.StreamBundle{Digest: "sha256:x"}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}, Data: map[string]string{"k": data}},
		&v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "c"}, Data: data}).Build()
	for name, want := range map[string]string{"kept": "", "inline": "", "map": "", "pending": "not available yet", "missing": "not found"} {
		s, err := streamOfCluster(context.Background(), cl, name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && len(s.Images) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
