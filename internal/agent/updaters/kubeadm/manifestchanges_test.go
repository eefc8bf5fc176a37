package kubeadm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const comparedManifest = `metadata: {name: kube-apiserver, annotations: {a: b}}
spec:
  containers:
  - name: kube-apiserver
    image: r/kube-apiserver:v1.35.4
    command: [kube-apiserver, --audit-log-maxage=30, --v=2]
    env: [{name: GOGC, value: "50"}]
    volumeMounts: [{name: pki, mountPath: /pki, readOnly: true}]
    livenessProbe: {failureThreshold: 8}
  hostNetwork: true
  volumes: [{name: pki, hostPath: {path: /pki}}]
`

func TestCompareManifests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change [2]string
		want   []string
	}{
		"nothing":           {[2]string{"", ""}, nil},
		"order and comment": {[2]string{"spec:\n", "# mine\nspec:\n  restartPolicy: Always\n"}, []string{"kube-apiserver: restartPolicy"}},
		"other order":       {[2]string{"--audit-log-maxage=30, --v=2", "--v=2, --audit-log-maxage=30"}, nil},
		"a flag's value":    {[2]string{"--v=2", "--v=4"}, []string{"kube-apiserver: --v"}},
		"a flag more":       {[2]string{"--v=2", "--v=2, --token-auth-file=/secret"}, []string{"kube-apiserver: --token-auth-file"}},
		"a flag less":       {[2]string{", --v=2", ""}, []string{"kube-apiserver: --v"}},
		"a flag twice":      {[2]string{"--v=2", "--v=2, --v=2"}, []string{"kube-apiserver: --v"}},
		"a secret":          {[2]string{"value: \"50\"", "value: hunter2"}, []string{"kube-apiserver: containers.kube-apiserver.env.GOGC.value"}},
		"a variable more":   {[2]string{"env: [", "env: [{name: HTTP_PROXY, value: 'http://u:p@h'}, "}, []string{"kube-apiserver: containers.kube-apiserver.env.HTTP_PROXY"}},
		"a mount, a volume": {[2]string{"volumes: [", "volumes: [{name: mine, hostPath: {path: /m}}, "}, []string{"kube-apiserver: volumes.mine"}},
		"the same volume mounted twice": {[2]string{"volumeMounts: [", "volumeMounts: [{name: pki, mountPath: /more}, "},
			[]string{"kube-apiserver: containers.kube-apiserver.volumeMounts.pki /more"}},
		"a probe and the network": {[2]string{"failureThreshold: 8}\n  hostNetwork: true", "failureThreshold: 24}"},
			[]string{"kube-apiserver: containers.kube-apiserver.livenessProbe.failureThreshold", "kube-apiserver: hostNetwork"}},
		"a list where kubeadm writes none": {[2]string{"hostNetwork: true", "hostNetwork: true\n  initContainers: [{name: mine, image: x}]"}, []string{"kube-apiserver: initContainers.mine"}},
		"an image":                         {[2]string{"r/kube", "mine/kube"}, []string{"kube-apiserver: containers.kube-apiserver.image"}},
		"control sequences":                {[2]string{"a: b", "\"\\e[2Jx\\n\": b"}, []string{"kube-apiserver: metadata.annotations.??2Jx?", "kube-apiserver: metadata.annotations.a"}},
	} {
		have := strings.Replace(comparedManifest, c.change[0], c.change[1], 1)
		got, err := compareManifests("kube-apiserver", []byte(have), []byte(comparedManifest))
		if d := cmp.Diff(c.want, got); err != nil || len(got)+len(c.want) > 0 && d != "" {
			t.Errorf("%s: %v\n%s", name, err, d)
		}
	}
	etcd := []byte("spec: {containers: [{name: etcd, command: [etcd, --name=n2, '--initial-cluster=n1=a,n2=b', --initial-cluster-state=existing]}]}")
	if got, err := compareManifests(etcdPod, etcd, []byte("spec: {containers: [{name: etcd, command: [etcd, --name=n2, --initial-cluster=n2=b]}]}")); err != nil || len(got) > 0 {
		t.Errorf("a member that joined: %q %v", got, err)
	}
	if _, err := compareManifests(etcdPod, []byte("a: ["), etcd); err == nil || !strings.Contains(err.Error(), "manifest of etcd") {
		t.Error(err)
	}
}
