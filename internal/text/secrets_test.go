package text

import "testing"

func TestHideSecrets(t *testing.T) {
	for what, c := range map[string]struct{ in, want string }{
		"a bad flag stays":               {"E1121 kubelet failed to parse flag: unknown flag: --no-such-flag", "E1121 kubelet failed to parse flag: unknown flag: --no-such-flag"},
		"the reason of a refusal stays":  {`Unable to register node "n2" err="connect: connection refused" token expired`, `Unable to register node "n2" err="connect: connection refused" token expired`},
		"a flag":                         {"--bootstrap-token=abcdef.0123456789abcdef --v=2", "--bootstrap-token=[hidden] --v=2"},
		"a field":                        {`{"password": "hunter2","user":"x"}`, `{"password": "[hidden]","user":"x"}`},
		"a header":                       {"Authorization: Bearer abc.def.ghi rest", "Authorization: [hidden] rest"},
		"a scheme alone":                 {"sent bearer abcdefghij", "sent bearer [hidden]"},
		"the user of a proxy":            {"proxy http://me:pw@proxy:3128 refused", "proxy http://[hidden]@proxy:3128 refused"},
		"a token of a service account":   {"got eyJhbGciOi.eyJpc3MiOi.c2ln", "got [hidden]"},
		"kubeadm's token":                {"join with abcdef.0123456789abcdef", "join with [hidden]"},
		"a key":                          {"read -----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY----- done", "read [hidden] done"},
		"a key that is cut off":          {"read -----BEGIN EC PRIVATE KEY-----\nAAAA", "read [hidden]"},
		"a token of a forge":             {"cloned with ghp_0123456789abcdefABCDEF01", "cloned with [hidden]"},
		"a cloud's access key":           {"as AKIAABCDEFGHIJKLMNOP", "as [hidden]"},
		"a registry's login":             {`{"auths":{"r.example":{"auth":"dXNlcjpwYXNz"}}}`, `{"auths":{"r.example":{"auth":"[hidden]"}}}`},
		"a kubeconfig's key":             {"client-key-data: LS0tLS1CRUdJTiBF", "client-key-data: [hidden]"},
		"a path of a file with a secret": {"--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml", "--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml"},
	} {
		if got := HideSecrets(c.in); got != c.want {
			t.Errorf("%s: %q, not %q", what, got, c.want)
		}
	}
}
