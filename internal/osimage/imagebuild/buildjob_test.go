package imagebuild

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The tightest pod that builds, as the variants were seen on real nodes.
func TestPickVariant(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		tried []Variant
		want  Variant
		says  string
	}{
		"everything is allowed":                         {Facts{UserNamespaces: true}, nil, UserNamespace, "it is the tightest"},
		"baseline allows no SYS_ADMIN":                  {Facts{UserNamespaces: true, Level: LevelBaseline}, nil, UserNamespaceUnconfined, "baseline allows no SYS_ADMIN"},
		"no user namespaces":                            {Facts{}, nil, FileCapabilities, "no user namespaces for pods"},
		"no user namespaces, baseline, CRI-O":           {Facts{Level: LevelBaseline, CRIO: true}, nil, FileCapabilities, ""},
		"file capabilities did not do":                  {Facts{Level: LevelBaseline}, []Variant{FileCapabilities}, Root, "it was tried"},
		"kubelets force a profile":                      {Facts{SeccompDefault: true}, nil, RootAdmin, "forbids new user namespaces"},
		"kubelets force a profile, and user namespaces": {Facts{SeccompDefault: true, UserNamespaces: true}, nil, UserNamespace, ""},
		"restricted":                                    {Facts{UserNamespaces: true, Level: LevelRestricted}, nil, "", "Let the namespace enforce Pod Security baseline"},
		"kubelets force a profile under baseline":       {Facts{SeccompDefault: true, Level: LevelBaseline}, nil, "", "runc 1.2"},
		"CRI-O, and file capabilities did not do":       {Facts{Level: LevelBaseline, CRIO: true}, []Variant{FileCapabilities}, "", "SETFCAP"},
	} {
		got, err := PickVariant(c.facts, c.tried)
		says := got.Why
		if err != nil {
			says = err.Error()
		}
		if got.Variant != c.want || (err == nil) != (c.want != "") || !strings.Contains(says, c.says) {
			t.Errorf("%s: %s %q", name, got.Variant, says)
		}
	}
}

func build() JobBuild {
	return JobBuild{Name: "edge-1", Namespace: "refit-builds", Image: "r/buildah@sha256:aa", Containerfile: "FROM x\n", Target: "r/os/edge:edge-1", PullSecret: "pull", PushSecret: "push",
		Labels: map[string]string{"a": "b"}, Secrets: []string{"entitlement"}, Context: map[string][]byte{"motd": []byte("hello\n"), "etc/app.conf": {0xff}}, CABundle: "PEM\n", Mirrors: "[[registry]]\n", Platform: "linux/arm64", Proxy: map[string]string{"HTTPS_PROXY": "http://p"},
		NodeSelector: map[string]string{"builds": "yes"}}
}

// No variant of the pod has files of the node, a token of the API or privileges.
func TestNoPodIsPrivileged(t *testing.T) {
	for _, v := range Variants {
		made := MakeJob(v, build())
		job, files := made.Job, made.Files
		p := job.Spec.Template.Spec
		c := p.Containers[0]
		if len(p.Containers) != 1 || *c.SecurityContext.Privileged || p.HostNetwork || p.HostPID || p.HostIPC || *p.AutomountServiceAccountToken {
			t.Errorf("%s: %+v", v, p)
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if limit := c.Resources.Limits[name]; limit.IsZero() {
				t.Errorf("%s has no limit of %s", v, name)
			}
		}
		for _, vol := range p.Volumes {
			if vol.HostPath != nil || vol.Projected != nil {
				t.Errorf("%s: volume %s", v, vol.Name)
			}
		}
		for _, m := range c.VolumeMounts {
			if !m.ReadOnly && m.Name != "build" {
				t.Errorf("%s may write %s", v, m.Name)
			}
		}
		caps := c.SecurityContext.Capabilities
		if caps != nil && fmt.Sprint(caps.Add) != "[SYS_ADMIN]" {
			t.Errorf("%s: %v", v, caps)
		}
		if (caps != nil) != (v == UserNamespace || v == RootAdmin) || (p.HostUsers != nil) != (v == UserNamespace || v == UserNamespaceUnconfined) {
			t.Errorf("%s: capabilities %v, host users %v", v, caps, p.HostUsers)
		}
		if *job.Spec.BackoffLimit != 3 || p.RestartPolicy != corev1.RestartPolicyNever || files.Name != job.Name {
			t.Errorf("%s: %+v", v, job.Spec)
		}
		a, _ := json.Marshal(made)
		b, _ := json.Marshal(MakeJob(v, build()))
		if diff := cmp.Diff(string(a), string(b)); diff != "" {
			t.Error(v, diff)
		}
	}
}

