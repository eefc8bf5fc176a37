package distribution

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestLayout(t *testing.T) {
	t.Parallel()
	unit := func(row, role string) Found {
		r, _ := ByName(row)
		return Found{Row: r, Role: role, Unit: r.units(role)[0]}
	}
	server := "[Service]\nEnvironmentFile=-/etc/default/%N\nExecStartPre=/bin/sh -xc '! systemctl is-enabled nm'\nExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--data-dir' \\\n\t'/mnt/data k3s' \\\n\t'--token' \\\n\t'SECRET' \\\n"
	for name, c := range map[string]struct {
		found  Found
		texts  []string
		config string
		socket string
		data   string
		differ []string
	}{
		"the defaults of k3s":     {unit(K3s, RoleServer), []string{"[Service]\nExecStart=/usr/local/bin/k3s server\n"}, "write-kubeconfig-mode: '0644'\n", "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/k3s", nil},
		"a data directory":        {unit(K3s, RoleServer), []string{server}, "", "", "/mnt/data k3s", []string{"data directory: /mnt/data k3s, by default /var/lib/rancher/k3s"}},
		"one in the config":       {unit(RKE2, RoleServer), []string{"ExecStart=/usr/bin/rke2 server"}, "token: x\ndata-dir: \"/srv/rke2/\"  # moved\n", "", "/srv/rke2", []string{"data directory: /srv/rke2, by default /var/lib/rancher/rke2"}},
		"the flag before it":      {unit(RKE2, RoleAgent), []string{"ExecStart=/usr/bin/rke2 agent --data-dir=/a"}, "data-dir: /b\n", "", "/a", []string{"data directory: /a, by default /var/lib/rancher/rke2"}},
		"k0s.yaml is the cluster": {unit(K0s, RoleServer), []string{"ExecStart=/usr/local/bin/k0s controller"}, "data-dir: /b\n", "", "/var/lib/k0s", nil},
		"another runtime":         {unit(K3s, RoleAgent), []string{"ExecStart=/usr/local/bin/k3s agent --container-runtime-endpoint unix:///run/crio/crio.sock"}, "", "/run/crio/crio.sock", "", []string{"CRI socket: /run/crio/crio.sock, by default /run/k3s/containerd/containerd.sock"}},
		"a drop-in":               {unit(K3s, RoleServer), []string{"ExecStart=/usr/local/bin/k3s server -d /a", "[Service]\nExecStart=\nExecStart=-/opt/k3s server -c /etc/k3s.yaml\n"}, "", "", "/var/lib/rancher/k3s", []string{"program: /opt/k3s, by default /usr/local/bin/k3s or /opt/bin/k3s", "configuration: /etc/k3s.yaml, by default /etc/rancher/k3s/config.yaml"}},
		"no unit":                 {Found{Row: k3s(), Role: RoleServer}, nil, "", "", "", []string{"unit: none of that name, by default k3s.service or k3s-agent.service"}},
		"no unit of kubeadm":      {Found{Row: kubeadm(), Role: RoleServer}, nil, "", "", "", []string{"unit: none of that name, by default kubelet.service"}},
		"k0s's kubelet":           {unit(K0s, RoleAgent), []string{"ExecStart=/usr/local/bin/k0s worker --kubelet-root-dir=/mnt/kubelet"}, "", "", "", []string{"kubelet's directory: /mnt/kubelet, by default /var/lib/k0s/kubelet"}},
		"a relative directory":    {unit(K3s, RoleAgent), []string{"ExecStart=/usr/local/bin/k3s agent --data-dir=data"}, "", "", "/var/lib/rancher/k3s", nil},
	} {
		l := c.found.Layout(ReadUnit(c.texts...), c.config)
		var got []string
		for _, d := range l.Differences {
			got = append(got, d.String())
		}
		if !slices.Equal(got, c.differ) || c.socket != "" && l.Places.Socket != c.socket || c.data != "" && l.Places.DataDir != c.data {
			t.Errorf("%s: %q\n%+v", name, got, l)
		}
	}
}

