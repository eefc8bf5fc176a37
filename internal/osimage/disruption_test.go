package osimage

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

func rule(actions string, files ...string) Rule { return Rule{Files: files, Actions: acts(actions)} }

// acts reads "Drain, Reload x.service".
func acts(s string) []Action {
	var out []Action
	for _, w := range strings.Split(s, ", ") {
		t, u, _ := strings.Cut(w, " ")
		out = append(out, Action{ActionType(t), u})
	}
	return out
}

func says(actions []Action) string {
	var out []string
	for _, a := range actions {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

func changed(files ...string) []Change {
	var out []Change
	for _, f := range files {
		out = append(out, Change{Kind: ChangeFile, Name: f})
	}
	return out
}
func TestDecideDisruption(t *testing.T) {
	for name, c := range map[string]struct {
		rules   []Rule
		changes []Change
		want    string
	}{
		"nothing changed":                          {nil, nil, ""},
		"no rule speaks of it":                     {nil, changed("/etc/unknown.conf"), "Reboot"},
		"the exact path":                           {[]Rule{rule("Reload x.service", "/etc/x.conf")}, changed("/etc/x.conf"), "Reload x.service"},
		"a directory above it":                     {[]Rule{rule("None", "/etc/x")}, changed("/etc/x/y/z"), ""},
		"a directory is no prefix of a name":       {[]Rule{rule("None", "/etc/x")}, changed("/etc/xy"), "Reboot"},
		"the nearest directory counts":             {[]Rule{rule("None", "/etc/x"), rule("Restart y.service", "/etc/x/y")}, changed("/etc/x/y/z"), "Restart y.service"},
		"the exact path before the directory":      {[]Rule{rule("Restart y.service", "/etc/x"), rule("None", "/etc/x/y")}, changed("/etc/x/y"), ""},
		"a wildcard in a name":                     {[]Rule{rule("None", "/etc/x/*.conf")}, changed("/etc/x/a.conf", "/etc/x/b.conf"), ""},
		"a wildcard does not cross directories":    {[]Rule{rule("None", "/etc/*.conf")}, changed("/etc/x/a.conf"), "Reboot"},
		"a wildcard over directories":              {[]Rule{rule("None", "/etc/**/*.conf")}, changed("/etc/x/y/a.conf", "/etc/a.conf"), ""},
		"a pool's rule before refit's own":         {[]Rule{rule("None", "/etc")}, changed("/etc/sysctl.d/9.conf"), ""},
		"what refit knows of services":             {nil, changed("/etc/sysctl.d/9.conf"), "Reload systemd-sysctl.service"},
		"one reboot is all":                        {[]Rule{rule("Drain, Restart a.service", "/etc/a"), rule("Reboot", "/etc/b")}, changed("/etc/a", "/etc/b"), "Reboot"},
		"None next to other actions is no action":  {[]Rule{rule("None", "/etc/a"), rule("Reload b.service", "/etc/b")}, changed("/etc/a", "/etc/b"), "Reload b.service"},
		"the same action once":                     {[]Rule{rule("Restart x.service", "/etc/a"), rule("Restart x.service", "/etc/b")}, changed("/etc/a", "/etc/b"), "Restart x.service"},
		"what restarts need not reload":            {[]Rule{rule("Reload x.service", "/etc/a"), rule("Restart x.service", "/etc/b")}, changed("/etc/a", "/etc/b"), "Restart x.service"},
		"the drain comes first":                    {[]Rule{rule("Restart x.service, DaemonReload, Drain", "/etc/a")}, changed("/etc/a"), "Drain, DaemonReload, Restart x.service"},
		"kernel arguments":                         {[]Rule{rule("None", "/**")}, []Change{{Kind: ChangeArguments}}, "Reboot"},
		"packages":                                 {nil, []Change{{Kind: ChangePackages}}, "Reboot"},
		"a file that only an image brings":         {[]Rule{rule("None", "/usr")}, []Change{{Kind: ChangeImage, Name: "/usr/lib/x"}}, "Reboot"},
		"a unit by name":                           {[]Rule{{Units: []string{"x.service"}, Actions: acts("Drain")}}, []Change{{Kind: ChangeUnit, Name: "x.service"}}, "Drain"},
		"a unit by pattern":                        {[]Rule{{Units: []string{"edge-*.service"}, Actions: acts("None")}}, []Change{{Kind: ChangeUnit, Name: "edge-1.service"}}, ""},
		"the unit's own name before a pattern":     {[]Rule{{Units: []string{"edge-*"}, Actions: acts("None")}, {Units: []string{"edge-1.service"}, Actions: acts("Drain")}}, []Change{{Kind: ChangeUnit, Name: "edge-1.service"}}, "Drain"},
		"a unit without a rule":                    {nil, []Change{{Kind: ChangeUnit, Name: "x.service"}}, "Reboot"},
		"ssh keys cost nothing":                    {nil, []Change{{Kind: ChangeSSHKey}}, ""},
		"ssh keys, if a pool says otherwise":       {[]Rule{{SSHKeys: true, Actions: acts("Restart sshd.service")}}, []Change{{Kind: ChangeSSHKey}}, "Restart sshd.service"},
		"what the NodeConfig says of its own file": {[]Rule{rule("Reboot", "/etc")}, []Change{{Kind: ChangeFile, Name: "/etc/a", Declared: acts("Restart a.service")}}, "Restart a.service"},
		"what is gone, and has no rule, reboots":   {nil, Changes(model.NodeConfig{Files: []model.ConfigFile{{Path: "/etc/a", Disruption: model.DisruptionNone}}}, model.NodeConfig{}), "Reboot"},
	} {
		t.Run(name, func(t *testing.T) {
			a := DecideDisruption(c.rules, c.changes)
			if got := says(a.Actions); got != c.want {
				t.Errorf("%q, want %q: %+v", got, c.want, a.Matches)
			}
			if len(a.Matches) != len(c.changes) {
				t.Error("not every change has a reason")
			}
			for _, b := range a.Matches {
				if b.Rule == "" || len(b.Actions) == 0 {
					t.Errorf("%+v", b)
				}
			}
			if a.Reboots() != (c.want == "Reboot") || a.Drains() != (strings.Contains(c.want, "Drain") || a.Reboots()) {
				t.Error("reboots, drains", a.Reboots(), a.Drains())
			}
		})
	}
}
func TestCheck(t *testing.T) {
	many := func(n int) []string {
		return slices.Repeat([]string{"/etc/x"}, n)
	}
	for name, c := range map[string]struct {
		rule Rule
		says string
	}{
		"fine":                             {rule("Drain, Restart x.service, DaemonReload", "/etc/*.conf", "/etc/**/x"), ""},
		"Reboot stands alone":              {rule("Reboot, Drain", "/etc/x"), "Reboot stands alone"},
		"None stands alone":                {rule("None, Drain", "/etc/x"), "None stands alone"},
		"no action":                        {Rule{Files: []string{"/etc/x"}}, "it has no action"},
		"nothing that it speaks of":        {Rule{Actions: acts("None")}, "speaks of nothing"},
		"a restart of nothing":             {rule("Restart", "/etc/x"), "needs the name of a unit"},
		"a unit without its type":          {rule("Reload sshd", "/etc/x"), "needs the name of a unit"},
		"a unit for a drain":               {rule("Drain x.service", "/etc/x"), "Drain has no unit"},
		"an action that is none":           {rule("Explode", "/etc/x"), "there is no action"},
		"a path that is not absolute":      {rule("None", "etc/x"), "no absolute path"},
		"a pattern that is none":           {rule("None", "/etc/["), "no absolute path or pattern"},
		"51 files":                         {rule("None", many(51)...), "51 files"},
		"11 actions":                       {Rule{Files: []string{"/etc/x"}, Actions: slices.Repeat(acts("Drain"), 11)}, "11 actions"},
		"a unit's name that is a path":     {Rule{Units: []string{"a/b"}, Actions: acts("None")}, "no name of a unit"},
		"a command in the place of a unit": {rule("Restart x.service;reboot", "/etc/x"), "needs the name of a unit"},
	} {
		vs := CheckRules("UpdatePool/edge", []Rule{c.rule})
		if (len(vs) == 0) != (c.says == "") || len(vs) > 0 && (!strings.Contains(vs[0].Message, c.says) || vs[0].Fix == "" || vs[0].Object != "UpdatePool/edge") {
			t.Errorf("%s: %+v, want %q", name, vs, c.says)
		}
	}
	if len(CheckRules("x", DefaultRules())) > 0 {
		t.Error("refit's own rules break the rules")
	}
	if vs := CheckRules("x", slices.Repeat([]Rule{rule("None", "/etc/x")}, 51)); len(vs) != 1 {
		t.Error("51 rules", vs)
	}
}

func TestChanges(t *testing.T) {
	f := func(path, data string) model.ConfigFile {
		return model.ConfigFile{Path: path, Mode: 0o644, Owner: "root", Group: "root", Data: []byte(data), Disruption: model.DisruptionRestart, Units: []string{"x.service"}}
	}
	mode := f("/etc/mode", "1")
	mode.Mode = 0o600
	old := model.NodeConfig{Files: []model.ConfigFile{f("/etc/same", "1"), f("/etc/gone", "1"), f("/etc/mode", "1"), f("/home/u/.ssh/authorized_keys", "1"), {Path: "/etc/absent", Absent: true}},
		Units: []model.ConfigUnit{{Name: "a.service", State: "enabled"}, {Name: "b.service", State: "enabled"}, {Name: "c.service", State: "enabled"}}, Packages: []string{"vim"}}
	wanted := model.NodeConfig{Files: []model.ConfigFile{f("/etc/same", "1"), mode, f("/home/u/.ssh/authorized_keys", "2"), f("/etc/new", "1"), f("/usr/lib/x", "1")},
		Units: []model.ConfigUnit{{Name: "a.service", State: "enabled"}, {Name: "b.service", State: "masked"}}, OS: &model.ConfigOS{KernelArguments: []string{"quiet"}}}
	var got []string
	for _, c := range Changes(old, wanted) {
		got = append(got, strings.TrimSpace(c.String()+" "+says(c.Declared)))
	}
	want := []string{"file /etc/mode Restart x.service", "ssh key /home/u/.ssh/authorized_keys", "file /etc/new Restart x.service", "image /usr/lib/x",
		"file /etc/gone", "unit b.service", "unit c.service", "kernel arguments", "packages"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(Changes(wanted, wanted)) != 0 {
		t.Error("something differs from itself")
	}
}

// The order of changes does not matter, and any further change
// makes it no milder; and an answer survives the way into a configuration's words.
func TestOrderIsNothing(t *testing.T) {
	names := []string{"/etc/a", "/etc/b/c", "/etc/b/d.conf", "/etc/sysctl.d/x", "/opt/e"}
	cost := map[ActionType]int{ActionNone: 0, ActionDaemonReload: 1, ActionReload: 1, ActionRestart: 2, ActionDrain: 3, ActionReboot: 4}
	worst := func(a Disruption) int {
		n := 0
		for _, x := range a.Actions {
			n = max(n, cost[x.Type])
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		var rules []Rule
		for range rapid.IntRange(0, 4).Draw(t, "rules") {
			rules = append(rules, rule(rapid.SampledFrom([]string{"None", "Reboot", "Drain", "Reload x.service", "Restart x.service, Drain", "DaemonReload, Reload y.service"}).Draw(t, "actions"),
				rapid.SampledFrom([]string{"/etc", "/etc/a", "/etc/b", "/etc/*/c", "/**/*.conf", "/opt"}).Draw(t, "files")))
		}
		list := changed(rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "changed")...)
		all := DecideDisruption(rules, list)
		shuffled := slices.Clone(list)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(all.Actions, DecideDisruption(rules, shuffled).Actions); diff != "" {
			t.Fatal(diff)
		}
		seen := map[string]bool{}
		for _, a := range all.Actions {
			if seen[a.String()] || a.Type == ActionNone || a.Type == ActionReboot && len(all.Actions) > 1 {
				t.Fatal(fmt.Sprint(all.Actions))
			}
			seen[a.String()] = true
		}
		for i := range list {
			if worst(DecideDisruption(rules, list[i:i+1])) > worst(all) {
				t.Fatal("together it is milder than alone")
			}
		}
		d, units := all.ConfigDisruption()
		back := Disruption{Actions: orderActions(ActionsOf(d, units))}
		if back.Reboots() != all.Reboots() || back.Drains() != all.Drains() {
			t.Fatal(d, units, all.Actions)
		}
	})
}

// What a pool's rules make of files and units that say nothing themselves.
func TestAssign(t *testing.T) {
	rules := []Rule{rule("Restart x.service", "/etc/x"), {Units: []string{"u.service"}, Actions: acts("Drain")}}
	for path, want := range map[string]string{"/etc/x/1": "restart [x.service]", "/etc/unknown": "reboot []", "/etc/sysctl.d/1": "reload [systemd-sysctl.service]", "/home/u/.ssh/authorized_keys": "none []"} {
		if f := AssignFile(rules, model.ConfigFile{Path: path}); fmt.Sprint(f.Disruption, " ", f.Units) != want {
			t.Errorf("%s: %s %v", path, f.Disruption, f.Units)
		}
	}
	own := model.ConfigFile{Path: "/etc/unknown", Disruption: model.DisruptionNone}
	if f := AssignFile(rules, own); f.Disruption != model.DisruptionNone {
		t.Error("what the NodeConfig says does not count")
	}
	if d := AssignUnit(rules, "u.service", ""); d != model.DisruptionDrain {
		t.Error(d)
	}
	if d := AssignUnit(rules, "other.service", ""); d != "" {
		t.Error("without a rule it stays the restart that it is elsewhere:", d)
	}
}

// The closest rule decides what becomes of changes of other writers; the configuration that came in
// stays as it was.
func TestAssignDrift(t *testing.T) {
	c := model.NodeConfig{Files: []model.ConfigFile{{Path: "/etc/a/b.conf"}, {Path: "/etc/a/c.conf"}, {Path: "/etc/other"}}, Units: []model.ConfigUnit{{Name: "x.service"}, {Name: "y.service"}}}
	rules := []DriftRule{{Files: []string{"/etc/a"}, Policy: model.DriftIgnore}, {Files: []string{"/etc/a/*.conf"}, Policy: model.DriftRepair}, {Files: []string{"/etc/a/c.conf"}, Units: []string{"x.*"}, Policy: model.DriftReport}}
	got := AssignDrift(rules, c)
	var all []string
	for _, f := range got.Files {
		all = append(all, f.Drift)
	}
	for _, u := range got.Units {
		all = append(all, u.Drift)
	}
	if want := []string{model.DriftRepair, model.DriftReport, "", model.DriftReport, ""}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	if c.HasDriftRules() || !got.HasDriftRules() || !got.RepairsDrift() || c.RepairsDrift() {
		t.Error(c, got)
	}
}
