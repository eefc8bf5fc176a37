package text

import (
	"strings"
	"testing"
)

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

// A filter hides in lines what HideSecrets hides in the whole text, however the text is cut.
func TestSecretFilter(t *testing.T) {
	in := "a token=abc\nread -----BEGIN RSA PRIVATE KEY-----\n12:00 AAAA\n12:00 BBBB\n12:00 -----END RSA PRIVATE KEY----- done\nproxy http://me:pw@proxy:1\n-----BEGIN EC PRIVATE KEY-----\nAA\n-----END EC PRIVATE KEY-----\nx -----BEGIN A----- b -----END A----- y\nlast"
	want := "a token=[hidden]\nread [hidden]\n[hidden]RSA PRIVATE KEY----- done\nproxy http://[hidden]@proxy:1\n[hidden]\n[hidden]EC PRIVATE KEY-----\nx [hidden] y\nlast"
	for _, size := range []int{1, 7, 1000} {
		var out strings.Builder
		f := NewSecretFilter(&out)
		for rest := in; rest != ""; {
			n := min(size, len(rest))
			if _, err := f.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("in parts of %d:\n%s\nwant\n%s", size, out.String(), want)
		}
	}
	// A key without an end hides some lines, not the rest of a log that is followed.
	var out strings.Builder
	f := NewSecretFilter(&out)
	text := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("AAAA\n", maxKeyLines) + "next\n" + strings.Repeat("x", 3*maxSecretLine)
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "[hidden]\nnext\nxxx") || len(f.line) >= maxSecretLine {
		t.Errorf("%.60q, %d bytes wait", got, len(f.line))
	}
}
