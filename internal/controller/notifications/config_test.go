package notifications

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What an administrator may write, and what is refused with a reason that has no secret.
func TestSettings(t *testing.T) {
	t.Parallel()
	files := map[string]string{"ops.key": "k3y\n", "token": "t0ken", "ca.crt": "no certificate", "two": "a\nb\n", "empty": "\n"}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("no such file")
	}
	whole := "cluster: site-7\nreceivers:\n- {name: ops, type: webhook, url: 'https://hooks.example/s3cret', hmacKeyFile: ops.key, bearerTokenFile: token, events: [Failed]}\n- {name: am, type: alertmanager, url: 'http://10.0.0.9:9093'}\n"
	s, err := parseSettings([]byte(whole), read)
	if err != nil || s.cluster != "site-7" || len(s.receivers) != 2 {
		t.Fatalf("%v %+v", err, s)
	}
	if r := &s.receivers[0]; string(r.key) != "k3y" || r.token != "t0ken" || r.wants(eventDone) || !r.wants(eventFailed) || !s.receivers[1].wants(eventDone) {
		t.Errorf("%+v", r)
	}
	files["ops.key"] = "an0ther"
	if other, err := parseSettings([]byte(whole), read); err != nil || other.sum == s.sum {
		t.Errorf("a changed key is not noticed: %v", err)
	}
	one := func(fields string) string { return "receivers: [{name: ops, type: webhook, " + fields + "}]" }
	for name, tc := range map[string]struct{ file, want string }{
		"no YAML":              {"receivers: [", "not valid YAML"},
		"an unknown field":     {one("url: 'https://h', secret: s3cret"), "not valid YAML, or has a field that is not known"},
		"no name":              {"receivers: [{type: webhook, url: 'https://h'}]", "its name is not"},
		"a name with a line":   {"receivers: [{name: \"a\\nb\", type: webhook, url: 'https://h'}]", "its name is not"},
		"the same name twice":  {"receivers: [{name: a, type: webhook, url: 'https://h'}, {name: a, type: webhook, url: 'https://h'}]", "there twice"},
		"another type":         {"receivers: [{name: a, type: mail, url: 'https://h'}]", `type "mail" is not webhook or alertmanager`},
		"another scheme":       {one("url: 'ftp://h/s3cret'"), "not http://HOST or https://HOST"},
		"a URL that is none":   {one(`url: "https://h\ts3cret"`), "not http://HOST or https://HOST"},
		"another event":        {one("url: 'https://h', events: [Finished]"), `event "Finished" is not one of`},
		"a missing file":       {one("url: 'https://h', hmacKeyFile: nothing"), "hmacKeyFile: no such file"},
		"an empty key":         {one("url: 'https://h', hmacKeyFile: empty"), "exactly one line"},
		"a token of two lines": {one("url: 'https://h', bearerTokenFile: two"), "exactly one line"},
		"no certificate":       {one("url: 'https://h', caFile: ca.crt"), "no certificate in PEM"},
		"a signed alert":       {"receivers: [{name: a, type: alertmanager, url: 'https://h', hmacKeyFile: ops.key}]", "for webhooks"},
		"too many":             {"receivers: [" + strings.Repeat("{},", maxReceivers+1) + "]", "21 receivers"},
	} {
		_, err := parseSettings([]byte(tc.file), read)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// The file comes from a Secret that may not exist, and leads to no other file of the machine.
func TestSettingsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "receivers.yaml")
	if s, err := loadSettings(file); err != nil || len(s.receivers) != 0 {
		t.Errorf("without a file: %v %+v", err, s)
	}
	for _, name := range []string{"../key", "/etc/passwd"} {
		if err := os.WriteFile(file, []byte("receivers: [{name: a, type: webhook, url: 'https://h', hmacKeyFile: "+name+"}]"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadSettings(file); err == nil || !strings.Contains(err.Error(), "is not the name of a file in the directory") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
