package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHierarchiesAreReadFromTheMountTable(t *testing.T) {
	for sentence, c := range map[string]struct {
		mountinfo string
		want      []CgroupHierarchy
	}{
		"unified only": {
			"30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
			[]CgroupHierarchy{{Mount: "/sys/fs/cgroup", Unified: true}},
		},
		"legacy with two controllers in one, a named one, and also unified": {
			"33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
				"34 32 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/x,name=systemd\n" +
				"35 32 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			[]CgroupHierarchy{{Mount: "/sys/fs/cgroup/cpu,cpuacct", Options: "cpu,cpuacct"}, {Mount: "/sys/fs/cgroup/systemd", Options: "none,name=systemd"}, {Mount: "/sys/fs/cgroup/unified", Unified: true}},
		},
		"a hierarchy mounted twice counts once, a part of one that is bound elsewhere not at all": {
			"33 32 0:29 / /a rw - cgroup cgroup rw,memory\n34 32 0:29 / /b rw - cgroup cgroup rw,memory\n35 32 0:31 /x /c rw - cgroup cgroup rw,pids\n",
			[]CgroupHierarchy{{Mount: "/a", Options: "memory"}},
		},
		"other mounts are none": {"22 1 8:1 / / rw - ext4 /dev/sda1 rw\nrubbish\n", nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parseHierarchies(c.mountinfo)); diff != "" {
				t.Error("(-want +got):", diff)
			}
		})
	}
}

func TestOnlyMembersOfTheGroupAreKilled(t *testing.T) {
	for cgroups, want := range map[string]bool{
		"3:cpuset:/\n2:cpu:/refit-lab-a/n1/kubepods\n": true,
		"0::/refit-lab-a\n":                            true,
		"0::/refit-lab-ab/n1\n":                        false,
		"1:name=systemd:/user.slice":                   false,
		"":                                             false,
	} {
		if got := isCgroupMember(cgroups, "refit-lab-a"); got != want {
			t.Errorf("member(%q) = %v", cgroups, got)
		}
	}
}
