package labcmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRshIsCalledTheWaySSHIs(t *testing.T) {
	for sentence, c := range map[string]struct {
		args string
		want rshCall
	}{
		"host and command":                         {"n2 uname -a", rshCall{host: "n2", line: "uname -a"}},
		"options with values apart and attached":   {"-o StrictHostKeyChecking=no -p22 -l root -i key n2 true", rshCall{host: "n2", line: "true"}},
		"flags in one word, the last with a value": {"-4Ap 22 n2 true", rshCall{host: "n2", line: "true"}},
		"a user": {"root@10.88.0.12 cat", rshCall{host: "10.88.0.12", line: "cat"}},
		"options of the command are the command's":   {"-T n2 sh -c -o", rshCall{host: "n2", line: "sh -c -o"}},
		"a double dash before the host":              {"-q -- n2 true", rshCall{host: "n2", line: "true"}},
		"a double dash before the command":           {"n2 -- true", rshCall{host: "n2", line: "true"}},
		"another lab":                                {"--name demo n2 true", rshCall{name: "demo", host: "n2", line: "true"}},
		"another lab and place, with an equals sign": {"--name=demo --state-dir=/x n2 true", rshCall{name: "demo", stateDir: "/x", host: "n2", line: "true"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := parseRsh(strings.Fields(c.args))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(rshCall{})); diff != "" {
				t.Error("(-want +got):", diff)
			}
		})
	}
	for _, args := range []string{"", "-p 22", "n2", "n2 --"} {
		if _, err := parseRsh(strings.Fields(args)); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

func TestDiskSizesAreRead(t *testing.T) {
	got, err := parseSizes(map[string]string{"n1": "600M", "n2": "2Gi", "n3": "1048576", "all": "10G"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"n1": 600 << 20, "n2": 2 << 30, "n3": 1 << 20, "": 10 << 30}, got); diff != "" {
		t.Error("(-want +got):", diff)
	}
	for _, bad := range []string{"", "much", "1T", "-"} {
		if _, err := parseSizes(map[string]string{"n1": bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestCommandsOnALabThatIsNotThereSayHowToMakeIt(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"kubeconfig"}, {"exec", "n1", "--", "true"}, {"rsh", "n1", "true"}, {"logs", "n1"}, {"reboot", "n1"},
		{"crash", "n1"}, {"insert", "n1", "f"}, {"eject", "n1", "f"}, {"outside"}} {
		var out bytes.Buffer
		c := New()
		c.SetArgs(append([]string{"--state-dir", t.TempDir(), "--name", "absent"}, args...))
		c.SetOut(&out)
		c.SetErr(&bytes.Buffer{})
		err := c.Execute()
		if err == nil || !strings.Contains(err.Error(), "refit-lab up --name absent") {
			t.Errorf("%v: %v", args, err)
		}
		if args[0] != "rsh" && strings.Contains(out.String(), "absent") {
			t.Errorf("%v: the error is on standard output", args)
		}
	}
}