// No argument of a unit is kept but the paths: one may be a token.
func TestUnitsKeepNoSecret(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(rapid.SampledFrom([]string{"--token", "SECRET", "--token=SECRET", "'--token' 'SECRET'", "-t SECRET", "server", "--node-label", `"a b"`, `\` + "\n"}), 0, 8).Draw(t, "args")
		text := rapid.SampledFrom([]string{"", "[Service]\n", "# ExecStart=/x SECRET\n"}).Draw(t, "before") + "ExecStart=/usr/local/bin/k3s " + strings.Join(args, " ")
		u := ReadUnit(text)
		if u.Program != "/usr/local/bin/k3s" || len(u.Flags) > 0 {
			t.Fatalf("%q is read as %+v", text, u)
		}
	})
}

// Any text is a unit, and no text makes the reading fail.
func FuzzReadUnit(f *testing.F) {
	f.Add("[Service]\nExecStart=/usr/local/bin/k3s server --data-dir /a\n", "data-dir: /b\n")
	f.Add("ExecStart=\\\n\"", ":")
	f.Fuzz(func(t *testing.T, text, config string) {
		u := ReadUnit(text)
		if u.Program != "" && !strings.HasPrefix(u.Program, "/") {
			t.Errorf("program %q", u.Program)
		}
		for _, r := range Rows() {
			l := Found{Row: r, Role: RoleAgent, Unit: "x"}.Layout(u, config)
			if l.Places.DataDir != "" && !strings.HasPrefix(l.Places.DataDir, "/") || !strings.HasPrefix(l.Places.Socket, "/") {
				t.Errorf("%s: %+v", r.Name, l.Places)
			}
		}
	})
}

func TestSplitVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]Build{
		"v1.36.3":                  {Release: "v1.36.3"},
		"v1.36.3+k3s1":             {"v1.36.3", "+k3s1", K3s, "1"},
		"v1.36.3-rc1+k3s2":         {"v1.36.3-rc1", "+k3s2", K3s, "2"},
		"v1.36.4+rke2r10":          {"v1.36.4", "+rke2r10", RKE2, "10"},
		"v1.36.3+k0s":              {"v1.36.3", "+k0s", K0s, ""},
		"v1.36.3+k0s.2":            {"v1.36.3", "+k0s.2", K0s, "2"},
		"v1.31.2-eks-7f9249a":      {"v1.31.2", "-eks-7f9249a", EKSHybrid, ""},
		"v1.36.3+k3s01":            {"v1.36.3", "+k3s01", "", ""},
		"v1.36.3+k3s":              {"v1.36.3", "+k3s", "", ""},
		"v1.36.3+k3s1.1":           {"v1.36.3", "+k3s1.1", "", ""},
		"v1.36.3+vendor1":          {"v1.36.3", "+vendor1", "", ""},
		"v1.31.2-eks-not":          {Release: "v1.31.2-eks-not"},
		"v1.36.3+k3s1234567890123": {"v1.36.3", "+k3s1234567890123", "", ""},
		"":                         {},
	} {
		if got := SplitVersion(version); got != want {
			t.Errorf("%q: %+v, want %+v", version, got, want)
		}
	}
}

func TestMoveProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, why string }{
		{"v1.35.4", "v1.36.0", ""}, {"v1.35.4+vendor1", "v1.36.0", ""}, {"", "v1.36.0+k3s1", ""}, {"v1.35.4+k3s1", "", ""}, {"", "", ""},
		{"v1.35.4+k3s1", "v1.35.4+k3s2", ""}, {"v1.35.4+rke2r1", "v1.36.0", "another distribution, kubeadm"}, {"v1.35.4+k0s", "v1.35.4+k0s.1", "does not report the build"},
		{"v1.35.4+k0s.0", "v1.35.4+k0s.1", ""}, {"v1.35.4+k0s", "v1.36.0", "another distribution, kubeadm"},
		{"v1.35.4-eks-0", "v1.36.0", "runs EKS Hybrid Nodes"}, {"v1.35.4", "v1.36.0+k3s1", "another distribution, k3s"}, {"v1.35.4+vendor1", "v1.35.4-eks-0", "another distribution, EKS"},
	} {
		why, fix := MoveProblem(c.from, c.to)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) || (why == "") != (fix == "") {
			t.Errorf("%s to %s: %q, %q", c.from, c.to, why, fix)
		}
	}
}

// The agent's observation counts only for the release that the kubelet reports.
func TestRelease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kubelet, observed, want string }{
		{"v1.36.3+k0s", "v1.36.3+k0s.2", "v1.36.3+k0s.2"}, {"v1.36.3+k0s", "v1.35.4+k0s.2", "v1.36.3+k0s"}, {"v1.36.3+k0s", "", "v1.36.3+k0s"},
		{"v1.36.3+k0s", "v1.36.3+k3s2", "v1.36.3+k0s"}, {"v1.36.3+k3s1", "v1.36.3+k3s2", "v1.36.3+k3s1"}, {"v1.36.3", "v1.36.3+k0s.1", "v1.36.3"}, {"", "v1.36.3", ""},
	} {
		if got := Release(c.kubelet, c.observed); got != c.want {
			t.Errorf("%s, observed %s: %s, want %s", c.kubelet, c.observed, got, c.want)
		}
	}
}

func TestOrderOfBuilds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"+k3s1", "+k3s2", true}, {"+k3s2", "+k3s1", false}, {"+k3s1", "+k3s1", false}, {"+k3s9", "+k3s10", true}, {"+k3s10", "+k3s9", false}, {"+k3s0", "+k3s1", true},
		{"+rke2r1", "+k3s2", false}, {"+k0s", "+k0s.1", false}, {"+k0s.1", "+k0s", false}, {"", "+k3s1", false}, {"+k3s1", "", false}, {"+x1", "+x2", false}, {"-eks-0", "-eks-1", false},
	} {
		if got := SplitVersion("v1.35.4" + c.a).Less(SplitVersion("v1.35.4" + c.b)); got != c.want {
			t.Errorf("%s older than %s: %t", c.a, c.b, got)
		}
	}
}
