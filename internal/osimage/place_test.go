package osimage

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

func file(path string, change ...func(*model.ConfigFile)) model.ConfigFile {
	f := model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte("x")}
	for _, c := range change {
		c(&f)
	}
	return f
}

// What goes where, and by which rule.
func TestFiles(t *testing.T) {
	own := func(f *model.ConfigFile) { f.Own = true }
	for name, c := range map[string]struct {
		file model.ConfigFile
		// item as "where at: part of the rule".
		item string
		// entries of the layer but the one for kernel arguments; agent's files.
		entries, agent []string
	}{
		"a unit that refit named":               {file("/etc/systemd/system/p.service", own), "image /usr /usr/lib/systemd/system/p.service: refit chose", []string{"usr/lib/systemd/system/p.service"}, []string{"-/etc/systemd/system/p.service", "=/usr/lib/systemd/system/p.service"}},
		"a drop-in that refit named":            {file("/etc/systemd/system/p.service.d/1.conf", own), "image /usr /usr/lib/systemd/system/p.service.d/1.conf: refit chose", []string{"usr/lib/systemd/system/p.service.d/1.conf"}, []string{"-/etc/systemd/system/p.service.d/1.conf", "=/usr/lib/systemd/system/p.service.d/1.conf"}},
		"a unit that a person placed":           {file("/etc/systemd/system/p.service"), "image /etc /etc/systemd/system/p.service: a path that a person wrote", []string{"etc/systemd/system/p.service"}, []string{"/etc/systemd/system/p.service"}},
		"a file of /etc":                        {file("/etc/motd"), "image /etc /etc/motd: ", []string{"etc/motd"}, []string{"/etc/motd"}},
		"a file of /usr":                        {file("/usr/lib/x.conf"), "image /usr /usr/lib/x.conf: below /usr only the image", []string{"usr/lib/x.conf"}, []string{"=/usr/lib/x.conf"}},
		"a file of /var":                        {file("/var/lib/x"), "agent : what an image has in /var", nil, []string{"/var/lib/x"}},
		"an ssh key":                            {file("/home/core/.ssh/authorized_keys", own, func(f *model.ConfigFile) { f.Mode = 0o600; f.Owner = "core" }), "agent : what an image has in /home", nil, []string{"/home/core/.ssh/authorized_keys"}},
		"root's home":                           {file("/root/.profile"), "agent : what an image has in /root", nil, []string{"/root/.profile"}},
		"/usr/local may lead into /var":         {file("/usr/local/bin/x"), "agent : what an image has in /usr/local", nil, []string{"/usr/local/bin/x"}},
		"state of one machine":                  {file("/etc/hostname"), "agent : it is the node's own", nil, []string{"/etc/hostname"}},
		"accounts":                              {file("/etc/passwd"), "agent : it is the node's own", nil, []string{"/etc/passwd"}},
		"a key by its content":                  {file("/etc/x.pem", func(f *model.ConfigFile) { f.Data = []byte("-----BEGIN RSA PRIVATE KEY-----") }), "agent : it holds a private key", nil, []string{"/etc/x.pem"}},
		"a secret by its path":                  {file("/etc/ostree/auth.json"), "agent : /etc/ostree/auth.json is a place for secrets", nil, []string{"/etc/ostree/auth.json"}},
		"what not everybody may read":           {file("/etc/x", func(f *model.ConfigFile) { f.Mode = 0o640 }), "agent : not every user may read it", nil, []string{"/etc/x"}},
		"an owner without a number":             {file("/etc/x", func(f *model.ConfigFile) { f.Owner = "chrony" }), "agent : only the node knows", nil, []string{"/etc/x"}},
		"an owner with a number":                {file("/etc/x", func(f *model.ConfigFile) { f.Owner, f.Group = "12", "13" }), "image /etc /etc/x: ", []string{"etc/x"}, []string{"/etc/x"}},
		"bytes that a bundle brings":            {file("/etc/x", func(f *model.ConfigFile) { f.Payload = "file.x" }), "agent : its bytes come with a bundle", nil, []string{"/etc/x"}},
		"a file of the base that is to be gone": {model.ConfigFile{Path: "/etc/x", Absent: true}, "image /etc /etc/x: ", []string{"-etc/x"}, []string{"-/etc/x"}},
		"a file of /usr that is to be gone":     {model.ConfigFile{Path: "/usr/lib/x", Absent: true}, "image /usr /usr/lib/x: ", []string{"-usr/lib/x"}, []string{"-=/usr/lib/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, vs := PlaceConfig(model.NodeConfig{Files: []model.ConfigFile{c.file}})
			if len(vs) > 0 || len(p.Items) != 1 {
				t.Fatalf("%+v %+v", p.Items, vs)
			}
			i := p.Items[0]
			if got := fmt.Sprintf("%s %s: %s", i.Where, i.At, i.Rule); !strings.HasPrefix(got, c.item) {
				t.Errorf("it goes to %q, want %q", got, c.item)
			}
			var entries, agent []string
			for _, e := range p.Entries {
				if e.Path != kargsFile {
					entries = append(entries, map[bool]string{true: "-"}[e.Removed]+e.Path)
				}
			}
			for _, f := range p.Agent.Files {
				agent = append(agent, map[bool]string{true: "-"}[f.Absent]+map[bool]string{true: "="}[f.InImage]+f.Path)
			}
			if diff := cmp.Diff(c.entries, entries); diff != "" {
				t.Error("layer", diff)
			}
			if diff := cmp.Diff(c.agent, agent); diff != "" {
				t.Error("agent", diff)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ path, data, says string }{
		"libostree's /usr/etc": {"/usr/etc/motd", "x", "/usr/etc is libostree's own"},
		"a secret below /usr":  {"/usr/lib/x.pem", "-----BEGIN PRIVATE KEY-----", "it holds a private key"},
	} {
		p, vs := PlaceConfig(model.NodeConfig{Files: []model.ConfigFile{file("/etc/motd"), file(c.path, func(f *model.ConfigFile) { f.Data = []byte(c.data) })}})
		if len(vs) != 1 || !strings.Contains(vs[0].Message, c.says) || vs[0].Fix == "" || len(p.Entries) != 0 {
			t.Errorf("%s: %+v %d entries", name, vs, len(p.Entries))
		}
	}
}

func entry(p Placement, path string) *LayerEntry {
	for i := range p.Entries {
		if p.Entries[i].Path == path {
			return &p.Entries[i]
		}
	}
	return nil
}

// Units are enabled and masked where systemctl would do it.
func TestUnits(t *testing.T) {
	text := "[Unit]\nWantedBy=not.here\n[Install]\nWantedBy=multi-user.target  timers.target\nRequiredBy = a.target\nAlias=x\n"
	c := model.NodeConfig{
		Files: []model.ConfigFile{file("/etc/systemd/system/p.service", func(f *model.ConfigFile) { f.Own, f.Data = true, []byte(text) })},
		Units: []model.ConfigUnit{{Name: "p.service", State: "enabled"}, {Name: "base.service", State: "enabled"}, {Name: "bad.service", State: "masked"}, {Name: "off.service", State: "disabled"}},
	}
	p, vs := PlaceConfig(c)
	if len(vs) > 0 {
		t.Fatal(vs)
	}
	for at, to := range map[string]string{
		"etc/systemd/system/multi-user.target.wants/p.service": "/usr/lib/systemd/system/p.service",
		"etc/systemd/system/timers.target.wants/p.service":     "/usr/lib/systemd/system/p.service",
		"etc/systemd/system/a.target.requires/p.service":       "/usr/lib/systemd/system/p.service",
		"etc/systemd/system/bad.service":                       "/dev/null",
	} {
		if e := entry(p, at); e == nil || e.Link != to {
			t.Errorf("%s leads to %+v, want %s", at, e, to)
		}
	}
	if len(p.Entries) != 6 { // and the unit, and the kernel arguments
		t.Errorf("%+v", p.Entries)
	}
	if diff := cmp.Diff(c.Units, p.Agent.Units); diff != "" {
		t.Error("the agent verifies all units", diff)
	}
}

// The file of kernel arguments is there without arguments too.
func TestArguments(t *testing.T) {
	for want, c := range map[string]model.NodeConfig{
		"kargs = []\n":                           {},
		"kargs = [\"quiet\", \"console=t,1\"]\n": {OS: &model.ConfigOS{KernelArguments: []string{"quiet", "console=t,1"}}},
	} {
		p, vs := PlaceConfig(c)
		e := entry(p, kargsFile)
		if len(vs) > 0 || e == nil || !strings.HasSuffix(string(e.Data), "\n"+want) || e.Mode != 0o644 {
			t.Errorf("%q: %+v", want, e)
		}
	}
}

// For any configuration, every part is placed once, nothing secret is in an
// image, no path comes twice, and the order of the files is nothing.
func TestEverythingIsPlacedOnce(t *testing.T) {
	paths := []string{"/etc/a", "/etc/b/c", "/usr/lib/d", "/var/e", "/home/u/.ssh/authorized_keys", "/opt/f", "/etc/systemd/system/g.service", "/etc/hosts", "/etc/shadow"}
	rapid.Check(t, func(t *rapid.T) {
		c := model.NodeConfig{OS: &model.ConfigOS{KernelArguments: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b=1"}), 0, 2).Draw(t, "arguments")}}
		for _, p := range rapid.SliceOfDistinct(rapid.SampledFrom(paths), rapid.ID).Draw(t, "paths") {
			f := file(p)
			f.Own, f.Absent = rapid.Bool().Draw(t, "own"), rapid.Bool().Draw(t, "absent")
			f.Mode = rapid.SampledFrom([]uint32{0o644, 0o600, 0o755}).Draw(t, "mode")
			if rapid.Bool().Draw(t, "secret") && !isBelow(p, "/usr") {
				f.Data = []byte("-----BEGIN PRIVATE KEY-----")
			}
			if isBelow(p, "/usr") {
				f.Mode = 0o644
			}
			c.Files = append(c.Files, f)
		}
		p, vs := PlaceConfig(c)
		if len(vs) > 0 {
			t.Fatal(vs)
		}
		seen := map[string]bool{}
		for _, e := range p.Entries {
			if seen[e.Path] {
				t.Fatal(e.Path, "is there twice")
			}
			seen[e.Path] = true
			if strings.Contains(string(e.Data), "PRIVATE") || e.Mode&0o004 == 0 && !e.Removed && e.Link == "" {
				t.Fatalf("%+v is in the image", e)
			}
			if !strings.HasPrefix(e.Path, "etc/") && !strings.HasPrefix(e.Path, "usr/") {
				t.Fatal(e.Path, "is not applied on an update")
			}
		}
		items := map[string]int{}
		for _, i := range p.Items {
			items[i.What]++
		}
		reported := map[string]bool{}
		for _, f := range p.Agent.Files {
			reported[f.Path] = true
		}
		for _, f := range c.Files {
			if items[f.Path] != 1 || !reported[f.Path] {
				t.Fatalf("%s: %d items, reported %v", f.Path, items[f.Path], reported[f.Path])
			}
		}
		rand.Shuffle(len(c.Files), func(i, j int) { c.Files[i], c.Files[j] = c.Files[j], c.Files[i] })
		again, _ := PlaceConfig(c)
		if diff := cmp.Diff(p.Entries, again.Entries); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(p.Agent.Files, again.Agent.Files); diff != "" {
			t.Fatal(diff)
		}
	})
}

// What was written down makes the same image.
func TestSeal(t *testing.T) {
	c := model.NodeConfig{Files: []model.ConfigFile{file("/etc/motd"), file("/etc/systemd/system/p.service", func(f *model.ConfigFile) { f.Own = true })}, OS: &model.ConfigOS{KernelArguments: []string{"quiet"}}}
	back, err := OpenConfig(SealConfig(c))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := PlaceConfig(c)
	b, _ := PlaceConfig(back)
	if diff := cmp.Diff(a.Entries, b.Entries); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"x", `{"version":"v9"}`} {
		if _, err := OpenConfig([]byte(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}