// What is secret is mounted, and is not in what is written down.
func TestSecretsAreMountedOnly(t *testing.T) {
	made := MakeJob(UserNamespace, build())
	job, files := made.Job, made.Files
	mounts := map[string]string{}
	for _, m := range job.Spec.Template.Spec.Containers[0].VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	want := map[string]string{"build": "/build", "refit": "/refit", "pull": "/run/refit/pull", "push": "/run/refit/push",
		"context": "/run/refit/context", "secret-entitlement": "/run/refit/secrets/entitlement"}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
	if len(files.Data) != 4 || files.Data["Containerfile"] != "FROM x\n" {
		t.Error(files.Data)
	}
}

func job(kind batchv1.JobConditionType) *batchv1.Job {
	j := &batchv1.Job{Status: batchv1.JobStatus{Failed: 1}}
	if kind != "" {
		j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "too often"}}
	}
	return j
}

func ended(minute int, code int32, message string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Date(2026, 11, 20, 0, minute, 0, 0, time.UTC))},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}}}}}
}

// Who is at fault, and the end of the log.
func TestInspectJob(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		job  *batchv1.Job
		pods []corev1.Pod
		want Outcome
	}{
		"it runs":                                       {job(""), nil, Outcome{Tries: 1}},
		"one try failed, the next runs":                 {job(""), []corev1.Pod{ended(1, 66, "base cannot be pulled")}, Outcome{Tries: 1, Log: "base cannot be pulled"}},
		"it went well":                                  {job(batchv1.JobComplete), []corev1.Pod{ended(1, 66, "x"), ended(2, 0, digest+"\n")}, Outcome{Tries: 1, Finished: true, Digest: digest}},
		"the user's fault":                              {job(batchv1.JobFailed), []corev1.Pod{ended(1, ExitUser, "RUN false\nerror: 1\n")}, Outcome{Tries: 1, Finished: true, Fault: User, Log: "RUN false\nerror: 1"}},
		"the pod may not make namespaces":               {job(batchv1.JobFailed), []corev1.Pod{ended(1, ExitNamespaces, "unshare")}, Outcome{Tries: 1, Finished: true, Fault: Namespaces, Log: "unshare"}},
		"the surroundings, too often":                   {job(batchv1.JobFailed), []corev1.Pod{ended(1, 68, "cannot be pushed")}, Outcome{Tries: 1, Finished: true, Fault: Environment, Log: "cannot be pushed"}},
		"no pod is left to ask":                         {job(batchv1.JobFailed), nil, Outcome{Tries: 1, Finished: true, Fault: Environment, Log: "BackoffLimitExceeded: too often"}},
		"T25: it ended well and said no digest":         {job(batchv1.JobComplete), []corev1.Pod{ended(1, 0, "hello")}, Outcome{Tries: 1, Finished: true, Fault: Environment, Log: "hello"}},
		"the newest pod counts, not the first":          {job(batchv1.JobFailed), []corev1.Pod{ended(5, ExitUser, "new"), ended(1, 66, "old")}, Outcome{Tries: 1, Finished: true, Fault: User, Log: "new"}},
		"a log that is too long keeps its end":          {job(batchv1.JobFailed), []corev1.Pod{ended(1, ExitUser, strings.Repeat("x", 9000)+"END")}, Outcome{Tries: 1, Finished: true, Fault: User, Log: "..." + strings.Repeat("x", maxLog-6) + "END"}},
		"it went well, and said how long the push took": {job(batchv1.JobComplete), []corev1.Pod{ended(2, 0, digest+"\npackages "+digest+"\npushed 42\n")}, Outcome{Tries: 1, Finished: true, Digest: digest, Packages: digest, PushSeconds: 42}},
		"it went well, with a list of packages":         {job(batchv1.JobComplete), []corev1.Pod{ended(2, 0, digest+"\npackages "+digest+"\n")}, Outcome{Tries: 1, Finished: true, Digest: digest, Packages: digest}},
		"a digest with something in front is no":        {job(batchv1.JobComplete), []corev1.Pod{ended(1, 0, "x "+digest)}, Outcome{Tries: 1, Finished: true, Fault: Environment, Log: "x " + digest}},
	} {
		if diff := cmp.Diff(c.want, InspectJob(c.job, c.pods)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

var update = flag.Bool("update", false, "write the golden Jobs anew")

// What each variant's Job and its files look like, as a person would read them.
func TestGoldenJobs(t *testing.T) {
	image := build()
	image.Context, image.ContextImage, image.Secrets, image.CABundle, image.Mirrors, image.Proxy, image.Platform = nil, "r/context@sha256:bb", nil, "", "", nil, ""
	cases := map[string]JobBuild{"context-image": image}
	for _, v := range Variants {
		cases[string(v)] = build()
	}
	for name, b := range cases {
		v := Variant(name)
		if name == "context-image" {
			v = UserNamespace
		}
		made := MakeJob(v, b)
		made.Files.Data["build.sh"] = "(build.sh)"
		got, err := yaml.Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The script is one that a plain shell reads.
func TestScriptParses(t *testing.T) {
	for _, shell := range []string{"dash", "bash"} {
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		cmd := exec.Command(shell, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", shell, err, out)
		}
	}
}
